// The policy compared with a baseline: with a hold-out group, or with the caller's choices in shadow mode.

import { h } from "./dom.js";
import { fact, table } from "./tables.js";
import { amounts, armNames, counted, figure, interval, percent, signed, unitNames, whole } from "./format.js";

const ARMS_SHOWN = 50;
// On a phone, two figures side by side.
const paired = () => ({ class: "pairs" });

/** Tells whether a campaign has a baseline. */
export const isCompared = (config) => Boolean(config.holdout) || config.mode === "shadow";

/** Returns the heading of the section. */
export const comparedTitle = (config) => (config.holdout ? "Uplift over the hold-out" : "Shadow mode");

/** Returns the section's body, with `update(response, campaign)`. */
export function upliftReport() {
  const element = h("div", { class: "card" }, h("p", {}, "Loading…"));
  function update({ holdout, shadow }, { config }) {
    const names = { arm: armNames(config), unit: unitNames(config) };
    element.replaceChildren(
      ...(holdout ? holdoutElements(holdout, names) : []), ...(shadow ? shadowElements(shadow, names) : []));
  }
  return { element, update };
}

const groupText = (group) =>
  `${counted(group.decisions, "decision")}, ${counted(group.plays, "play")}, ${whole(group.open)} without an outcome`;

function holdoutElements(report, names) {
  const { policy, holdout } = report.groups;
  const { reward, costs, reward_per_cost: perCost = {} } = report.uplift;
  const row = (name, of, difference) => ({ name, policy: of(policy), holdout: of(holdout), difference });
  const rows = [
    row("reward", (group) => group.mean_reward, reward),
    ...Object.entries(costs).map(([name, difference]) => row(names.unit(name), (group) => group.mean_cost?.[name], difference)),
    ...Object.entries(perCost).map(([name, difference]) =>
      row(`reward per ${names.unit(name)}`, (group) => group.reward_per_cost?.[name], difference)),
  ];
  const columns = [
    ["Per decision", (one) => h("b", {}, one.name)],
    ["Policy", (one) => figure(one.policy), "number"],
    ["Hold-out", (one) => figure(one.holdout), "number"],
    ["Difference", (one) => signed(one.difference.value), "number"],
    [`${percent(report.level, 1)} interval`, (one) => interval(one.difference.lower, one.difference.upper), "number"],
  ];
  return [
    h("p", { class: "verdict" }, ...holdoutVerdict(report, names)),
    h("dl", { class: "facts big below" },
      fact(["Policy", groupText(policy)]),
      fact([`Hold-out: ${percent(report.fraction, 1)}, ${report.arm === null ? "no arm" : names.arm(report.arm)}`, groupText(holdout)])),
    table("Uplift over the hold-out", columns, rows, paired),
    h("p", { class: "note" }, "Means include decisions whose outcome was learnt and decisions without an arm. ",
      "Decisions in which no arm was possible are in neither group."),
  ];
}

function holdoutVerdict({ arm, level, uplift: { reward, relative, reward_per_cost: perCost = {} } }, names) {
  const baseline = arm === null ? "playing no arm" : `always ${names.arm(arm)}`;
  if (reward.value === null) return [`Too few outcomes yet to compare with ${baseline}.`];
  const known = reward.lower !== null && reward.upper !== null;
  const share = relative === null ? "" : ` (${percent(Math.abs(relative), 1)})`;
  const text = [
    "The policy earns ", h("b", {}, `${figure(Math.abs(reward.value))} ${reward.value < 0 ? "less" : "more"}${share}`),
    ` per decision than ${baseline}`,
  ];
  if (!known) return [...text, ". Too few outcomes yet for an interval."];
  const significant = reward.lower > 0 || reward.upper < 0;
  return [...text, `; the difference is ${significant ? "" : "not "}significant at ${percent(level, 1)}. `,
    ...Object.entries(perCost).flatMap(([name, one]) => perCostText(names.unit(name), one, level))];
}

/** Says what the policy earns for the same money: more reward at a higher cost may be worse. */
function perCostText(unit, { value, lower, upper }, level) {
  if (value === null) return [];
  const sure = lower === null ? "too few outcomes for an interval"
    : `${lower > 0 || upper < 0 ? "" : "not "}significant at ${percent(level, 1)}`;
  return ["Per ", h("b", {}, unit), " it earns ",
    h("b", {}, `${figure(Math.abs(value))} ${value < 0 ? "less" : "more"}`), ` (${sure}). `];
}

function shadowElements(report, names) {
  const shown = [...report.arms].sort((a, b) => b.did + b.would_have - a.did - a.would_have);
  const share = (count) => [whole(count), " ", h("small", {}, `(${percent(count / report.decisions, 1)})`)];
  const columns = [
    ["Arm", (arm) => h("b", { title: arm.id }, arm.id === null ? "no arm" : names.arm(arm.id))],
    ["Played", (arm) => share(arm.did), "number"],
    ["Policy's choice", (arm) => share(arm.would_have), "number"],
    ["Difference", (arm) => signed(arm.would_have - arm.did), "number"],
  ];
  const rest = shown.length - ARMS_SHOWN;
  if (!report.decisions) return [h("p", {}, "No decisions yet.")];
  return [
    h("p", { class: "verdict" }, "The policy would have chosen the same arm in ",
      h("b", {}, percent(report.agreement, 1)), ` of the latest ${counted(report.decisions, "decision")}.`),
    h("dl", { class: "facts big below" },
      fact(["Expected reward per decision", figure(report.expected_reward)]),
      fact(["Expected cost per decision", amounts(report.expected_cost, names.unit)])),
    table("Choices in shadow mode", columns, shown.slice(0, ARMS_SHOWN), paired),
    rest > 0 ? h("p", { class: "note" }, `and ${whole(rest)} more arms`) : "",
    h("p", { class: "note" }, "Expected reward and cost are predicted by the policy for its own choices."),
  ];
}
