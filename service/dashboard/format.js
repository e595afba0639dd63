// Numbers, times and codes of the interface as text for people.

const formats = new Map();

function format(decimals) {
  if (!formats.has(decimals)) {
    const { format: text } = new Intl.NumberFormat("en", { maximumFractionDigits: decimals });
    formats.set(decimals, { format: (value) => text(value).replace("-", "−") });
  }
  return formats.get(decimals);
}

/** Formats an amount with about three significant digits. */
export function amount(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  return format(size >= 1000 ? 0 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size)))).format(value);
}

/** Formats a reward, a score or a price. */
export function figure(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-6) return value.toExponential(1);
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 1000 ? format(0).format(rounded) : format(8).format(rounded);
}

/** Formats an interval. */
export function interval(lower, upper, digits = 3) {
  if (lower === null && upper === null) return "–";
  return `${figure(lower, digits)} to ${figure(upper, digits)}`;
}

/** Formats a difference with its sign. */
export function signed(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return `${value > 0 ? "+" : "−"}${figure(Math.abs(value))}`;
}

/** Returns a text with a capital first letter. */
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const whole = (value) => format(0).format(value);

/** Formats a number of things: "1 outcome", "2 outcomes". */
export const counted = (count, thing) => `${whole(count)} ${thing}${count === 1 ? "" : "s"}`;

export const percent = (share, decimals = 0) => `${format(decimals).format(100 * share)}\u00a0%`;

/** Formats amounts by resource: "0.031 USD, 1 impressions"; `unit` is from `unitNames`. */
export function amounts(byResource, unit = (id) => id) {
  const terms = Object.entries(byResource ?? {}).map(([name, value]) => `${amount(value)} ${unit(name)}`);
  return terms.length ? terms.join(", ") : "–";
}

/** Formats signed amounts, without zeros. */
export function movement(byResource, unit = (id) => id) {
  const nonzero = Object.entries(byResource ?? {}).filter(([, value]) => value !== 0);
  const term = ([name, value]) => `${value > 0 ? "+" : "−"}${amount(Math.abs(value))} ${unit(name)}`;
  return nonzero.map(term).join(", ") || "–";
}

/** Returns what amounts of a resource count: its unit, or its id without one. */
export const unitOf = (resource) => resource.unit ?? resource.id;

/** Returns a function from a resource's id to what its amounts count, which differs between resources. */
export function unitNames({ resources }) {
  const alone = (one) => resources.every((other) => other.id === one.id || unitOf(other) !== unitOf(one));
  const names = new Map(resources.map((one) => [one.id, alone(one) ? unitOf(one) : `${unitOf(one)} (${one.id})`]));
  return (id) => names.get(id) ?? id;
}

/** Formats an amount of an account, with its unit if it has one. */
export const withUnit = (value, { unit }) => (unit ? `${amount(value)} ${unit}` : amount(value));

/** Returns a function from an arm's id to the name that people read. */
export function armNames(config) {
  const names = new Map(config.arms.map((arm) => [arm.id, arm.display_name ?? arm.id]));
  return (id) => names.get(id) ?? id;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** Formats a time in the local time zone, with the day unless it is today. */
export function moment(text) {
  if (!text) return "–";
  const at = new Date(text);
  return at.toDateString() === new Date().toDateString() ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

export const fullMoment = (text) => (text ? `${full.format(new Date(text))} (${text})` : "");
export const clockTime = (at) => clock.format(at);

/** Formats a duration: "4.2 s", "3 min", "2 h 10 min", "5 days". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${format(0).format(1000 * seconds)} ms`;
  if (seconds < 120) return `${format(seconds < 10 ? 1 : 0).format(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

export const REASONS = {
  policy: "chosen by the policy",
  all_excluded: "the request excluded every arm",
  budget_exhausted: "no arm was affordable",
  window_exhausted: "no arm was affordable within a window",
  holdout: "chosen for the hold-out group",
  shadow: "chosen by the caller in shadow mode",
  paused: "the campaign was paused",
  archived: "the campaign was archived",
  not_started: "the flight had not begun",
  ended: "the flight was over",
};

// Short forms for table cells of decisions without an arm.
export const NO_ARM = {
  policy: "the policy's choice",
  all_excluded: "all excluded",
  budget_exhausted: "out of budget",
  window_exhausted: "window used up",
};

export const WHY_NOT = {
  retired: "retired",
  paused: "paused",
  excluded: "excluded by the request",
  reserved: "what is free is kept for the floor arm",
  not_affordable: "its hold exceeded the free budget",
  stage_one: "stage one only observes",
};

export const STATUSES = {
  null: "no arm",
  held: "waits for feedback",
  rewarded: "waits for costs",
  charged: "waits for reward",
  settled: "settled",
  voided: "void",
  expired: "expired",
  late: "costs came late",
};

export const MOVEMENTS = {
  hold: "hold",
  reported: "reported",
  void: "void",
  expired: "expired",
  late: "late costs",
  budget: "budget",
  adjust: "adjustment",
  opening: "opening balance",
};
