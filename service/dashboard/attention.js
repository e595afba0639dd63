// What somebody who was just woken up has to know first. Pure: the rules and nothing else.

import { amount, duration, percent } from "./words.js";

export const CRITICAL = 3;
export const WARNING = 2;
export const NOTICE = 1;
export const FINE = 0;
export const LEVELS = ["fine", "notice", "warning", "critical"];

const FAST_PACE = 1.1;
const SLOW_PACE = 0.8;
// Of the flight: a budget that is used up within it cannot wait for the morning.
const SOON = 0.05;
const HELD_SHARE = 0.25;
const QUIET_SECONDS = 15 * 60;

/** Of an item of /admin/budgets: how urgent it is, within that how much, and why. */
export function attentionOf(item, nowMs) {
  const found = [];
  const add = (level, weight, words) => found.push({ level, weight, words });
  if (item.status !== "archived") {
    for (const one of item.resources) ofResource(item, one, add);
    if (item.status === "paused") add(NOTICE, 2, "Paused: every request gets no arm.");
    else ofActive(item, nowMs, add);
  }
  found.sort((a, b) => b.level - a.level || b.weight - a.weight);
  const level = found.length ? found[0].level : FINE;
  const weight = found.length ? found[0].weight : 0;
  return { level, weight, reasons: found };
}

function ofResource(item, one, add) {
  if (one.overrun > 0) {
    add(CRITICAL, 20 + one.overrun / (one.granted || 1), `${one.id} is ${amount(one.overrun)} over its budget.`);
  }
  if (item.status !== "active" || item.flight >= 1) return;
  if (one.pace !== null && one.pace > FAST_PACE && item.flight > 0.01 && !item.exhausted) {
    const end = 1 / one.pace;
    const when = item.flight < end ? `lasts to ${percent(end)} of the flight` : "is as good as used up";
    const level = end - item.flight < SOON ? CRITICAL : WARNING;
    add(level, 5 + one.pace / (1 + one.pace), `${one.id} runs at ${one.pace.toFixed(2)}× its plan and ${when}.`);
  }
  if (one.granted > 0 && one.held / one.granted > HELD_SHARE) {
    const share = one.held / one.granted;
    add(WARNING, 4 + share, `${percent(share)} of ${one.id} is on hold: feedback is late or missing.`);
  }
}

function ofActive(item, nowMs, add) {
  if (item.flight >= 1) {
    add(NOTICE, 1, "The flight is over.");
    return;
  }
  if (item.exhausted) {
    const scarce = item.resources.reduce((a, b) => (a.free / (a.granted || 1) <= b.free / (b.granted || 1) ? a : b));
    const held = scarce.held > 0 ? `, ${amount(scarce.held)} on hold` : "";
    const words = `Out of ${scarce.id}: no arm can be paid (${amount(scarce.free)} free${held}).`;
    add(CRITICAL, 10 + (1 - item.flight), words);
  }
  const paces = item.resources.filter((one) => one.pace !== null);
  // A budget that is not scarce is never used up, and need not be: only where none is on plan is there a question.
  if (item.flight > 0.1 && paces.length && paces.every((one) => one.pace < SLOW_PACE)) {
    const first = paces.reduce((a, b) => (a.pace >= b.pace ? a : b));
    const left = percent(1 - first.pace);
    add(NOTICE, 3 - first.pace, `Behind plan: at this pace ${left} of ${first.id} stays unspent.`);
  }
  const quiet = (nowMs - Date.parse(item.last_event_at)) / 1000;
  if (item.round > 0 && quiet > QUIET_SECONDS) add(NOTICE, 1.5, `Nothing heard for ${duration(quiet)}.`);
}

const ORDER = { active: 0, paused: 1, archived: 2 };

/** Most urgent first; among the others those that run come first. */
export function byUrgency(a, b) {
  return (
    b.attention.level - a.attention.level ||
    b.attention.weight - a.attention.weight ||
    ORDER[a.status] - ORDER[b.status] ||
    (a.campaign_id < b.campaign_id ? -1 : 1)
  );
}
