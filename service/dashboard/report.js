// The report of one evaluation: estimates for other policies and other budgets.

import { chart, flightsFigure } from "./charts.js";
import { h } from "./dom.js";
import { fact, table } from "./tables.js";
import { amounts, armNames, capitalized, counted, duration, figure, interval, moment, percent, unitNames, whole } from "./format.js";

const ESTIMATORS = [["Doubly robust", "dr"], ["Self-normalised", "snips"], ["Inverse propensity", "ips"]];

const LEFT_OUT = {
  unsettled: "still open",
  untaught: "void, expired or not learnt",
  actions: "with actions of their own",
  older: "older than the requested rounds",
  pruned: "pruned",
};

// With fewer effective rounds an estimate of a whole flight says nothing.
const EFFECTIVE_ROUNDS_MIN = 100;

/** Returns the names of a configuration's arms and units. */
export const namesOf = (config) => ({ arm: armNames(config), unit: unitNames(config) });

function candidateText(candidate, names) {
  if (candidate.type === "fixed") return `always ${names.arm(candidate.arm)}`;
  if (candidate.type === "uniform") return "all arms equally often";
  const kind = [candidate.policy?.preset, candidate.policy?.oracle?.kind].filter(Boolean).join(", ");
  return kind ? `another policy (${kind})` : "another policy";
}

/** Returns a request as one line. */
export function requestText(request, names) {
  const policies = [...request.candidates.map((one) => candidateText(one, names)), ...(request.what_if ? ["its own policy"] : [])];
  const budgets = Object.keys(request.budgets).length ? ` with ${amounts(request.budgets, names.unit)}` : "";
  return capitalized(policies.join("; ") + budgets);
}

/** Returns the elements and charts of a finished evaluation, and `draw` to call once they are on the page. */
export function evaluationReport(view, names) {
  const head = h("div", { class: "card" }, h("h3", { tabindex: "-1" }, requestText(view.request, names)));
  if (view.status === "failed") {
    const { code, message } = view.error;
    head.append(h("p", { class: "wrong" }, `The evaluation failed: ${message} (${code}).`));
    return { elements: [head], charts: [], draw: async () => {} };
  }
  const { result } = view;
  head.append(...headElements(view, result, names));
  const candidates = result.candidates.map((one) => candidateCard(one, result, names));
  const flights = result.what_if ? flightsCard(result, names) : null;
  return {
    elements: [head, ...candidates, ...(flights ? [flights.element] : [])],
    charts: flights?.charts ?? [],
    draw: flights?.draw ?? (async () => {}),
  };
}

function headElements(view, result, names) {
  const leftOut = Object.entries(result.left_out).filter(([, count]) => count > 0);
  const leftOutText = leftOut.map(([why, count]) => `${whole(count)} ${LEFT_OUT[why] ?? why}`).join(", ");
  const took = (Date.parse(view.finished_at) - Date.parse(view.started_at)) / 1000;
  const shown = [
    ["Rounds of the log", whole(result.rounds)],
    ["Left out", leftOutText || "none"],
    ["As logged, per round", `${figure(result.logged.reward)} reward, ${amounts(result.logged.costs, names.unit)}`],
    ["Budgets", amounts(result.budgets, names.unit)],
    ["Finished", `${moment(view.finished_at)}, after ${duration(took)}`],
  ];
  return [
    h("dl", { class: "facts big below" }, shown.map(fact)),
    ...(result.candidates.length ? [h("p", { class: "note" }, result.restriction), h("p", { class: "note" },
      `Below each estimate are its ${percent(result.level, 1)} intervals: by bootstrap, extended to a confidence `,
      "sequence, and by empirical Bernstein, which is wider and valid for any number of rounds. ",
      result.candidates[0].validity ?? "")] : []),
  ];
}

function candidateCard(one, result, names) {
  const { estimates } = one;
  const costs = Object.entries(result.logged.costs);
  const quantity = (name, logged, of) => ({ name, logged, of: (estimator) => of(estimates[estimator]) });
  const rows = [
    quantity("reward", result.logged.reward, (found) => found.reward),
    ...costs.map(([name, logged]) => quantity(names.unit(name), logged, (found) => found.costs[name])),
  ];
  const columns = [
    ["Per round", (row) => h("b", {}, row.name)],
    ["As logged", (row) => figure(row.logged), "number"],
    ...ESTIMATORS.map(([title, name]) => [title, (row) => estimateCell(row.of(name)), "number"]),
  ];
  const name = capitalized(candidateText(one.candidate, names));
  const warnings = one.warnings.map(({ text }) => h("li", { dataset: { level: "warning" } }, `${capitalized(text)}.`));
  return h(
    "article",
    { class: "card", "aria-label": name },
    h("h3", { class: "candidate" }, name),
    verdict(one, result),
    h("p", { class: "note" }, `Effective sample size ${figure(one.effective_sample_size)} of ${whole(result.rounds)}.`),
    warnings.length ? h("ul", { class: "reasons", "aria-label": `Cautions: ${name}` }, warnings) : null,
    table(`Estimates: ${name}`, columns, rows, () => ({ class: "pairs" })),
  );
}

function verdict(one, { rounds }) {
  const effective = one.effective_sample_size;
  if (effective >= EFFECTIVE_ROUNDS_MIN) return h("p", { class: "verdict" }, one.summary);
  return h("p", { class: "scarce" }, notEnough(effective, rounds));
}

const notEnough = (effective, rounds) =>
  `Not enough data: ${counted(Math.round(effective), "effective round")} of ${whole(rounds)} in the log, and at least ` +
  `${whole(EFFECTIVE_ROUNDS_MIN)} are needed.`;

function estimateCell(found) {
  const line = (name, [lower, upper]) => h("small", { title: `${name} interval` }, interval(lower, upper));
  return h(
    "span", { class: "estimate", title: `standard error ${figure(found.error)}` },
    h("span", {}, figure(found.value)),
    line("bootstrap", found.bootstrap),
    line("empirical Bernstein", found.bernstein),
  );
}

function flightsCard({ what_if: whatIf, budgets, rounds: count }, { unit }) {
  if (count < EFFECTIVE_ROUNDS_MIN) {
    const element = h("article", { class: "card", "aria-label": "Its own policy" },
      h("h3", { class: "candidate" }, "Its own policy"), h("p", { class: "scarce" }, notEnough(count, count)));
    return { element, charts: [], draw: async () => {} };
  }
  const { rounds, changed, control, actual } = whatIf;
  const end = ({ value, lower, upper }) => `${figure(value, 4)} (${interval(lower, upper, 4)})`;
  const places = [];
  const place = (title, label, of, budget = null) => {
    const drawn = chart(label);
    const lines = { changed: of(changed), control: of(control), actual: of(actual) };
    places.push({ drawn, figure: flightsFigure(rounds, lines, budget) });
    return h("div", {}, h("h3", {}, title), drawn.element);
  };
  const reward = place("Cumulative reward", "Reward over the rounds of the log", (one) => one.reward);
  const perResource = Object.keys(changed.spent).flatMap((name) => [
    place(`Cumulative ${unit(name)} spent`, `${name} spent over the rounds`, (one) => one.spent[name], budgets[name]),
    place(`Value of one more ${unit(name)}, in reward`, `Value of one more ${name} over the rounds`,
      (one) => one.marginal_value?.[name] ?? null),
  ]);
  const shown = [
    ["Reward with these budgets", end(changed.reward_at_end)],
    ["With its own budgets, by the same method", end(control.reward_at_end)],
    ["As logged", figure(actual.reward.at(-1), 4)],
    ["Same arm as in the log", `${percent(changed.matched)}; with its own budgets ${percent(control.matched)}`],
  ];
  const element = h(
    "article", { class: "card", "aria-label": "Its own policy" },
    h("h3", { class: "candidate" }, "Its own policy"),
    h("dl", { class: "facts big below" }, shown.map(fact)),
    reward,
    h("div", { class: "cards-grid" }, perResource),
    h("p", { class: "note" }, whatIf.assumption),
  );
  return {
    element,
    charts: places.map(({ drawn }) => drawn),
    draw: () => Promise.all(places.map(({ drawn, figure: one }) => drawn.show(one))),
  };
}
