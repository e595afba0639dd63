// Badges beside the status: what else decides in a campaign.

import { h } from "./dom.js";
import { percent } from "./format.js";

/** Returns the badges of a campaign, from its budget view. */
export function standingBadges({ mode, holdout }) {
  const badge = (kind, text, title) => h("span", { class: "badge", dataset: { badge: kind }, title }, text);
  return [
    mode === "shadow" ? badge("shadow", "shadow", "The caller decides; the policy only watches and learns") : null,
    holdout ? badge("holdout", `hold-out ${percent(holdout, 1)}`, "A baseline makes this share of the decisions") : null,
  ].filter(Boolean);
}
