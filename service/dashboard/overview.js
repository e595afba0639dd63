// The list of all campaigns, the most urgent first.

import { all, now } from "./api.js";
import { LEVELS, WARNING, attentionOf, byUrgency } from "./attention.js";
import { resourceBar } from "./bars.js";
import { standingBadges } from "./badges.js";
import { h, setChildren, setText } from "./dom.js";
import { percent, whole } from "./format.js";

const SECONDS = 2;
// Rows built at a time; a thousand would take too long.
const ROWS_AT_ONCE = 40;
const BARS_MAX = 4;

const FILTERS = [
  ["all", "All", (item) => item.status !== "archived"],
  ["attention", "Need attention", (item) => item.attention.level >= WARNING],
  ["scheduled", "Scheduled", (item) => item.status === "scheduled"],
  ["active", "Active", (item) => item.status === "active"],
  ["paused", "Paused", (item) => item.status === "paused"],
  ["ended", "Ended", (item) => item.status === "ended"],
  ["archived", "Archived", (item) => item.status === "archived"],
];

const KEY = [["part spent", "spent"], ["part held", "held"], ["free", "free"], ["plan", "plan"]];

// Search and filter survive a visit to a campaign.
const selection = { text: "", filter: "all" };

export function overview({ watch, title, mayCreate }) {
  const rows = new Map();
  let items = [];
  let shown = ROWS_AT_ONCE;

  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search campaigns   /",
    "aria-label": "Search campaigns and resources",
    autocomplete: "off",
    value: selection.text,
    oninput: () => {
      selection.text = search.value;
      shown = ROWS_AT_ONCE;
      draw();
    },
  });
  const chips = new Map(
    FILTERS.map(([key]) => [key, h("button", { type: "button", class: "chip", onclick: () => choose(key) })]),
  );
  const list = h("ul", { class: "campaigns", "aria-label": "Campaigns" });
  const none = h("p", { class: "empty" }, "Loading…");
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => grow() });
  const heading = h("h1", { tabindex: "-1" }, "Campaigns");
  const create = mayCreate && h("a", { class: "button primary", href: "#/new" }, "New campaign");
  const first = firstSteps(mayCreate);
  const element = h(
    "div",
    { class: "overview" },
    h("div", { class: "tools" }, h("div", { class: "line" }, heading, create), search,
      h("div", { class: "chips", role: "group", "aria-label": "Show" }, [...chips.values()])),
    h("div", { class: "key", "aria-hidden": "true" },
      KEY.map(([kind, label]) => h("span", {}, h("i", { class: kind }), label))),
    list,
    first,
    none,
    more,
  );
  const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && grow(), {
    rootMargin: "600px",
  });
  watcher.observe(more);

  function choose(key) {
    selection.filter = key;
    shown = ROWS_AT_ONCE;
    draw();
  }

  function grow() {
    shown += ROWS_AT_ONCE;
    draw();
  }

  function draw() {
    const text = selection.text.trim().toLowerCase();
    for (const [key, label, test] of FILTERS) {
      setText(chips.get(key), `${label} ${whole(items.filter(test).length)}`);
      chips.get(key).setAttribute("aria-pressed", String(key === selection.filter));
    }
    const test = FILTERS.find(([key]) => key === selection.filter)[2];
    const found = items.filter((item) => test(item) && (!text || item.text.includes(text)));
    const visible = found.slice(0, shown);
    setChildren(list, visible.map(rowOf));
    first.hidden = items.length > 0;
    none.hidden = found.length > 0 || !items.length;
    setText(none, "No matching campaigns.");
    more.hidden = found.length <= shown;
    setText(more, `Show more of ${whole(found.length)}`);
    title(headline());
  }

  function headline() {
    const urgent = items.filter((item) => item.attention.level >= WARNING).length;
    return urgent ? `${urgent} need attention` : "Campaigns";
  }

  function rowOf(item) {
    let row = rows.get(item.campaign_id);
    if (!row) {
      row = campaignRow(item.campaign_id);
      rows.set(item.campaign_id, row);
    }
    row.update(item);
    return row.element;
  }

  async function load() {
    const begin = performance.now();
    const found = await all("admin/budgets");
    const took = performance.now() - begin;
    const at = now();
    for (const item of found) {
      item.attention = attentionOf(item, at);
      item.text = [
        item.campaign_id, item.display_name, ...Object.entries(item.metadata ?? {}).flat(),
        ...item.resources.flatMap((one) => [one.id, one.unit]),
      ].filter(Boolean).join(" ").toLowerCase();
    }
    items = found.sort(byUrgency);
    draw();
    return took;
  }

  watch(load, SECONDS);
  return { element, heading, focusSearch: () => search.focus(), close: () => watcher.disconnect() };
}

/** What to do in a service without campaigns. */
function firstSteps(mayCreate) {
  const steps = mayCreate
    ? [h("h2", {}, "Create your first campaign"),
      h("p", {}, "Name the arms to choose from and the budgets to keep; then ask for decisions and report outcomes."),
      h("p", {}, h("a", { class: "button primary", href: "#/new" }, "Create your first campaign"))]
    : [h("h2", {}, "No campaigns yet"), h("p", {}, "A key of the role admin creates the first one.")];
  return h("div", { class: "card first-steps", hidden: true }, ...steps,
    h("p", { class: "note" }, "To see one at work: ", h("code", {}, "cbwk demo --stay"),
      " starts a service of its own with a simulated ad server and prints the address of its dashboard."));
}

function campaignRow(id) {
  const link = h("a", { class: "name", href: `#/campaigns/${encodeURIComponent(id)}` }, id);
  const shownId = h("span", { class: "id" });
  const badges = h("span", { class: "badges" });
  const status = h("span", { class: "status" });
  const flight = h("span", { class: "flight" });
  const reason = h("p", { class: "reason" });
  const bars = h("div", { class: "bars" });
  const others = h("span", { class: "others" });
  const made = [];
  const element = h(
    "li",
    { class: "campaign", dataset: { campaign: id } },
    h("div", { class: "about" }, h("div", { class: "line" }, link, shownId, status, badges), flight, reason),
    bars,
  );

  function update(item) {
    element.dataset.level = LEVELS[item.attention.level];
    const name = item.display_name ?? id;
    setText(link, name);
    setText(shownId, name === id ? "" : id);
    const standing = JSON.stringify([item.mode, item.holdout]);
    if (badges.dataset.standing !== standing) {
      badges.dataset.standing = standing;
      badges.replaceChildren(...standingBadges(item));
    }
    status.dataset.status = item.status;
    setText(status, item.status);
    setText(flight, `${percent(item.flight)} of the flight, round ${whole(item.round)}`);
    setText(reason, item.attention.reasons[0]?.text ?? "");
    reason.hidden = !item.attention.reasons.length;
    const accounts = item.resources.slice(0, BARS_MAX);
    while (made.length < accounts.length) made.push(resourceBar());
    accounts.forEach((account, index) => made[index].update(account, item.flight));
    setText(others, `and ${item.resources.length - BARS_MAX} more`);
    const drawn = made.slice(0, accounts.length).map((bar) => bar.element);
    setChildren(bars, item.resources.length > BARS_MAX ? [...drawn, others] : drawn);
  }
  return { element, update };
}
