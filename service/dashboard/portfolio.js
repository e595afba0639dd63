// The page of one portfolio: the budgets that its campaigns share, and what each of them has of them.

import { request } from "./api.js";
import { resourceBar } from "./bars.js";
import { h, setChildren, setText } from "./dom.js";
import { amounts, figure, percent, whole } from "./format.js";

const SECONDS = 2;

export const portfolioHref = (id) => `#/portfolios/${encodeURIComponent(id)}`;

export function portfolioPage(id, { watch, title }) {
  const heading = h("h1", { tabindex: "-1" }, id);
  const facts = h("p", { class: "flight" });
  const cards = h("div", { class: "cards-grid" });
  const resources = new Map();
  const members = new Map(); // rows stay, with the focus on their links
  const rows = h("tbody");

  async function load() {
    const begin = performance.now();
    const found = await request(`admin/portfolios/${encodeURIComponent(id)}/budget`);
    const took = performance.now() - begin;
    const share = found.expected_rounds ? found.rounds / found.expected_rounds : 0;
    setText(facts, `${whole(found.rounds)} decisions of ${whole(found.expected_rounds)} expected; ` +
      `${percent(share)} of the decisions are made.`);
    setChildren(cards, found.resources.map((account) => card(account, share)));
    setChildren(rows, found.campaigns.map(row));
    return took;
  }

  function card(account, share) {
    if (!resources.has(account.id)) {
      const bar = resourceBar();
      const value = h("p", { class: "note" });
      resources.set(account.id, { bar, value, element: h("div", { class: "card" }, bar.element, value) });
    }
    const { bar, value, element } = resources.get(account.id);
    const pace = share && account.granted ? account.spent / account.granted / share : null;
    bar.update({ ...account, pace }, share);
    setText(value, `One more unit is worth ${figure(account.marginal_value)} in reward.`);
    return element;
  }

  function row({ campaign_id: name, status, spent, held }) {
    if (!members.has(name)) {
      const link = h("a", { href: `#/campaigns/${encodeURIComponent(name)}` }, name);
      const texts = [h("td"), h("td"), h("td")];
      members.set(name, { texts, element: h("tr", {}, h("td", {}, link), ...texts) });
    }
    const { texts, element } = members.get(name);
    [status, amounts(spent), amounts(held)].forEach((text, at) => setText(texts[at], text));
    return element;
  }

  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...["Campaign", "Status", "Spent", "Held"].map((name) => h("th", { scope: "col" }, name)))),
    rows,
  );
  const element = h(
    "div",
    { class: "one-campaign" },
    h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns")),
    h("div", { class: "campaign-head" }, h("div", { class: "line" }, heading, h("span", { class: "status" }, "portfolio"))),
    facts,
    h("section", { "aria-labelledby": "h-shared" }, h("h2", { id: "h-shared" }, "Shared budgets"), cards),
    h("section", { "aria-labelledby": "h-members" }, h("h2", { id: "h-members" }, "Campaigns"), table),
  );
  title(id);
  watch(load, SECONDS);
  return { element, heading };
}
