// The pages of keys and of the audit log, for administrators.

import { request } from "./api.js";
import { copyButton } from "./connect.js";
import { confirmDialog, openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { field, select, showErrors } from "./fields.js";
import { fullMoment, moment, whole } from "./format.js";
import { listPage } from "./list-page.js";
import { newest } from "./tables.js";

const SECONDS = 10;
const ROWS = 50;
const ROLES = [["decider", "decider: asks and reports"], ["reader", "reader: sees everything"], ["admin", "admin: changes everything"]];

/** Returns the page of all keys: create, show once, revoke. */
export function keysPage(page) {
  return listPage(page, {
    name: "Keys", path: "admin/keys", seconds: SECONDS, button: "New key…", create: createKey,
    columns: (done) => columns((key) => revoke(key, page.notify, done)),
    empty: "No keys yet. Give each service and each person a key of their own.",
  });
}

function columns(ask) {
  const at = (value) => h("span", { title: fullMoment(value) }, moment(value));
  const revoked = (key) => (key.revoked_at ? h("span", { title: fullMoment(key.revoked_at) }, "revoked")
    : h("button", { type: "button", class: "danger", "aria-label": `Revoke key ${key.name}`, onclick: () => ask(key) }, "Revoke…"));
  return [
    ["Name", (key) => h("b", {}, key.name)],
    ["Role", (key) => key.role],
    ["Campaigns", (key) => key.campaigns?.join(", ") ?? "all"],
    ["Requests a second", (key) => (key.requests_per_second === null ? "any" : whole(key.requests_per_second)), "number"],
    ["Created", (key) => at(key.created_at), "short"],
    ["Id", (key) => h("span", { class: "id" }, key.id)],
    ["Revoke", revoked],
  ];
}

function revoke(key, notify, done) {
  confirmDialog({
    title: `Revoke ${key.name}?`, lines: ["Requests with this key are refused from now on. It cannot be restored."],
    button: "Revoke permanently", danger: true,
    act: async () => {
      await request(`admin/keys/${encodeURIComponent(key.id)}`, { method: "DELETE" });
      await done();
      notify(`${key.name} is revoked.`);
    },
  });
}

function createKey(done) {
  const key = { name: "", role: "decider", campaigns: "", rate: "" };
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const save = h("button", { type: "submit", class: "primary" }, "Create key");
  const submit = async (event) => {
    event.preventDefault();
    save.disabled = true;
    const campaigns = key.campaigns.split(",").map((one) => one.trim()).filter(Boolean);
    const body = {
      name: key.name, role: key.role, ...(campaigns.length ? { campaigns } : {}),
      ...(key.rate ? { requests_per_second: Number(key.rate) } : {}),
    };
    try {
      const made = await request("admin/keys", { method: "POST", body });
      dialog.close();
      showOnce("Key", `The key ${key.name}`, made.key);
      done();
    } catch (error) {
      wrong.textContent = showErrors(form, error).join("; ");
      wrong.hidden = !wrong.textContent;
      save.disabled = false;
    }
  };
  const form = h("form", { onsubmit: submit }, h("h2", {}, "New key"),
    field("name", "Name", { required: true, maxlength: 500 }, (value) => (key.name = value)),
    select("role", "Role", ROLES, (value) => (key.role = value)),
    field("campaigns", "Only campaigns", {}, (value) => (key.campaigns = value), { hint: "ids, separated by commas; empty: all" }),
    field("requests_per_second", "Requests a second", { type: "number", min: 0.01, step: "any" },
      (value) => (key.rate = value), { hint: "empty: any number" }),
    wrong,
    h("div", { class: "answers" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), save));
  const dialog = openDialog("New key", {}, form);
}

/** Shows a secret in a dialog from which it can be copied. */
export function showOnce(kind, title, text) {
  const dialog = openDialog(title, {},
    h("h2", {}, title), h("p", {}, "Copy it now: it is never shown again."),
    h("pre", { tabindex: 0, class: "secret", "aria-label": kind }, text),
    h("div", { class: "answers" }, copyButton(`Copy ${kind.toLowerCase()}`, () => text),
      h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
}

/** Returns the page of changes, newest first. */
export function auditPage({ watch, title, failed }) {
  title("Audit");
  const heading = h("h1", { tabindex: "-1" }, "Audit");
  const list = newest({
    label: "Audit", path: "admin/audit", limit: ROWS, key: "number", empty: "No changes yet.", failed,
    columns: [
      ["Time", (one) => h("span", { title: fullMoment(one.at) }, moment(one.at)), "short"],
      ["Key", (one) => h("span", { class: "id" }, one.actor)],
      ["Change", (one) => h("b", {}, one.action)],
      ["Campaign", (one) => (one.campaign_id
        ? h("a", { href: `#/campaigns/${encodeURIComponent(one.campaign_id)}` }, one.campaign_id) : "–")],
      ["What", (one) => h("details", {}, h("summary", {}, "Show"),
        h("pre", { tabindex: 0, "aria-label": `Change ${one.number}` }, JSON.stringify(one.body, null, 2))), "why body"],
    ],
  });
  watch(list.load, SECONDS);
  const element = h("div", {}, h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns")), heading,
    h("div", { class: "card" }, list.element));
  return { element, heading };
}
