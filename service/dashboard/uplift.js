// What the policy does beyond a baseline: beside a hold-out, or in the shadow of somebody else's choices.

import { h } from "./dom.js";
import { badged, fact, table } from "./tables.js";
import { amounts, figure, interval, movedBy, percent, whole } from "./words.js";

const ARMS_SHOWN = 50;
// On a phone, two figures beside each other.
const paired = () => ({ class: "pairs" });

/** Whether a campaign has anything to compare with. */
export const isCompared = (config) => Boolean(config.holdout) || config.mode === "shadow";

/** What that section is called. */
export const comparedTitle = (config) => (config.holdout ? "Uplift over the hold-out" : "What it would have done");

/** The section's body, with `update(answer)`. */
export function upliftReport() {
  const element = h("div", { class: "card" }, h("p", {}, "Loading…"));
  function update({ holdout, shadow }) {
    element.replaceChildren(...(holdout ? holdoutParts(holdout) : []), ...(shadow ? shadowParts(shadow) : []));
  }
  return { element, update };
}

const groupWords = (group) =>
  `${whole(group.decisions)} decisions, ${whole(group.plays)} plays, ${whole(group.open)} of them without an outcome`;

function holdoutParts(report) {
  const { policy, holdout } = report.groups;
  const { reward, costs } = report.uplift;
  const row = (name, of, difference) => ({ name, policy: of(policy), holdout: of(holdout), difference });
  const rows = [
    row("reward", (group) => group.mean_reward, reward),
    ...Object.entries(costs).map(([name, difference]) => row(name, (group) => group.mean_cost?.[name], difference)),
  ];
  const columns = [
    ["Mean per decision", (one) => h("b", {}, one.name)],
    ["Policy", (one) => figure(one.policy), "number"],
    ["Hold-out", (one) => figure(one.holdout), "number"],
    ["Difference", (one) => movedBy(one.difference.value), "number"],
    [`${percent(report.level, 1)} interval`, (one) => interval(one.difference.lower, one.difference.upper), "number"],
  ];
  return [
    h("p", { class: "verdict" }, ...holdoutVerdict(report)),
    h("dl", { class: "facts big below" },
      fact(["Policy", groupWords(policy)]),
      fact([`Hold-out: ${percent(report.fraction, 1)} get ${report.arm ?? "no arm"}`, groupWords(holdout)])),
    table("Uplift over the hold-out", columns, rows, paired),
    h("p", { class: "note" }, "Means are over decisions whose outcome was learnt and those that played nothing. ",
      "Decisions in which nothing could be played are on neither side."),
  ];
}

function holdoutVerdict({ arm, level, uplift: { reward, relative } }) {
  const baseline = arm === null ? "showing nothing" : `always ${arm}`;
  if (reward.value === null) return [`There are too few outcomes yet to compare with ${baseline}.`];
  const known = reward.lower !== null && reward.upper !== null;
  const share = relative === null ? "" : ` (${percent(Math.abs(relative), 1)})`;
  const words = [
    "The policy earns ", h("b", {}, `${figure(Math.abs(reward.value))} ${reward.value < 0 ? "less" : "more"}${share}`),
    ` per decision than ${baseline}`,
  ];
  if (!known) return [...words, ". There are too few outcomes yet to say how sure that is."];
  const chance = reward.lower <= 0 && reward.upper >= 0;
  const sure = chance ? "this may be chance" : "this is more than chance";
  return [...words, `; ${sure}, at ${percent(level, 1)}.`];
}

function shadowParts(report) {
  const shown = [...report.arms].sort((a, b) => b.did + b.would_have - a.did - a.would_have);
  const share = (count) => [whole(count), " ", h("small", {}, `(${percent(count / report.decisions, 1)})`)];
  const columns = [
    ["Arm", (arm) => badged(arm.id ?? "no arm", false)],
    ["Was played", (arm) => share(arm.did), "number"],
    ["It would have played", (arm) => share(arm.would_have), "number"],
    ["Difference", (arm) => movedBy(arm.would_have - arm.did), "number"],
  ];
  const rest = shown.length - ARMS_SHOWN;
  if (!report.decisions) return [h("p", {}, "Nothing was decided yet, so there is nothing to compare.")];
  return [
    h("p", { class: "verdict" }, "In shadow mode: the policy would have done the same in ",
      h("b", {}, percent(report.agreement, 1)), ` of the newest ${whole(report.decisions)} decisions.`),
    h("dl", { class: "facts big below" },
      fact(["Expected reward per decision", figure(report.expected_reward)]),
      fact(["Expected cost per decision", amounts(report.expected_cost)])),
    table("What shadow mode would have done", columns, shown.slice(0, ARMS_SHOWN), paired),
    rest > 0 ? h("p", { class: "note" }, `and ${whole(rest)} arms more`) : "",
    h("p", { class: "note" }, "Reward and cost are what the policy itself foretells of what it would have done."),
  ];
}
