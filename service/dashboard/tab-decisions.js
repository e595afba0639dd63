// Tab "Decisions": the log of decisions with filters, each with its explanation.

import { ROOT, adminPath } from "./api.js";
import { copyButton, curlOf } from "./connect.js";
import { h } from "./dom.js";
import { NO_ARM, STATUSES, amounts, armNames, figure, fullMoment, moment, percent, unitNames } from "./format.js";
import { newest, section } from "./tables.js";

const ROWS = window.innerWidth < 640 ? 8 : 25;

export function decisionsTab({ id, failed }) {
  const filters = { arm: "", status: "", from: "", to: "" };
  let nameOf = (arm) => arm;
  let unitOf = (resource) => resource;
  const arm = h("select", { id: "filter-arm" }, h("option", { value: "" }, "any"));
  const status = h("select", { id: "filter-status" }, h("option", { value: "" }, "any"),
    Object.entries(STATUSES).map(([value, label]) => h("option", { value }, label)));
  const from = h("input", { type: "datetime-local", id: "filter-from", step: 1 });
  const to = h("input", { type: "datetime-local", id: "filter-to", step: 1 });
  const list = newest({
    label: "Decisions", path: adminPath(id, "decisions"), limit: ROWS, key: "decision_id",
    empty: "No such decisions.", columns: columns(id, (one) => nameOf(one), (one) => unitOf(one)), failed, query: () => query(filters),
  });
  const exported = h("p", { class: "note" });
  const clear = h("button", {
    type: "button", onclick: () => {
      for (const input of [arm, status, from, to]) input.value = "";
      changed();
    },
  }, "All decisions");

  async function changed() {
    Object.assign(filters, { arm: arm.value, status: status.value, from: instant(from.value), to: instant(to.value) });
    list.reset();
    showExport();
    try {
      await list.load();
    } catch (error) {
      failed(error);
    }
  }

  function showExport() {
    const path = `${adminPath(id, "export")}?format=csv${query(filters)}`;
    const text = curlOf("GET", new URL(path, ROOT).href);
    exported.replaceChildren("Export of these decisions: ", copyButton("Copy curl", () => text));
  }

  for (const input of [arm, status, from, to]) input.addEventListener("change", changed);
  showExport();
  const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  const element = section("decisions", "Decisions", h("div", {},
    h("div", { class: "filters", role: "group", "aria-label": "Filters" },
      field("Arm", arm), field("Status", status), field("From", from), field("Before", to), clear),
    exported,
    list.element));

  function update(campaign) {
    nameOf = armNames(campaign.config);
    unitOf = unitNames(campaign.config);
    const known = new Set([...arm.options].map((option) => option.value));
    const missing = campaign.config.arms.filter((one) => !known.has(one.id));
    arm.append(...missing.map((one) => h("option", { value: one.id }, nameOf(one.id))));
  }
  return { element, update, loads: [list.load], charts: () => [] };
}

/** Returns the local time of a field as a moment of the interface; "" for an empty field. */
const instant = (text) => (text ? new Date(text).toISOString() : "");

const query = (filters) =>
  Object.entries(filters).filter(([, value]) => value).map(([name, value]) => `&${name}=${encodeURIComponent(value)}`)
    .join("");

function columns(id, nameOf, unitOf) {
  const path = (one) => `#/campaigns/${encodeURIComponent(id)}/decisions/${encodeURIComponent(one.decision_id)}`;
  const named = (one) => ({ class: "explain", href: path(one), "aria-label": `Explain decision ${one.decision_id}` });
  return [
    ["Time", (one) => h("span", { title: fullMoment(one.decided_at) }, moment(one.decided_at))],
    ["Arm", (one) => h("b", { title: one.arm }, one.arm === null ? "no arm" : nameOf(one.arm))],
    ["Probability", (one) => percent(one.probability, 1), "number"],
    ["Status", (one) => (one.arm === null ? (NO_ARM[one.reason] ?? one.reason) : (STATUSES[one.status] ?? one.status))],
    ["Reward", (one) => figure(one.reward), "number"],
    ["Costs", (one) => (one.costs ? amounts(one.costs, unitOf) : "–")],
    ["Explanation", (one) => h("a", named(one), "Explain")],
  ];
}
