// Tab "Ledger": every movement of the accounts, and their verification.

import { adminPath, request } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { MOVEMENTS, fullMoment, moment, movement, unitNames } from "./format.js";
import { newest, section } from "./tables.js";

const ROWS = window.innerWidth < 640 ? 8 : 25;

export function ledgerTab({ id, failed }) {
  let unitOf = (resource) => resource;
  const list = newest({
    label: "Ledger", path: adminPath(id, "ledger"), limit: ROWS, key: "sequence", empty: "No entries yet.",
    columns: columns((one) => unitOf(one)), failed,
  });
  const check = h("button", { type: "button", onclick: () => verify(id, failed) }, "Verify accounts");
  return {
    element: section("ledger", "Ledger", list.element, check),
    update(campaign) {
      unitOf = unitNames(campaign.config);
    },
    loads: [list.load],
    charts: () => [],
  };
}

const columns = (unitOf) => [
  ["Time", (one) => h("span", { title: fullMoment(one.at) }, moment(one.at))],
  ["Entry", (one) => MOVEMENTS[one.kind] ?? one.kind],
  ["Granted", (one) => movement(one.granted, unitOf)],
  ["Held", (one) => movement(one.held, unitOf)],
  ["Spent", (one) => movement(one.spent, unitOf)],
  ["Reason or decision", (one) => h("span", { class: "id" }, one.reason ?? one.decision_id ?? "")],
];

async function verify(id, failed) {
  let found;
  try {
    found = await request(adminPath(id, "verify"));
  } catch (error) {
    failed(error);
    return;
  }
  const wrong = found.checks.filter((check) => !check.ok);
  const count = found.checks.length;
  const result = found.ok ? `All ${count} checks hold.` : `${wrong.length} of ${count} checks failed.`;
  const differs = (check) => h("li", {}, `${check.name}: the log says ${check.expected}, found ${check.found}`);
  const dialog = openDialog(
    "Verification of the accounts", {},
    h("h2", {}, found.ok ? "The accounts match the log" : "The accounts differ from the log"),
    h("p", { class: found.ok ? null : "wrong" }, result),
    wrong.length ? h("ul", {}, wrong.map(differs)) : null,
    h("div", { class: "answers" },
      h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")),
  );
}
