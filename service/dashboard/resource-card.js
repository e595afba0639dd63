// A resource of a campaign: its account, what one more unit is worth, its spending and its price over time.

import { now } from "./api.js";
import { EARLY } from "./attention.js";
import { resourceBar } from "./bars.js";
import { burnFigure, chart, priceFigure } from "./charts.js";
import { h, setText } from "./dom.js";
import { amount, figure, moment, percent, unitOf, whole } from "./format.js";
import { fact } from "./tables.js";

// In rewards from 0 to 1: a whole budget worth less than this is not scarce.
const WORTH_MIN = 0.05;
// Share of the newest points that gives the recent rate.
const RECENT_SHARE = 0.25;

/** Returns the card of the resource with this id, with `update(account, budget, campaign)` and `draw(…)`. */
export function resourceCard(name) {
  const bar = resourceBar({ named: true });
  const numbers = h("dl", { class: "facts tight" });
  const worth = h("p", { class: "worth" });
  const outlook = h("p", { class: "outlook" });
  const burn = chart(`${name}: spending compared with an even pace`);
  const price = chart(`${name}: price over time`);
  const priceTitle = h("h3", {}, "Price λ over time");
  price.element.classList.add("low");
  const element = h(
    "article",
    { class: "card", dataset: { resource: name }, "aria-label": `Budget of ${name}` },
    bar.element, numbers, worth, outlook,
    h("h3", {}, "Spending compared with an even pace"), burn.element,
    priceTitle, price.element,
  );

  function update(account, budget, campaign) {
    bar.update(account, budget.flight);
    const shown = {
      granted: amount(account.granted), spent: amount(account.spent), held: amount(account.held),
      free: amount(account.free), ...(account.overrun > 0 ? { over: amount(account.overrun) } : {}),
    };
    numbers.replaceChildren(...Object.entries(shown).map(fact));
    worth.replaceChildren(...(budget.exhausted ? [] : worthOf(account, campaign)));
  }

  /** `planned` is the axis of the flight; `axis` is the one to draw. */
  function draw(points, { axis, planned }, campaign, budget) {
    const account = campaign.accounts.find((one) => one.id === name);
    const forecast = budget.status === "active" && !budget.exhausted;
    setText(outlook, budget.exhausted ? EXHAUSTED : forecast && budget.flight > EARLY ? outlookOf(points, name, planned, now()) : "");
    setText(priceTitle, `Price λ over time, in reward per ${unitOf(account)}`);
    if (!points.some((point) => point.decisions > 0)) {
      burn.empty("No decisions yet.");
      price.empty("No decisions yet.");
      return null;
    }
    const { min, max } = campaign.config.reward; // prices are in rewards from 0 to 1
    return Promise.all([
      burn.show(burnFigure(points, name, axis, planned, unitOf(account))),
      price.show(priceFigure(points, name, axis, max - min)),
    ]);
  }
  return { element, update, draw, charts: [burn, price] };
}

const EXHAUSTED = "No arm is affordable any more.";

function worthOf(account, campaign) {
  const price = campaign.prices[account.id];
  if (price === undefined) return ["No price yet: there are no decisions."];
  // The value of the whole budget at this price.
  if (price * account.granted < WORTH_MIN) {
    return ["This budget is not scarce: one more unit of ", h("b", {}, account.id), " would earn almost nothing."];
  }
  const { min, max } = campaign.config.reward;
  const worth = h("b", { class: "price" }, figure(price * (max - min)));
  return ["One more ", h("b", {}, account.unit ?? `unit of ${account.id}`), " is worth ", worth, " reward."];
}

/** Extrapolates the last quarter of the points, and the time since then, to the end of the flight. */
export function outlookOf(points, name, axis, nowMs) {
  const number = (value) => (typeof value === "string" ? Date.parse(value) : value);
  const last = points.at(-1);
  const earlier = points[Math.floor(points.length * (1 - RECENT_SHARE))];
  if (!last || !earlier || earlier === last) return "";
  // Time passes without decisions, too; rounds do not.
  const here = typeof axis.end === "string" ? Math.max(nowMs, number(axis.of(last))) : axis.of(last);
  const passed = here - number(axis.of(earlier));
  const used = last.spent[name] - earlier.spent[name];
  const left = last.granted[name] - last.spent[name];
  const ahead = number(axis.end) - here;
  if (passed <= 0 || ahead <= 0 || left <= 0) return "";
  if (used <= 0) return "No recent spending.";
  const lasts = (left / used) * passed;
  if (lasts < ahead) {
    const place = here + lasts;
    const where = typeof axis.end === "string" ? moment(new Date(place).toISOString()) : `round ${whole(place)}`;
    return `At the recent rate it is used up at ${where}.`;
  }
  const unspent = (left - (used / passed) * ahead) / last.granted[name];
  return `At the recent rate ${percent(unspent)} is left at the end.`;
}
