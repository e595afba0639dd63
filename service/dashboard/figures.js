// The figures at the top of a campaign: what it earned, what that cost, and how it compares with the hold-out.

import { h } from "./dom.js";
import { amount, armNames, counted, figure, percent, signed, unitOf, whole } from "./format.js";

const PER_DECISIONS = 1000;

/** Returns the row of figures, with `update(points, campaign)` and `compare(holdout report or null, campaign)`. */
export function figuresRow() {
  const element = h("dl", { class: "figures", "aria-label": "What it earned" });
  let earned = [];
  let compared = [];

  function show() {
    element.replaceChildren(...[...earned, ...compared].map(([name, value, note]) =>
      h("div", { dataset: { figure: name } }, h("dt", {}, name), h("dd", {}, h("b", {}, value),
        note ? h("small", {}, note) : null))));
  }

  function update(points, campaign) {
    earned = earnings(points, campaign.accounts);
    show();
  }

  function compare(report, campaign) {
    compared = report ? comparison(report, campaign) : [];
    show();
  }
  return { element, update, compare };
}

/** Returns [name, value, note] of each figure, from the points of the timeline. */
export function earnings(points, accounts) {
  const last = points.at(-1);
  const decisions = last?.round ?? 0;
  const reward = last?.reward ?? 0;
  const plays = points.reduce((sum, point) => sum + point.plays, 0);
  const each = (value) => accounts.map((account) => value(last?.spent[account.id] ?? 0, account)).join("\n");
  return [
    ["Reward", figure(reward, 4), `of ${counted(decisions, "decision")}`],
    [`Reward per ${whole(PER_DECISIONS)} decisions`, decisions ? figure((PER_DECISIONS * reward) / decisions) : "–"],
    ["Spend", each((spent, account) => `${amount(spent)} ${unitOf(account)}`)],
    ["Cost per reward", reward > 0 ? each((spent, account) => `${amount(spent / reward)} ${unitOf(account)}`) : "–"],
    ["Share of null", decisions ? percent(1 - plays / decisions, 1) : "–", "decisions without an arm"],
  ];
}

function comparison({ arm, level, uplift }, { accounts, config }) {
  const baseline = arm === null ? "no arm" : armNames(config)(arm);
  const against = (difference) => {
    if (difference.value === null) return `too few outcomes to compare with ${baseline}`;
    if (difference.lower === null) return `against ${baseline}; too few outcomes for an interval`;
    const sure = difference.lower > 0 || difference.upper < 0;
    return `against ${baseline}, ${sure ? "" : "not "}significant at ${percent(level, 1)}`;
  };
  const known = accounts.filter((account) => uplift.reward_per_cost?.[account.id]?.value !== undefined);
  return [
    ["Reward per decision, over the hold-out", signed(uplift.reward.value), against(uplift.reward)],
    ...known.map((account) => {
      const difference = uplift.reward_per_cost[account.id];
      return [`Reward per ${unitOf(account)}, over the hold-out`, signed(difference.value), against(difference)];
    }),
  ];
}
