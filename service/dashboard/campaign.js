// The page of one campaign: its head, and a tab for each of its parts.

import { adminPath, campaignPath, now, request } from "./api.js";
import { LEVELS, attentionOf } from "./attention.js";
import { standingBadges } from "./badges.js";
import { statusButtons } from "./changes.js";
import { h, setText } from "./dom.js";
import { explain } from "./explain.js";
import { armNames, counted, moment, percent, whole } from "./format.js";
import { portfolioHref } from "./portfolio.js";
import { decisionsTab } from "./tab-decisions.js";
import { ledgerTab } from "./tab-ledger.js";
import { overviewTab } from "./tab-overview.js";
import { settingsTab } from "./tab-settings.js";
import { whatIfTab } from "./tab-whatif.js";

const SECONDS = 2;
// For figures over the whole log.
const SLOW_SECONDS = 6;
const TABS = [
  ["overview", "Overview", overviewTab, SLOW_SECONDS],
  ["decisions", "Decisions", decisionsTab, SECONDS],
  ["what-if", "What if", whatIfTab, SLOW_SECONDS],
  ["ledger", "Ledger", ledgerTab, SECONDS],
  ["settings", "Settings", settingsTab, SLOW_SECONDS],
];

export const isTab = (name) => TABS.some(([key]) => key === name);

export function campaignPage(id, here) {
  const { watch, title, mayChange, notify, failed, notFound } = here;
  const heading = h("h1", { tabindex: "-1" }, id);
  const shownId = h("span", { class: "id", hidden: true }, id);
  const status = h("span", { class: "status" });
  const badges = h("span", { class: "badges" });
  const facts = h("p", { class: "flight" });
  const shared = h("p", { class: "flight", hidden: true });
  const buttons = h("div", { class: "buttons" });
  const reasons = h("ul", { class: "reasons", "aria-label": "Warnings" });
  const link = (tab) => `#/campaigns/${encodeURIComponent(id)}${tab === "overview" ? "" : `/${tab}`}`;
  const links = new Map(TABS.map(([key, label]) => [key, h("a", { href: link(key) }, label)]));
  const body = h("div", { class: "tab-body" });
  const tabs = new Map();
  let state = null; // { campaign, budget }
  let current = null;
  let buttonsFor = "";

  async function load() {
    const begin = performance.now();
    let found;
    try {
      found = await Promise.all([request(campaignPath(id)), request(adminPath(id, "budget"))]);
    } catch (error) {
      if (error.kind !== "campaign-not-found") throw error;
      notFound();
      return 0;
    }
    const took = performance.now() - begin;
    const first = state === null;
    state = { campaign: found[0], budget: found[1] };
    showHead(state.campaign, state.budget);
    tabs.get(current)?.view.update(state.campaign, state.budget);
    if (first) reload();
    return took;
  }

  function showHead(campaign, budget) {
    const name = campaign.display_name ?? id;
    setText(heading, name);
    title(name);
    shownId.hidden = name === id;
    status.dataset.status = campaign.status;
    setText(status, campaign.status);
    badges.replaceChildren(...standingBadges(budget));
    const { floor_arm: floor } = campaign.config;
    setText(facts, `${flightText(campaign, budget)}${floor ? ` Must play, floor: ${armNames(campaign.config)(floor)}.` : ""}`);
    const { portfolio } = campaign.config;
    shared.hidden = !portfolio;
    if (portfolio && !shared.firstChild) {
      shared.append("Shares the budgets of the portfolio ", h("a", { href: portfolioHref(portfolio) }, portfolio), ".");
    }
    const { reasons: why } = attentionOf(budget, now());
    reasons.replaceChildren(...why.map((one) => h("li", { dataset: { level: LEVELS[one.level] } }, one.text)));
    reasons.hidden = !why.length;
    const signature = JSON.stringify([campaign.status, campaign.version]);
    if (mayChange && signature !== buttonsFor && !buttons.contains(document.activeElement)) {
      buttonsFor = signature;
      buttons.replaceChildren(...statusButtons(campaign, changed, here.mayCreate));
    }
  }

  async function changed(message) {
    buttonsFor = "";
    document.activeElement?.blur();
    await poller.again(); // not beside a load that began before the change and would draw what was
    notify(message); // once the page shows the change: a dialog that is opened now begins from it
    reload();
  }

  /** Creates a tab with the first visit; its loads run only while it is shown. */
  function tabOf(name) {
    if (tabs.has(name)) return tabs.get(name);
    const [, , make, seconds] = TABS.find(([key]) => key === name);
    const view = make({ ...here, id, changed, reload });
    const loads = view.loads.map((one) =>
      watch(async () => (current === name && state ? one() : 0), view.seconds ?? seconds));
    tabs.set(name, { view, loads });
    return tabs.get(name);
  }

  function reload() {
    tabs.get(current)?.loads.forEach((one) => one.again());
  }

  function show(name) {
    if (name === current) return;
    current = name;
    const { view } = tabOf(name);
    for (const [key, one] of links) {
      if (key === name) one.setAttribute("aria-current", "page");
      else one.removeAttribute("aria-current");
    }
    body.replaceChildren(view.element);
    if (state) view.update(state.campaign, state.budget);
    reload();
    // Charts drawn while they were hidden have no size.
    view.charts().forEach((one) => one.redraw());
  }

  const element = h(
    "div",
    { class: "one-campaign" },
    h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns")),
    h("div", { class: "campaign-head" }, h("div", { class: "line" }, heading, shownId, status, badges), buttons),
    facts,
    shared,
    reasons,
    h("nav", { class: "tabs", "aria-label": "Parts of the campaign" }, [...links.values()]),
    body,
  );
  title(id);
  const poller = watch(load, SECONDS);
  const charts = () => [...tabs.values()].flatMap(({ view }) => view.charts());
  return {
    element,
    heading,
    show,
    redraw: () => Promise.all(charts().map((one) => one.redraw())).catch(failed),
    close: () => charts().forEach((one) => one.close()),
  };
}

function flightText(campaign, budget) {
  const { starts_at: start_at, ends_at: end_at, horizon } = campaign.config;
  const start = campaign.status === "scheduled" ? `Starts ${moment(start_at)}. ` : "";
  const end = end_at ? `, ends ${moment(end_at)}` : ` of ${whole(horizon)} expected`;
  return `${start}Round ${whole(campaign.round)}${end}; ${percent(budget.flight)} of the flight is over. ` +
    `${counted(campaign.policy_version, "outcome")} learnt. Last event ${moment(budget.last_event_at)}.`;
}

/** Opens the explanation that an address names. */
export function explainAt(id, decisionId) {
  return explain(id, decisionId, () => {
    const list = `#/campaigns/${encodeURIComponent(id)}/decisions`;
    if (location.hash === `${list}/${encodeURIComponent(decisionId)}`) location.hash = list;
  });
}
