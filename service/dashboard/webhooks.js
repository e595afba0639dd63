// The pages of webhooks and of their deliveries, for administrators.

import { request } from "./api.js";
import { confirmDialog, openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { check, field, showErrors } from "./fields.js";
import { fullMoment, moment, whole } from "./format.js";
import { showOnce } from "./keys.js";
import { listPage } from "./list-page.js";
import { newest } from "./tables.js";

const SECONDS = 5;
const ROWS = 50;
const EVENTS = [
  ["budget.threshold", "a budget passes a threshold"], ["budget.exhausted", "a budget pays for no arm any more"],
  ["budget.overrun", "more was reported than was granted"], ["window.threshold", "a window passes a threshold"],
  ["window.exhausted", "a window pays for no arm any more"], ["drift.noticed", "a model restarts: the world has changed"],
  ["evaluation.done", "an evaluation has ended"], ["campaign.ended", "a campaign has ended"],
];
const CHECKED = ["budget.threshold", "budget.exhausted", "budget.overrun", "campaign.ended"];
const THRESHOLDS = "50, 80, 95, 100";

const at = (value) => (value ? h("span", { title: fullMoment(value) }, moment(value)) : "–");

/** Returns the page of all webhooks: create, show the secret once, delete. */
export function webhooksPage(page) {
  return listPage(page, {
    name: "Webhooks", path: "admin/webhooks", seconds: SECONDS, button: "New webhook…", create,
    columns: (done) => columns((one) => remove(one, page.notify, done)),
    empty: "No webhooks yet. One gets a signed message when a budget nears its end.",
  });
}

function columns(ask) {
  return [
    ["Address", (one) => h("b", { class: "address" }, one.url)],
    ["Events", (one) => one.events.join(", ")],
    ["Thresholds", (one) => one.thresholds.map((share) => `${share}\u00a0%`).join(", ") || "–"],
    ["Campaigns", (one) => one.campaigns?.join(", ") ?? "all"],
    ["Created", (one) => at(one.created_at), "short"],
    ["Messages", (one) => h("a", { href: `#/webhooks/${encodeURIComponent(one.id)}`,
      "aria-label": `Deliveries to ${one.url}` }, "Deliveries"), "short"],
    ["Delete", (one) => h("button", { type: "button", class: "danger", "aria-label": `Delete webhook ${one.url}`,
      onclick: () => ask(one) }, "Delete…")],
  ];
}

function remove(one, notify, done) {
  confirmDialog({
    title: "Delete this webhook?", lines: [one.url, "It gets no more messages; those that wait are deleted, too."],
    button: "Delete permanently", danger: true,
    act: async () => {
      await request(`admin/webhooks/${encodeURIComponent(one.id)}`, { method: "DELETE" });
      await done();
      notify("The webhook is deleted.");
    },
  });
}

const listed = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

function create(done) {
  const hook = { url: "", thresholds: THRESHOLDS, campaigns: "" };
  const chosen = new Set(CHECKED);
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const save = h("button", { type: "submit", class: "primary" }, "Create webhook");
  const submit = async (event) => {
    event.preventDefault();
    save.disabled = true;
    const campaigns = listed(hook.campaigns);
    const body = {
      url: hook.url.trim(), events: EVENTS.map(([name]) => name).filter((name) => chosen.has(name)),
      thresholds: listed(hook.thresholds).map(Number), ...(campaigns.length ? { campaigns } : {}),
    };
    try {
      const made = await request("admin/webhooks", { method: "POST", body });
      dialog.close();
      showOnce("Secret", "The secret of the webhook", made.secret);
      done();
    } catch (error) {
      wrong.textContent = showErrors(form, error).join("; ");
      wrong.hidden = !wrong.textContent;
      save.disabled = false;
    }
  };
  const boxes = EVENTS.map(([name, text]) =>
    check(`event.${name}`, `${name}: ${text}`, (on) => (on ? chosen.add(name) : chosen.delete(name)), chosen.has(name)));
  const form = h("form", { onsubmit: submit }, h("h2", {}, "New webhook"),
    field("url", "Address", { type: "url", required: true, placeholder: "https://" }, (value) => (hook.url = value)),
    h("fieldset", { class: "events", dataset: { path: "events" } }, h("legend", {}, "A message when"), boxes),
    field("thresholds", "Thresholds in % spent", {}, (value) => (hook.thresholds = value), { value: THRESHOLDS }),
    field("campaigns", "Only campaigns", {}, (value) => (hook.campaigns = value), { hint: "ids, separated by commas; empty: all" }),
    wrong,
    h("div", { class: "answers" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), save));
  const dialog = openDialog("New webhook", {}, form);
}

/** Returns the page of the messages of one webhook, newest first. */
export function deliveriesPage(id, { watch, title, failed }) {
  title("Deliveries");
  const heading = h("h1", { tabindex: "-1" }, "Deliveries");
  const list = newest({
    label: "Deliveries", path: `admin/webhooks/${encodeURIComponent(id)}/deliveries`, limit: ROWS, key: "id",
    empty: "No messages yet.", failed,
    columns: [
      ["Time", (one) => at(one.at), "short"],
      ["Event", (one) => h("b", {}, one.event), "short"],
      ["Campaign", (one) => (one.campaign_id
        ? h("a", { href: `#/campaigns/${encodeURIComponent(one.campaign_id)}` }, one.campaign_id) : "–")],
      ["Status", (one) => h("span", { class: "delivery", dataset: { status: one.status } }, one.status), "short"],
      ["Attempts", (one) => whole(one.attempts), "number"],
      ["Last answer", (one) => one.error ?? one.response_status ?? "–", "text"],
      ["Next attempt", (one) => at(one.next_attempt_at), "short"],
      ["What", (one) => h("details", {}, h("summary", {}, "Show"),
        h("pre", { tabindex: 0, "aria-label": `Message ${one.id}` }, JSON.stringify(one.body, null, 2))), "why body"],
    ],
  });
  watch(list.load, SECONDS);
  const element = h("div", {}, h("p", { class: "back" }, h("a", { href: "#/webhooks" }, "← Webhooks")), heading,
    h("p", { class: "note" }, h("span", { class: "id" }, id)), h("div", { class: "card" }, list.element));
  return { element, heading };
}
