// Tab "What if": evaluations of other policies and budgets on the log.

import { evaluationsList, newEvaluation } from "./evaluations.js";
import { h } from "./dom.js";
import { section } from "./tables.js";

export function whatIfTab({ id, notify, failed, mayChange, reload }) {
  const evaluations = evaluationsList(id, { notify, failed, config: () => campaign.config });
  let campaign = null;
  const started = (evaluation) => {
    evaluations.follow(evaluation);
    reload();
  };
  const button = mayChange &&
    h("button", { type: "button", onclick: () => campaign && newEvaluation(campaign, started) }, "New evaluation…");
  const none = h("p", { class: "empty", hidden: true },
    "A campaign whose requests bring their own arms has no log of them to evaluate.");
  const element = section("evaluations", "Evaluations", h("div", {}, none, evaluations.element), button);

  function update(found) {
    campaign = found;
    const possible = found.config.arms.length > 0;
    none.hidden = possible;
    evaluations.element.hidden = !possible;
    if (button) button.hidden = !possible;
  }
  const load = () => (campaign?.config.arms.length ? evaluations.load() : 0);
  return { element, update, loads: [load], seconds: evaluations.seconds, charts: evaluations.charts };
}
