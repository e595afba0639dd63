// A budget as a bar: spent, held, free, and a mark for the plan.

import { h, setChildren, setText } from "./dom.js";
import { EARLY } from "./attention.js";
import { amount, moment, percent, unitOf, withUnit } from "./format.js";

/** Returns one resource's bar, with `update(account, flight)`; `named` has the unit in its name. */
export function resourceBar({ named = false } = {}) {
  const name = h("span", { class: "resource-name" });
  const figures = h("span", { class: "resource-figures" });
  const pace = h("span", { class: "pace" });
  const spent = h("span", { class: "part spent" });
  const held = h("span", { class: "part held" });
  const plan = h("span", { class: "plan" });
  const bar = h("span", { class: "bar", role: "img" }, spent, held, plan);
  const windows = h("div", { class: "windows" });
  const element = h("div", { class: "resource" }, name, pace, bar, figures, windows);

  function update(account, flight) {
    const most = Math.max(account.granted, account.spent + account.held) || 1;
    element.dataset.resource = account.id;
    spent.style.setProperty("width", `${(100 * account.spent) / most}%`);
    held.style.setProperty("width", `${(100 * account.held) / most}%`);
    plan.style.setProperty("left", `${(100 * Math.min(1, flight) * account.granted) / most}%`);
    bar.classList.toggle("over", account.overrun > 0);
    bar.setAttribute("aria-label", barText(account, flight));
    bar.title = barText(account, flight);
    setChildren(windows, (account.windows ?? []).map((one) => windowBar(one, account.unit)));
    setText(name, named && account.unit ? `${account.id} (${account.unit})` : account.id);
    setText(figures, `${amount(account.spent)} of ${withUnit(account.granted, account)}`);
    const known = flight > EARLY ? account.pace : null;
    setText(pace, known === null ? "no plan yet" : `${known.toFixed(2)}× plan`);
    pace.dataset.pace = known !== null && known > 1.1 ? "fast" : "even";
  }
  return { element, update };
}

function windowBar({ period, limit, spent, held, ends_at }, unit) {
  const most = Math.max(limit, spent + held) || 1;
  const text = `This ${period}: ${amount(spent)} spent, ${amount(held)} held of ${amount(limit)}, until ${moment(ends_at)}`;
  const bar = h("span", { class: "bar", role: "img", "aria-label": text, title: text });
  for (const [kind, part] of [["spent", spent], ["held", held]]) {
    const piece = h("span", { class: `part ${kind}` });
    piece.style.setProperty("width", `${(100 * part) / most}%`);
    bar.append(piece);
  }
  const figures = h("span", { class: "window-figures" }, `${amount(spent)} of ${amount(limit)}${unit ? ` ${unit}` : ""}`);
  return h("div", { class: "window" }, h("span", {}, `this ${period}`), bar, figures);
}

function barText(account, flight) {
  const over = account.overrun > 0 ? `, ${amount(account.overrun)} over budget` : "";
  return (
    `${account.id}: ${amount(account.spent)} spent, ${amount(account.held)} held, ${amount(account.free)} free ` +
    `of ${amount(account.granted)} ${unitOf(account)}${over}; ${percent(flight)} of the flight is over`
  );
}
