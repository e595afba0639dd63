// What if: what was asked of the log, how far that is, and the report of one of the answers.

import { adminPath, ask } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { askedWords, evaluationReport } from "./evaluation.js";
import { newest } from "./tables.js";
import { amount, fullMoment, moment, percent } from "./words.js";

const LISTED = 5;
const RUNNING_SECONDS = 1;
const QUIET_SECONDS = 6;

const isOver = (one) => one.status === "done" || one.status === "failed";

/** The section's body; `load` keeps it up to date, every `seconds()`. */
export function whatIf(id, { told, failed }) {
  const path = adminPath(id, "evaluations");
  const report = h("div", { class: "report" });
  const heading = h("h3", { tabindex: "-1" });
  const progress = h("progress", { max: 1, "aria-label": "Progress of the evaluation" });
  const waiting = h("div", { class: "card" }, heading, progress);
  let items = [];
  let chosen = null;
  let reported = null; // the one whose report is complete: { id, charts }
  let runs = null; // the one that was seen running

  const listed = newest({
    label: "Evaluations", path, limit: LISTED, key: "id", failed, columns: columns(choose),
    empty: "Nothing was asked of the log yet.",
    heard: (found) => {
      items = found;
    },
  });
  const element = h("div", {}, listed.element, report);

  async function load() {
    const started = performance.now();
    await listed.load();
    chosen ??= items[0]?.id ?? null;
    const view = chosen === null || reported?.id === chosen ? null : await ask(`${path}/${encodeURIComponent(chosen)}`);
    const asked = performance.now() - started;
    mark();
    // Another one may have been chosen meanwhile.
    if (view?.id === chosen && reported?.id !== chosen) await show(view);
    return asked;
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
      runs = view.id;
      setText(heading, `${askedWords(view.request)}: ${statusWords(view)}`);
      progress.value = view.progress;
      if (!waiting.isConnected) report.replaceChildren(waiting);
      return;
    }
    if (runs === view.id) told(view.status === "done" ? "The evaluation is done." : "The evaluation failed.");
    runs = null;
    const made = evaluationReport(view);
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
      return complete && items.every(isOver) ? QUIET_SECONDS : RUNNING_SECONDS;
    },
    charts: () => reported?.charts ?? [],
    follow(evaluation) {
      chosen = evaluation.id;
      listed.fresh();
    },
  };
}

function statusWords(one) {
  if (one.status === "running") return `running, ${percent(one.progress)}`;
  return one.status === "failed" && one.error ? `failed: ${one.error.code}` : one.status;
}

function columns(choose) {
  const button = (one) => h("button", {
    type: "button", dataset: { evaluation: one.id }, "aria-pressed": "false",
    "aria-label": `Show what came of ${askedWords(one.request)}, asked at ${moment(one.created_at)}`,
    onclick: () => choose(one),
  }, "Show");
  return [
    ["Asked at", (one) => h("span", { title: fullMoment(one.created_at) }, moment(one.created_at)), "short"],
    ["What if", (one) => askedWords(one.request), "why"],
    ["Status", (one) => h("span", { class: one.status === "failed" ? "bad" : null }, statusWords(one)), "short"],
    ["Report", button],
  ];
}

function choice(id, values, none) {
  const nothing = none === undefined ? [] : [h("option", { value: "" }, none)];
  return h("select", { id }, nothing, values.map((value) => h("option", { value }, value)));
}

/** The form that starts an evaluation; `done(evaluation)` is called once the service has taken it. */
export function askWhatIf(campaign, done) {
  const title = `Ask the log of ${campaign.id}`;
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const say = (words) => {
    wrong.textContent = words;
    wrong.hidden = false;
  };
  const arms = campaign.config.arms.map((arm) => h("option", { value: arm.id }, arm.id));
  const arm = h("select", { id: "ask-arm" }, h("option", { value: "" }, "none"), arms);
  const uniform = h("input", { type: "checkbox", id: "ask-uniform", checked: true });
  const preset = choice("ask-preset", ["practical", "paper", "authors"], "none");
  const oracle = choice("ask-oracle", ["newton", "gradient", "aggregate", "kernel"]);
  const own = h("input", { type: "checkbox", id: "ask-own" });
  const budgets = campaign.accounts.map((account) => ({
    account,
    input: h("input", {
      type: "number", id: `ask-budget-${account.id}`, value: account.granted, step: "any", min: 1e-6, max: 9e9,
      required: true, inputmode: "decimal",
    }),
  }));
  const start = h("button", { type: "submit", class: "primary" }, "Ask");
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
    if (!candidates.length && !own.checked) return say("Choose an arm, all arms alike, a policy, or its own.");
    start.disabled = true;
    wrong.hidden = true;
    try {
      const body = {
        candidates, what_if: own.checked,
        budgets: Object.fromEntries(changed.map(({ account, input }) => [account.id, Number(input.value)])),
      };
      const evaluation = await ask(adminPath(campaign.id, "evaluations"), { method: "POST", body });
      dialog.close();
      done(evaluation);
    } catch (error) {
      say(error.message);
      start.disabled = false;
    }
  };
  const checked = (input, words) => h("label", { class: "check", for: input.id }, input, ` ${words}`);
  const dialog = openDialog(title, {}, h(
    "form",
    { onsubmit: submit },
    h("h2", {}, title),
    h("p", {}, "What would have come of it? A process of its own works that out; the campaign goes on as it is."),
    h("div", { class: "field" }, h("label", { for: arm.id }, "Always the same arm"), arm),
    checked(uniform, "All arms alike"),
    h("div", { class: "field" },
      h("label", { for: preset.id }, "Another policy, which learns along the log"), preset,
      h("label", { for: oracle.id }, "Its oracle"), oracle),
    checked(own, "Its own policy again, with the budgets below"),
    budgets.map(({ account, input }) =>
      h("div", { class: "field" },
        h("label", { for: input.id }, `Budget of ${account.id}`), input,
        h("small", {}, `it has ${amount(account.granted)}`))),
    wrong,
    h("div", { class: "answers" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), start),
  ));
}
