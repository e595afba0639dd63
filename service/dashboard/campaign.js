// The page of one campaign: budgets, prices, arms, feedback, evaluations, decisions and ledger.

import { adminPath, campaignPath, now, request } from "./api.js";
import { LEVELS, attentionOf } from "./attention.js";
import { resourceBar } from "./bars.js";
import { changeButtons } from "./changes.js";
import { burnFigure, chart, flightAxis, lossFigure, priceFigure, shareFigure } from "./charts.js";
import { h, setChildren, setText } from "./dom.js";
import { openDialog } from "./dialogs.js";
import { explain } from "./explain.js";
import { badged, fact, newest, table } from "./tables.js";
import { comparedTitle, isCompared, upliftReport } from "./uplift.js";
import { evaluationsList, newEvaluation } from "./evaluations.js";
import {
  MOVEMENTS, NO_ARM, STATUSES, amount, amounts, duration, figure, fullMoment, moment, movement, percent, whole,
} from "./format.js";

const SECONDS = 2;
// For figures over the whole log.
const SLOW_SECONDS = 6;
const POINTS = 120;
const ROWS = window.innerWidth < 640 ? 6 : 15;
// In rewards from 0 to 1: a whole budget worth less than this is not scarce.
const WORTH_MIN = 0.05;
// Share of the newest points that gives the recent rate.
const RECENT_SHARE = 0.25;

export function campaignPage(id, { watch, title, mayChange, notify, failed }) {
  const heading = h("h1", { tabindex: "-1" }, id);
  const status = h("span", { class: "status" });
  const facts = h("p", { class: "flight" });
  const buttons = h("div", { class: "buttons" });
  const reasons = h("ul", { class: "reasons", "aria-label": "Warnings" });
  const cards = h("div", { class: "cards-grid" });
  const resources = new Map();
  const arms = armsSection();
  const feedback = feedbackSection();
  const decisions = newest({
    label: "Latest decisions", path: adminPath(id, "decisions"), limit: ROWS, key: "decision_id",
    empty: "No decisions yet.", columns: decisionColumns(id), failed,
  });
  const ledger = newest({
    label: "Ledger", path: adminPath(id, "ledger"), limit: ROWS, key: "sequence", empty: "No entries yet.",
    columns: LEDGER_COLUMNS, failed,
  });
  const check = h("button", { type: "button", onclick: () => verify(id, failed) }, "Verify accounts");
  const uplift = upliftReport();
  const upliftSection = section("uplift", "Uplift", uplift.element);
  const evaluations = evaluationsList(id, { notify, failed });
  const newButton = mayChange &&
    h("button", { type: "button", onclick: () => newEvaluation(campaign, started) }, "New evaluation…");
  const evaluationsSection = section("evaluations", "Evaluations", evaluations.element, newButton);
  upliftSection.hidden = evaluationsSection.hidden = true;
  const watched = new Map();
  let campaign = null;
  let buttonsFor = "";
  let closed = false;

  async function load() {
    const begin = performance.now();
    const [found, budget] = await Promise.all([
      request(campaignPath(id)),
      request(adminPath(id, "budget")),
      decisions.load(),
      ledger.load(),
    ]);
    const took = performance.now() - begin;
    campaign = found;
    showHead(found, budget);
    showIf(isCompared(found.config), upliftSection, loadUplift, SLOW_SECONDS);
    setText(upliftSection.querySelector("h2"), comparedTitle(found.config));
    // A campaign without arms of its own has no log of them.
    showIf(found.config.arms.length > 0, evaluationsSection, evaluations.load, evaluations.seconds);
    for (const account of budget.resources) resourceCard(account.id).update(account, budget, found);
    setChildren(cards, budget.resources.map((account) => resourceCard(account.id).element));
    return took;
  }

  /** Shows a section that not every campaign has, and polls it from then on. */
  function showIf(wanted, shown, loadIt, seconds) {
    shown.hidden = !wanted;
    if (!wanted || closed || watched.has(shown)) return;
    watched.set(shown, watch(loadIt, seconds));
    watched.get(shown).now();
  }

  function started(evaluation) {
    evaluations.follow(evaluation);
    watched.get(evaluationsSection).now();
  }

  function showHead(found, budget) {
    status.dataset.status = found.status;
    setText(status, found.status);
    const { starts_at: start_at, ends_at: end_at, horizon } = found.config;
    const start = found.status === "scheduled" ? `Starts ${moment(start_at)}. ` : "";
    const end = end_at ? `, ends ${moment(end_at)}` : ` of ${whole(horizon)} expected`;
    setText(facts, `${start}Round ${whole(found.round)}${end}; ${percent(budget.flight)} of the flight is over. ` +
      `${whole(found.policy_version)} outcomes learnt. Last event ${moment(budget.last_event_at)}.`);
    const { reasons: why } = attentionOf(budget, now());
    reasons.replaceChildren(...why.map((one) => h("li", { dataset: { level: LEVELS[one.level] } }, one.text)));
    reasons.hidden = !why.length;
    const state = JSON.stringify([found.status, found.version, found.accounts]);
    if (mayChange && state !== buttonsFor && !buttons.contains(document.activeElement)) {
      buttonsFor = state;
      buttons.replaceChildren(...changeButtons(found, changed));
    }
  }

  async function changed(message) {
    notify(message);
    buttonsFor = "";
    document.activeElement?.blur();
    await load();
  }

  function resourceCard(name) {
    if (!resources.has(name)) resources.set(name, makeResourceCard(name));
    return resources.get(name);
  }

  // Polled one by one: on a long log the timeline may exceed the time limit of the database.
  const slow = (path, show) => async () => {
    const begin = performance.now();
    const found = await request(adminPath(id, path));
    const took = performance.now() - begin;
    campaign ??= await request(campaignPath(id));
    await show(found);
    return took;
  };
  const loadLine = slow(`timeline?points=${POINTS}`, ({ items }) => {
    const axis = flightAxis(campaign.config, campaign.created_at);
    const cardsDrawn = campaign.accounts.map((account) => resourceCard(account.id).draw(items, axis, campaign));
    return Promise.all([...cardsDrawn, arms.draw(items, axis, campaign)]);
  });
  const loadArms = slow("arms", ({ items }) => arms.update(items));
  const loadUplift = slow("uplift", uplift.update);
  const loadFeedback = slow("feedback", (report) => feedback.update(report, campaign));

  const element = h(
    "div",
    { class: "one-campaign" },
    h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns")),
    h("div", { class: "campaign-head" }, h("div", { class: "line" }, heading, status), buttons),
    facts,
    reasons,
    section("budgets", "Budgets and prices", cards),
    section("arms", "Arms", arms.element),
    upliftSection,
    section("feedback", "Feedback and learning", feedback.element),
    evaluationsSection,
    section("decisions", "Latest decisions", decisions.element),
    section("ledger", "Ledger", ledger.element, check),
  );
  title(id);
  watch(load, SECONDS);
  for (const one of [loadLine, loadArms, loadFeedback]) watch(one, SLOW_SECONDS);
  const charts = () => [
    ...[...resources.values()].flatMap((card) => card.charts), ...arms.charts, ...feedback.charts,
    ...evaluations.charts(),
  ];
  return {
    element,
    heading,
    redraw: () => Promise.all(charts().map((one) => one.redraw())).catch(failed),
    close: () => {
      closed = true;
      charts().forEach((one) => one.close());
    },
  };
}

function section(name, title, body, button = null) {
  const heading = h("h2", { id: `h-${name}` }, title);
  return h("section", { "aria-labelledby": heading.id }, h("div", { class: "section-head" }, heading, button), body);
}

function makeResourceCard(name) {
  const bar = resourceBar();
  const numbers = h("dl", { class: "facts tight" });
  const worth = h("p", { class: "worth" });
  const outlook = h("p", { class: "outlook" });
  const burn = chart(`${name}: spending compared with an even pace`);
  const price = chart(`${name}: price over time`);
  price.element.classList.add("low");
  const element = h(
    "article",
    { class: "card", dataset: { resource: name } },
    bar.element, numbers, worth, outlook,
    h("h3", {}, "Spending compared with an even pace"), burn.element,
    h("h3", {}, "Price λ over time"), price.element,
  );

  function update(account, budget, campaign) {
    bar.update(account, budget.flight);
    const shown = {
      spent: amount(account.spent), held: amount(account.held), free: amount(account.free),
      ...(account.overrun > 0 ? { over: amount(account.overrun) } : {}),
    };
    numbers.replaceChildren(...Object.entries(shown).map(fact));
    worth.replaceChildren(...worthOf(name, campaign));
  }

  function draw(points, axis, campaign) {
    setText(outlook, outlookOf(points, name, axis));
    return Promise.all([
      burn.show(burnFigure(points, name, axis)),
      price.show(priceFigure(points, name, axis, rewardRange(campaign))),
    ]);
  }
  return { element, update, draw, charts: [burn, price] };
}

/** Converts prices, which are in rewards from 0 to 1, to the campaign's rewards. */
function rewardRange(campaign) {
  const { min, max } = campaign.config.reward;
  return max - min;
}

function worthOf(name, campaign) {
  const price = campaign.prices[name];
  if (price === undefined) return ["No price yet: there are no decisions."];
  const account = campaign.accounts.find((one) => one.id === name);
  // The value of the whole budget at this price.
  if (price * account.granted < WORTH_MIN) {
    return ["This budget is not scarce: one more unit of ", h("b", {}, name), " would earn almost nothing."];
  }
  const worth = h("b", { class: "price" }, figure(price * rewardRange(campaign)));
  return ["One more unit of ", h("b", {}, name), " is worth ", worth, " reward."];
}

/** Extrapolates the last quarter of the points to the end of the flight. */
function outlookOf(points, name, axis) {
  const number = (value) => (typeof value === "string" ? Date.parse(value) : value);
  const last = points.at(-1);
  const earlier = points[Math.floor(points.length * (1 - RECENT_SHARE))];
  if (!last || !earlier || earlier === last) return "";
  const passed = number(axis.of(last)) - number(axis.of(earlier));
  const used = last.spent[name] - earlier.spent[name];
  const left = last.granted[name] - last.spent[name];
  const ahead = number(axis.end) - number(axis.of(last));
  if (passed <= 0 || ahead <= 0 || left <= 0) return "";
  if (used <= 0) return "No recent spending.";
  const lasts = (left / used) * passed;
  if (lasts < ahead) {
    const place = number(axis.of(last)) + lasts;
    const where = typeof axis.end === "string" ? moment(new Date(place).toISOString()) : `round ${whole(place)}`;
    return `At the recent rate it is used up at ${where}.`;
  }
  const unspent = (left - (used / passed) * ahead) / last.granted[name];
  return `At the recent rate ${percent(unspent)} is left at the end.`;
}

function armsSection() {
  const shares = chart("Share of each arm over time", { tall: true });
  const place = h("div", {});
  const element = h("div", { class: "card" }, h("h3", {}, "Share of each arm over time"), shares.element, place);
  const ARMS_SHOWN = 50;

  function draw(points, axis, campaign) {
    // In the order of the configuration, so that arms keep their colours.
    const order = new Map(campaign.config.arms.map((arm, index) => [arm.id, index]));
    const place = (arm) => order.get(arm) ?? order.size;
    const named = [...new Set(points.flatMap((point) => Object.keys(point.arms)))];
    named.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
    return shares.show(shareFigure(points, named, axis));
  }

  function update(items) {
    const sorted = [...items].sort((a, b) => b.decisions - a.decisions);
    const columns = [
      ["Arm", (arm) => badged(arm.id ?? "no arm", arm.retired ? "retired" : arm.paused && "paused")],
      ["Share", (arm) => percent(arm.share, 1), "number"],
      ["Decisions", (arm) => whole(arm.decisions), "number"],
      ["Mean reward", (arm) => figure(arm.mean_reward), "number"],
      ["Mean cost", (arm) => (arm.mean_cost ? amounts(arm.mean_cost) : "–")],
      ["Last played", (arm) => h("span", { title: fullMoment(arm.last_played) }, moment(arm.last_played))],
    ];
    const rest = sorted.length - ARMS_SHOWN;
    place.replaceChildren(
      table("Arms", columns, sorted.slice(0, ARMS_SHOWN)),
      rest > 0 ? h("p", { class: "note" }, `and ${whole(rest)} more arms`) : "",
    );
  }
  return { element, draw, update, charts: [shares] };
}

function feedbackSection() {
  const facts = h("dl", { class: "facts big" });
  const loss = chart("Oracle loss over time");
  const element = h(
    "div", { class: "card" }, facts, h("h3", {}, "Oracle loss over time"), loss.element,
    h("p", { class: "note" }, "Mean squared error of the predictions, in units of each target's range, over up to ",
      "50 outcomes per point. A change that the model notices restarts it. Two or more false alarms mean that the ",
      "features do not explain the outcomes."),
  );

  function update(report, campaign) {
    const { open_holds: holds, recent, delay_seconds: delay, losses, changes } = report;
    const share = (count) => (recent.outcomes ? percent(count / recent.outcomes, 1) : "–");
    const seconds = Math.max(0, (now() - Date.parse(holds.oldest_at)) / 1000);
    const waits = holds.oldest_at ? `, the oldest for ${duration(seconds)}` : "";
    const last = losses.at(-1);
    const shown = [
      ["Open holds", `${whole(holds.count)}${waits}`],
      ["Feedback delay", delay.count ? `median ${duration(delay.median)}, 90 % within ${duration(delay.p90)}` : "–"],
      ["Expired", `${share(recent.expired)} of the last ${whole(recent.outcomes)}`],
      ["Void", share(recent.void)],
      ["Late costs", share(recent.late)],
      ["Oracle loss", last ? `${figure(last.reward_loss)} for reward (mean: ${figure(last.reward_guess)})` : "–"],
      ["Changes of the world", changes ? `${whole(changes.noticed)} noticed, ${whole(changes.dismissed)} false alarms` : "–"],
    ];
    facts.replaceChildren(...shown.map(fact));
    loss.element.hidden = !losses.length;
    return losses.length ? loss.show(lossFigure(losses, campaign.config.resources.map((one) => one.id))) : null;
  }
  return { element, update, charts: [loss] };
}

function decisionColumns(id) {
  const path = (one) => `#/campaigns/${encodeURIComponent(id)}/decisions/${encodeURIComponent(one.decision_id)}`;
  const named = (one) => ({ class: "explain", href: path(one), "aria-label": `Explain decision ${one.decision_id}` });
  return [
    ["Time", (one) => h("span", { title: fullMoment(one.decided_at) }, moment(one.decided_at))],
    ["Arm", (one) => h("b", {}, one.arm ?? "no arm")],
    ["Probability", (one) => percent(one.probability, 1), "number"],
    ["Status", (one) => (one.arm === null ? (NO_ARM[one.reason] ?? one.reason) : (STATUSES[one.status] ?? one.status))],
    ["Reward", (one) => figure(one.reward), "number"],
    ["Costs", (one) => (one.costs ? amounts(one.costs) : "–")],
    ["Explanation", (one) => h("a", named(one), "Explain")],
  ];
}

const LEDGER_COLUMNS = [
  ["Time", (one) => h("span", { title: fullMoment(one.at) }, moment(one.at))],
  ["Entry", (one) => MOVEMENTS[one.kind] ?? one.kind],
  ["Granted", (one) => movement(one.granted)],
  ["Held", (one) => movement(one.held)],
  ["Spent", (one) => movement(one.spent)],
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

/** Opens the explanation that an address names. */
export function explainAt(id, decisionId) {
  return explain(id, decisionId, () => {
    const here = `#/campaigns/${encodeURIComponent(id)}/decisions/${encodeURIComponent(decisionId)}`;
    if (location.hash === here) location.hash = `#/campaigns/${encodeURIComponent(id)}`;
  });
}
