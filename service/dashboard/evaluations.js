// The evaluations of a campaign, their progress, the report of one, and the form for a new one.

import { adminPath, request } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { evaluationReport, namesOf, requestText } from "./report.js";
import { newest } from "./tables.js";
import { armNames, fullMoment, moment, percent, withUnit } from "./format.js";

const LISTED = 5;
const RUNNING_SECONDS = 1;
const IDLE_SECONDS = 6;

const isOver = (one) => one.status === "done" || one.status === "failed";

/** Returns the section's body; the page calls `load` every `seconds()`. `config()` is the campaign's configuration. */
export function evaluationsList(id, { notify, failed, config }) {
  const path = adminPath(id, "evaluations");
  const report = h("div", { class: "report" });
  const heading = h("h3", { tabindex: "-1" });
  const progress = h("progress", { max: 1, "aria-label": "Progress of the evaluation" });
  const waiting = h("div", { class: "card" }, heading, progress);
  let items = [];
  let chosen = null;
  let reported = null; // the one whose report is complete: { id, charts }
  let running = null; // the id of the one last shown as running

  const listed = newest({
    label: "Evaluations", path, limit: LISTED, key: "id", failed, columns: columns(choose, (one) => requestText(one, namesOf(config()))),
    empty: "No evaluations yet.",
    loaded: (found) => {
      items = found;
    },
  });
  const element = h("div", {}, listed.element, report);

  async function load() {
    const begin = performance.now();
    await listed.load();
    chosen ??= items[0]?.id ?? null;
    const complete = chosen === null || reported?.id === chosen;
    const view = complete ? null : await request(`${path}/${encodeURIComponent(chosen)}`);
    const took = performance.now() - begin;
    mark();
    // Another one may have been chosen during the request.
    if (view?.id === chosen && reported?.id !== chosen) await show(view);
    return took;
  }

  function mark() {
    for (const button of listed.element.querySelectorAll("button[data-evaluation]")) {
      const pressed = button.dataset.evaluation === chosen;
      button.setAttribute("aria-pressed", String(pressed));
      button.closest("tr").classList.toggle("chosen", pressed);
    }
  }

  async function show(view) {
    reported?.charts.forEach((one) => one.close());
    reported = null;
    if (!isOver(view)) {
      running = view.id;
      setText(heading, `${requestText(view.request, namesOf(config()))}: ${statusText(view)}`);
      progress.value = view.progress;
      if (!waiting.isConnected) report.replaceChildren(waiting);
      return;
    }
    if (running === view.id) notify(view.status === "done" ? "The evaluation is done." : "The evaluation failed.");
    running = null;
    const made = evaluationReport(view, namesOf(config()));
    reported = { id: view.id, charts: made.charts };
    report.replaceChildren(...made.elements);
    await made.draw();
  }

  async function choose(one) {
    chosen = one.id;
    mark();
    try {
      await load();
      report.querySelector("h3")?.focus();
    } catch (error) {
      failed(error);
    }
  }

  return {
    element,
    load,
    seconds() {
      const complete = chosen === null || reported?.id === chosen;
      return complete && items.every(isOver) ? IDLE_SECONDS : RUNNING_SECONDS;
    },
    charts: () => reported?.charts ?? [],
    follow(evaluation) {
      chosen = evaluation.id;
      listed.reset();
    },
  };
}

function statusText(one) {
  if (one.status === "running") return `running, ${percent(one.progress)}`;
  return one.status === "failed" && one.error ? `failed: ${one.error.code}` : one.status;
}

function columns(choose, textOf) {
  const button = (one) => h("button", {
    type: "button", dataset: { evaluation: one.id }, "aria-pressed": "false",
    "aria-label": `Show the report of ${textOf(one.request)}, requested at ${moment(one.created_at)}`,
    onclick: () => choose(one),
  }, "Show");
  return [
    ["Requested", (one) => h("span", { title: fullMoment(one.created_at) }, moment(one.created_at)), "short"],
    ["Evaluation", (one) => textOf(one.request), "why"],
    ["Status", (one) => h("span", { class: one.status === "failed" ? "bad" : null }, statusText(one)), "short"],
    ["Report", button],
  ];
}

function choice(id, values, none) {
  const nothing = none === undefined ? [] : [h("option", { value: "" }, none)];
  return h("select", { id }, nothing, values.map((value) => h("option", { value }, value)));
}

/** Opens the form for a new evaluation; calls `done(evaluation)` once the service has accepted it. */
export function newEvaluation(campaign, done) {
  const title = `New evaluation of ${campaign.id}`;
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const complain = (message) => {
    wrong.textContent = message;
    wrong.hidden = false;
  };
  const nameOf = armNames(campaign.config);
  const arms = campaign.config.arms.map(({ id }) => h("option", { value: id }, nameOf(id)));
  const arm = h("select", { id: "evaluation-arm" }, h("option", { value: "" }, "none"), arms);
  const uniform = h("input", { type: "checkbox", id: "evaluation-uniform", checked: true });
  const preset = choice("evaluation-preset", ["practical", "paper", "authors"], "none");
  const oracle = choice("evaluation-oracle", ["newton", "gradient", "aggregate", "kernel"]);
  const own = h("input", { type: "checkbox", id: "evaluation-own" });
  const budgets = campaign.accounts.map((account) => ({
    account,
    input: h("input", {
      type: "number", id: `evaluation-budget-${account.id}`, value: account.granted, step: "any", min: 1e-6, max: 9e9,
      required: true, inputmode: "decimal",
    }),
  }));
  const start = h("button", { type: "submit", class: "primary" }, "Start");
  const submit = async (event) => {
    event.preventDefault();
    const changed = budgets.filter(({ account, input }) => Number(input.value) !== account.granted);
    const candidates = [
      ...(arm.value ? [{ type: "fixed", arm: arm.value }] : []),
      ...(uniform.checked ? [{ type: "uniform" }] : []),
      ...(preset.value
        ? [{ type: "policy", policy: { preset: preset.value, oracle: { kind: oracle.value } } }]
        : []),
    ];
    if (!candidates.length && !own.checked) return complain("Choose at least one policy.");
    start.disabled = true;
    wrong.hidden = true;
    try {
      const body = {
        candidates, what_if: own.checked,
        budgets: Object.fromEntries(changed.map(({ account, input }) => [account.id, Number(input.value)])),
      };
      const evaluation = await request(adminPath(campaign.id, "evaluations"), { method: "POST", body });
      dialog.close();
      done(evaluation);
    } catch (error) {
      complain(error.message);
      start.disabled = false;
    }
  };
  const checkbox = (input, label) => h("label", { class: "check", for: input.id }, input, ` ${label}`);
  const dialog = openDialog(title, {}, h(
    "form",
    { onsubmit: submit },
    h("h2", {}, title),
    h("p", {}, "Estimates from the log what other policies or budgets would have earned. The campaign continues."),
    h("div", { class: "field" }, h("label", { for: arm.id }, "Always the same arm"), arm),
    checkbox(uniform, "All arms equally often"),
    h("div", { class: "field" },
      h("label", { for: preset.id }, "Another policy, trained along the log"), preset,
      h("label", { for: oracle.id }, "Its oracle"), oracle),
    checkbox(own, "Its own policy, with the budgets below"),
    budgets.map(({ account, input }) =>
      h("div", { class: "field" },
        h("label", { for: input.id }, `Budget of ${account.id}`), input,
        h("small", {}, `currently ${withUnit(account.granted, account)}`))),
    wrong,
    h("div", { class: "answers" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), start),
  ));
}
