// The explanation of one decision: the request, the predictions for every arm, the outcome.

import { adminPath, campaignPath, request } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import {
  REASONS, STATUSES, WHY_NOT, amounts, armNames, counted, figure, fullMoment, moment, percent, unitNames, whole,
} from "./format.js";
import { badged, table } from "./tables.js";

/** Shows a decision in a dialog; calls `closed` when that is closed. */
export async function explain(campaignId, decisionId, closed) {
  const body = h("div", {}, h("p", {}, "Loading…"));
  const dialog = openDialog(
    `Decision ${decisionId}`,
    { wide: true, closed },
    h("div", { class: "dialog-head" },
      h("h2", {}, "Why this arm?"), h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
    body,
  );
  try {
    const path = adminPath(campaignId, `decisions/${encodeURIComponent(decisionId)}`);
    const [decided, { config }] = await Promise.all([request(path), request(campaignPath(campaignId))]);
    body.replaceChildren(...elementsOf(decided, {
      arm: armNames(config), unit: unitNames(config), holdout: Boolean(config.holdout),
    }));
  } catch (error) {
    body.replaceChildren(h("p", { class: "wrong", role: "alert" }, error.message));
  }
  return dialog;
}

function elementsOf(decided, names) {
  return [
    h("p", { class: "verdict" }, ...verdict(decided, names)),
    facts({
      Decision: decided.decision_id,
      Round: whole(decided.round),
      Time: h("span", { title: fullMoment(decided.decided_at) }, moment(decided.decided_at)),
      Status: STATUSES[decided.status] ?? decided.status,
      Hold: amounts(decided.hold, names.unit),
      "Learnt before": counted(decided.policy_version, "outcome"),
    }),
    h("h3", {}, "Arms"),
    ...armsOf(decided, names),
    h("h3", {}, "Request"),
    facts(context(decided, names)),
    h("h3", {}, "Outcomes"),
    ...outcomes(decided, names),
  ];
}

function verdict(decided, names) {
  const reason = REASONS[decided.reason] ?? decided.reason;
  if (decided.arm === null && decided.reason !== "policy") return [h("b", {}, "No arm"), `: ${reason}.`];
  return [h("b", {}, decided.arm === null ? "No arm" : names.arm(decided.arm)), `, ${reason} with probability ${percent(decided.probability, 1)}.`];
}

function facts(pairs) {
  const rows = Object.entries(pairs).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  return h("dl", { class: "facts" }, rows);
}

function context(decided, names) {
  const given = Array.isArray(decided.context) ? { context: decided.context.join(", ") } : decided.context;
  const pairs = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, String(value)]));
  if (decided.exclude.length) pairs["excluded by the request"] = decided.exclude.map(names.arm).join(", ");
  if (decided.max_cost) pairs["max cost of the request"] = amounts(decided.max_cost, names.unit);
  for (const [arm, costs] of Object.entries(decided.max_costs ?? {})) pairs[`max cost of ${names.arm(arm)}`] = amounts(costs, names.unit);
  return pairs;
}

function armsOf(decided, names) {
  const { arms, prices, gamma } = decided.explanation;
  if (!arms.length) return [h("p", {}, "There are too many arms to store the predictions for each.")];
  const priced = (arm) => Object.entries(arm.cost).reduce((sum, [name, cost]) => sum + prices[name] * cost, 0);
  const rows = [...arms].sort((a, b) => b.probability - a.probability || b.score - a.score);
  const nullProbability = Math.max(0, 1 - arms.reduce((sum, arm) => sum + arm.probability, 0));
  // The null arm has no reward and no cost: its score is the constant that every score contains.
  const nullScore = arms[0].score - arms[0].reward + priced(arms[0]);
  const scores = arms.filter((arm) => arm.eligible).map((arm) => arm.score);
  // A null arm with a better score than all others and no probability is one of last resort: it does not compete.
  if (nullProbability > 1e-9 || !(nullScore > Math.max(...scores))) scores.push(nullScore);
  const best = Math.max(...scores);
  const shown = [
    ...rows.map((arm) => ({
      ...arm, priced: priced(arm), chosen: arm.id === decided.arm, best: arm.score === best && arm.eligible,
    })),
    {
      id: null, reward: 0, cost: {}, priced: 0, score: nullScore, probability: nullProbability,
      chosen: decided.arm === null, best: nullScore === best, why_not: null, eligible: true,
    },
  ];
  const columns = [
    ["Arm", (arm) => h("span", { title: arm.id },
      badged(arm.id === null ? "no arm" : names.arm(arm.id), arm.chosen && "chosen"))],
    ["Predicted reward", (arm) => figure(arm.reward), "number"],
    ["Predicted cost", (arm) => amounts(arm.cost, names.unit)],
    ["Priced cost", (arm) => figure(arm.priced), "number"],
    ["Score", (arm) => h("span", { class: arm.best ? "best" : null }, figure(arm.score)), "number"],
    ["Probability", (arm) => probability(arm.probability), "number"],
    ["Why not", (arm) => whyNot(arm, best), "why"],
  ];
  const quoted = Object.entries(prices).map(([name, price]) => `${figure(price)} per ${names.unit(name)}`).join(", ");
  return [
    table("Arms of this decision", columns, shown, (arm) => ({ class: arm.chosen ? "chosen" : null })),
    h("p", { class: "note" },
      "Score = predicted reward − priced cost + a constant that is the same for all arms. ",
      `Priced cost = Σ price × predicted cost, with prices ${quoted || "0"}. `,
      "The arm with the best score has the highest probability; the further an arm is behind, the lower it is ",
      `(γ = ${figure(gamma)}). ${names.holdout ? "The hold-out adds its share to its baseline. " : ""}`,
      "Rewards are scaled to 0–1."),
  ];
}

function whyNot(arm, best) {
  if (arm.why_not) return WHY_NOT[arm.why_not] ?? arm.why_not;
  if (arm.best || !Number.isFinite(best)) return arm.best ? "has the best score" : "";
  if (arm.score > best) return "last resort";
  if (arm.id === null && arm.probability < 1e-9) return "played only where it has the best score";
  return arm.score < best ? `${figure(best - arm.score)} behind the best score` : "as good as the best";
}

function probability(share) {
  const fill = h("span", { class: "part spent" });
  fill.style.setProperty("width", `${100 * share}%`);
  const bar = h("span", { class: "bar thin", "aria-hidden": "true" }, fill);
  return h("span", { class: "chance" }, bar, percent(share, 1));
}

function outcomes(decided, names) {
  if (decided.arm === null) return [h("p", {}, "No arm was played, so no outcome is expected.")];
  if (!decided.outcomes.length) return [h("p", {}, `None yet. The hold expires at ${moment(decided.expires_at)}.`)];
  const columns = [
    ["Time", (one) => moment(one.at)],
    ["Kind", (one) => one.kind],
    ["Reward", (one) => figure(one.reward), "number"],
    ["Costs", (one) => (one.costs ? amounts(one.costs, names.unit) : "–")],
    ["Learnt", (one) => (one.learned ? "yes" : "no")],
    ["Warnings", (one) => one.warnings.join(", ").replaceAll("_", " ") || "–"],
  ];
  return [table("Outcomes of this decision", columns, decided.outcomes)];
}
