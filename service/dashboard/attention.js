// Rules that find what is wrong with a campaign and how urgent it is. Pure functions.

import { duration, percent, withUnit } from "./format.js";

export const CRITICAL = 3;
export const WARNING = 2;
export const NOTICE = 1;
export const FINE = 0;
export const LEVELS = ["fine", "notice", "warning", "critical"];

// Share of the flight: before it a pace says nothing.
export const EARLY = 0.01;
const FAST_PACE = 1.1;
const SLOW_PACE = 0.8;
// Share of the flight: a budget that ends within it is critical.
const SOON = 0.05;
const HELD_SHARE = 0.25;
const QUIET_SECONDS = 15 * 60;

/** Returns the level, the weight within that level, and the reasons for an item of /admin/budgets. */
export function attentionOf(item, nowMs) {
  const found = [];
  const add = (level, weight, text) => found.push({ level, weight, text });
  if (item.damaged) {
    add(CRITICAL, 30, "The stored configuration cannot be read.");
  } else if (item.status !== "archived") {
    for (const one of item.resources) ofResource(item, one, add);
    if (item.status === "paused") add(NOTICE, 2, "Paused: requests get no arm.");
    else if (item.status !== "scheduled") ofActive(item, nowMs, add);
  }
  found.sort((a, b) => b.level - a.level || b.weight - a.weight);
  const level = found.length ? found[0].level : FINE;
  const weight = found.length ? found[0].weight : 0;
  return { level, weight, reasons: found };
}

function ofResource(item, one, add) {
  if (one.overrun > 0) {
    add(CRITICAL, 20 + one.overrun / (one.granted || 1), `${one.id} is ${withUnit(one.overrun, one)} over its budget.`);
  }
  if (item.status !== "active" || item.flight >= 1) return;
  if (one.pace !== null && one.pace > FAST_PACE && item.flight > EARLY && !item.exhausted) {
    const end = 1 / one.pace;
    const when = item.flight < end ? `lasts until ${percent(end)} of the flight` : "is almost used up";
    const level = end - item.flight < SOON ? CRITICAL : WARNING;
    add(level, 5 + one.pace / (1 + one.pace), `${one.id} is spent at ${one.pace.toFixed(2)}× plan and ${when}.`);
  }
  if (one.granted > 0 && one.held / one.granted > HELD_SHARE) {
    const share = one.held / one.granted;
    add(WARNING, 4 + share, `${percent(share)} of ${one.id} is on hold: feedback is late or missing.`);
  }
}

function ofActive(item, nowMs, add) {
  if (item.status === "ended" || item.flight >= 1) {
    add(NOTICE, 1, "The flight is over.");
    return;
  }
  if (item.exhausted) {
    const scarce = item.resources.reduce((a, b) => (a.free / (a.granted || 1) <= b.free / (b.granted || 1) ? a : b));
    const held = scarce.held > 0 ? `, ${withUnit(scarce.held, scarce)} on hold` : "";
    const text = `Out of ${scarce.id}: no arm is affordable (${withUnit(scarce.free, scarce)} free${held}).`;
    add(CRITICAL, 10 + (1 - item.flight), text);
  }
  const paces = item.resources.filter((one) => one.pace !== null);
  // A budget that is not scarce need not be used up: report it only if no budget is on plan.
  if (item.flight > 0.1 && paces.length && paces.every((one) => one.pace < SLOW_PACE)) {
    const first = paces.reduce((a, b) => (a.pace >= b.pace ? a : b));
    const left = percent(1 - first.pace);
    add(NOTICE, 3 - first.pace, `Behind plan: at this pace ${left} of ${first.id} stays unspent.`);
  }
  const quiet = (nowMs - Date.parse(item.last_event_at)) / 1000;
  if (item.round > 0 && quiet > QUIET_SECONDS) add(NOTICE, 1.5, `No activity for ${duration(quiet)}.`);
}

const ORDER = { active: 0, scheduled: 1, paused: 2, ended: 3, archived: 4 };

/** Sorts the most urgent first, then active campaigns. */
export function byUrgency(a, b) {
  return (
    b.attention.level - a.attention.level ||
    b.attention.weight - a.attention.weight ||
    ORDER[a.status] - ORDER[b.status] ||
    (a.campaign_id < b.campaign_id ? -1 : 1)
  );
}
