// Tab "Overview": what the campaign earned, its budgets and prices, its arms, its baseline, its feedback.

import { adminPath, now, request } from "./api.js";
import { chart, flightAxis, lossFigure, rewardFigure, roundAxis, shareFigure, timeAxis } from "./charts.js";
import { connectCard } from "./connect.js";
import { h, setChildren, setText } from "./dom.js";
import { figuresRow } from "./figures.js";
import {
  amounts, armNames, counted, duration, figure, fullMoment, moment, percent, unitNames, whole,
} from "./format.js";
import { resourceCard } from "./resource-card.js";
import { badged, fact, section, table } from "./tables.js";
import { comparedTitle, isCompared, upliftReport } from "./uplift.js";

const POINTS = 120;
const ARMS_SHOWN = 50;
// Dates or rounds: the choice survives a visit to another campaign.
const choice = { axis: "time" };

export function overviewTab({ id, failed, mayChange }) {
  const figures = figuresRow();
  const rewards = chart("Cumulated reward, of all decisions and by arm", { tall: true });
  const cards = h("div", { class: "cards-grid" });
  const resources = new Map();
  const arms = armsCard();
  const uplift = upliftReport();
  const upliftSection = section("uplift", "Uplift", uplift.element);
  upliftSection.hidden = true;
  const feedback = feedbackCard();
  const start = h("div", { hidden: true });
  const axisButtons = axisChoice(() => draw().catch(failed));
  let state = null; // { campaign, budget }
  let points = null;

  function card(name) {
    if (!resources.has(name)) resources.set(name, resourceCard(name));
    return resources.get(name);
  }

  function update(campaign, budget) {
    state = { campaign, budget };
    upliftSection.hidden = !isCompared(campaign.config);
    setText(upliftSection.querySelector("h2"), comparedTitle(campaign.config));
    for (const account of budget.resources) card(account.id).update(account, budget, campaign);
    setChildren(cards, budget.resources.map((account) => card(account.id).element));
    // Once shown it stays, because the second command is needed after the first request.
    if (campaign.round > 0 || !mayChange || start.childNodes.length) return;
    start.append(connectCard(campaign, "It waits for its first request"));
    start.hidden = false;
  }

  function draw() {
    if (!points || !state) return Promise.resolve();
    const { campaign, budget } = state;
    const { config, created_at: createdAt } = campaign;
    const planned = flightAxis(config, createdAt);
    const axis = choice.axis === "time" ? timeAxis(config, createdAt) : roundAxis(config);
    figures.update(points, campaign);
    const nameOf = armNames(config);
    const named = namedArms(points, config);
    const decided = points.some((point) => point.decisions > 0);
    if (!decided) rewards.empty("No decisions yet.");
    return Promise.all([
      decided && rewards.show(rewardFigure(points, named, axis, nameOf)),
      ...campaign.accounts.map((account) => card(account.id).draw(points, { axis, planned }, campaign, budget)),
      arms.draw(points, named, axis, nameOf),
    ]);
  }

  // Polled one by one: on a long log the timeline may exceed the time limit of the database.
  const slow = (path, show) => async () => {
    if (!state) return 0; // shown once the campaign is known
    const begin = performance.now();
    const found = await request(adminPath(id, path));
    const took = performance.now() - begin;
    await show(found);
    return took;
  };
  const loadUplift = slow("uplift", (found) => {
    uplift.update(found, state.campaign);
    figures.compare(found.holdout, state.campaign);
  });
  const element = h(
    "div", {},
    start,
    section("earned", "What it earned", h("div", {}, figures.element,
      h("div", { class: "card" }, h("div", { class: "section-head" }, h("h3", {}, "Reward over time"), axisButtons),
        rewards.element))),
    section("budgets", "Budgets and prices", cards),
    section("arms", "Arms", arms.element),
    upliftSection,
    section("feedback", "Feedback and learning", feedback.element),
  );
  return {
    element,
    update,
    loads: [
      slow(`timeline?points=${POINTS}`, ({ items }) => {
        points = items;
        return draw();
      }),
      slow("arms", ({ items }) => arms.update(items, state.campaign)),
      slow("feedback", (report) => feedback.update(report, state.campaign)),
      () => (state && isCompared(state.campaign.config) ? loadUplift() : 0),
    ],
    charts: () => [
      rewards, ...[...resources.values()].flatMap((one) => one.charts), ...arms.charts, ...feedback.charts,
    ],
  };
}

function axisChoice(changed) {
  const button = (key, label) => h("button", {
    type: "button", class: "chip", "aria-pressed": String(choice.axis === key),
    onclick: () => {
      choice.axis = key;
      for (const [other, one] of buttons) one.setAttribute("aria-pressed", String(other === key));
      changed();
    },
  }, label);
  const buttons = [["time", button("time", "Dates")], ["round", button("round", "Rounds")]];
  return h("div", { class: "chips", role: "group", "aria-label": "Axis of the charts" }, buttons.map(([, one]) => one));
}

/** Returns the ids of the arms on the timeline in the order of the configuration, so that arms keep their colours. */
function namedArms(points, config) {
  const order = new Map(config.arms.map((arm, index) => [arm.id, index]));
  const place = (arm) => order.get(arm) ?? order.size;
  const named = [...new Set(points.flatMap((point) => Object.keys(point.arms)))];
  return named.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

function armsCard() {
  const shares = chart("Share of each arm over time", { tall: true });
  const place = h("div", {});
  const element = h("div", { class: "card" }, h("h3", {}, "Share of each arm over time"), shares.element, place);

  function draw(points, named, axis, nameOf) {
    if (points.some((point) => point.decisions > 0)) return shares.show(shareFigure(points, named, axis, nameOf));
    return shares.empty("No decisions yet.");
  }

  function update(items, { config }) {
    const unit = unitNames(config);
    const sorted = [...items].sort((a, b) => b.decisions - a.decisions);
    const name = (arm) => arm.display_name ?? arm.id ?? "no arm";
    const columns = [
      ["Arm", (arm) => h("span", { title: arm.id }, badged(name(arm), arm.retired ? "retired" : arm.paused && "paused"))],
      ["Share", (arm) => percent(arm.share, 1), "number"],
      ["Decisions", (arm) => whole(arm.decisions), "number"],
      ["Mean reward", (arm) => figure(arm.mean_reward), "number"],
      ["Mean cost", (arm) => (arm.mean_cost ? amounts(arm.mean_cost, unit) : "–")],
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

function feedbackCard() {
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
      ["Expired", recent.outcomes ? `${share(recent.expired)} of the last ${whole(recent.outcomes)}` : "–"],
      ["Void", share(recent.void)],
      ["Late costs", share(recent.late)],
      ["Oracle loss", last ? `${figure(last.reward_loss)} for reward (mean: ${figure(last.reward_guess)})` : "–"],
      ["Changes of the world", changes ? `${whole(changes.noticed)} noticed, ${counted(changes.dismissed, "false alarm")}` : "–"],
    ];
    facts.replaceChildren(...shown.map(fact));
    if (losses.length) return loss.show(lossFigure(losses, campaign.config.resources.map((one) => one.id)));
    return loss.empty("No outcomes yet.");
  }
  return { element, update, charts: [loss] };
}
