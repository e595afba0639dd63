// The draft of a campaign: what its form has, and the body of the request made from it. Pure functions.

export const PERIODS = ["hour", "day", "week", "month"];
const SERVED = ["id", "display_name", "metadata", "arms", "resources", "horizon", "starts_at", "ends_at", "timezone",
  "context", "reward", "feedback", "holdout", "mode", "null_arm", "floor_arm", "seed"];

/** Returns a draft that can be created as it is. */
export function newDraft(today) {
  return {
    id: `campaign-${today}`, display_name: "", metadata: "",
    arms: [arm("banner-a"), arm("banner-b")],
    resources: [{ id: "usd", unit: "USD", budget: "100", max_cost: "0.05", windows: {} }],
    end: "horizon", horizon: "10000", starts_at: "", ends_at: "",
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
    features: [{ ...feature("device"), type: "category", values: "mobile, desktop" }], dimension: null,
    reward: { min: "0", max: "1" },
    feedback: { ttl_seconds: "3600", missing_reward: "0", missing_cost: "hold" },
    holdout: { on: false, fraction: "5", arm: "" }, mode: "live", floor: "", rest: {}, terms: {},
  };
}

export const arm = (id = "") => ({ id, display_name: "", max_cost: {}, kept: {} });
export const resource = () => ({ id: "", unit: "", budget: "", max_cost: "1", windows: {} });
export const feature = (name = "") => ({
  name, type: "number", min: "0", max: "1", values: "", buckets: "16", default: "", strict: false,
});

const text = (value) => (value === null || value === undefined ? "" : String(value));

/** Returns the draft of a copy of a campaign, without what it learnt and without arms that were retired. */
export function draftOf(config, nowMs) {
  const ahead = (moment) => (moment && Date.parse(moment) > nowMs ? local(moment) : "");
  return {
    ...newDraft(""),
    id: `${config.id}-copy`.slice(0, 128), display_name: text(config.display_name),
    metadata: Object.entries(config.metadata ?? {}).map(([name, value]) => `${name}: ${value}`).join("\n"),
    arms: config.arms.filter((one) => !one.retired).map(
      ({ id, display_name: name, max_cost: costs, features, metadata }) => ({
        id, display_name: text(name), kept: given({ features, metadata }),
        max_cost: Object.fromEntries(Object.entries(costs ?? {}).map(([key, value]) => [key, text(value)])),
      })),
    resources: config.resources.map((one) => ({
      id: one.id, unit: text(one.unit), budget: text(one.budget), max_cost: text(one.max_cost),
      windows: Object.fromEntries((one.windows ?? []).map(({ period, limit }) => [period, text(limit)])),
    })),
    end: ahead(config.ends_at) ? "ends_at" : "horizon", horizon: text(config.horizon ?? 10000),
    starts_at: ahead(config.starts_at), ends_at: ahead(config.ends_at), timezone: config.timezone ?? "UTC",
    features: (config.context.features ?? []).map((one) => ({
      ...feature(one.name), ...Object.fromEntries(Object.entries(one).map(([key, value]) => [key, text(value)])),
      values: (one.values ?? []).join(", "), strict: Boolean(one.strict),
    })),
    dimension: config.context.dimension ?? null,
    reward: { min: text(config.reward.min), max: text(config.reward.max) },
    feedback: {
      ttl_seconds: text(config.feedback.ttl_seconds), missing_reward: text(config.feedback.missing_reward),
      missing_cost: config.feedback.missing_cost,
    },
    terms: config.feedback,
    holdout: {
      on: Boolean(config.holdout), fraction: text(100 * (config.holdout?.fraction ?? 0.05)),
      arm: text(config.holdout?.arm),
    },
    mode: config.mode ?? "live", floor: text(config.floor_arm),
    rest: Object.fromEntries(Object.entries(config).filter(([name]) => !SERVED.includes(name))),
  };
}

/** Gives an arm another id, also where the draft refers to it. */
export function renameArm(draft, one, id) {
  if (draft.holdout.arm === one.id) draft.holdout.arm = id;
  if (draft.floor === one.id) draft.floor = id;
  one.id = id;
}

/** Refers to an arm no more. */
export function forgetArm(draft, id) {
  if (draft.holdout.arm === id) draft.holdout.arm = "";
  if (draft.floor === id) draft.floor = "";
}

/** Gives a resource another id, also in the max costs of arms. */
export function renameResource(draft, one, id) {
  for (const { max_cost: costs } of draft.arms) {
    if (one.id in costs && !(id in costs)) {
      costs[id] = costs[one.id];
      delete costs[one.id];
    }
  }
  one.id = id;
}

/** Leaves out what is empty. */
export const given = (values) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));

/** Converts the text of a number; what is no number stays as it is, for the service to name. */
export const number = (value) => (value.trim() === "" || Number.isNaN(Number(value)) ? value : Number(value));

/** Converts lines "name: value" to an object. */
export const metadataOf = (lines) => Object.fromEntries(
  lines.split("\n").filter((line) => line.trim()).map((line) => {
    const [name, ...value] = line.split(":");
    return [name.trim(), value.join(":").trim()];
  }));

/** Converts the text of a field for local time to a moment of the interface. */
export const moment = (value) => (value ? new Date(value).toISOString().replace(".000Z", "Z") : null);

/** Converts a moment to the text of a field for local time. */
export function local(value) {
  const at = new Date(value);
  return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

export const windowsOf = (windows) => PERIODS.filter((period) => (windows[period] ?? "") !== "")
  .map((period) => ({ period, limit: number(windows[period]) }));

function featureOf(one) {
  const common = { name: one.name, type: one.type, ...(one.strict && one.type !== "hash" ? { strict: true } : {}) };
  const byDefault = one.default === "" ? {} : { default: one.type === "number" ? number(one.default) : one.default };
  if (one.type === "number") return { ...common, min: number(one.min), max: number(one.max), ...byDefault };
  if (one.type === "hash") return { ...common, buckets: number(one.buckets), ...byDefault };
  const values = one.values.split(",").map((value) => value.trim()).filter(Boolean);
  return { ...common, values, ...byDefault };
}

/** Returns the body of the request. */
export function bodyOf(draft) {
  const ids = new Set(draft.resources.map((one) => one.id));
  const metadata = metadataOf(draft.metadata);
  const context = draft.dimension ? { dimension: draft.dimension } : { features: draft.features.map(featureOf) };
  return {
    id: draft.id,
    ...given({ display_name: draft.display_name.trim() }),
    ...(Object.keys(metadata).length ? { metadata } : {}),
    arms: draft.arms.map((one) => {
      const costs = Object.entries(given(one.max_cost)).filter(([name]) => ids.has(name));
      return {
        id: one.id, ...given({ display_name: one.display_name.trim() }),
        ...(costs.length ? { max_cost: Object.fromEntries(costs.map(([name, cost]) => [name, number(cost)])) } : {}),
        ...one.kept,
      };
    }),
    resources: draft.resources.map((one) => {
      const windows = windowsOf(one.windows);
      return {
        id: one.id, ...given({ unit: one.unit.trim() }), budget: number(one.budget), max_cost: number(one.max_cost),
        ...(windows.length ? { windows } : {}),
      };
    }),
    ...(draft.end === "horizon" ? { horizon: number(draft.horizon) } : { ends_at: moment(draft.ends_at) }),
    ...given({ starts_at: moment(draft.starts_at) }),
    timezone: draft.timezone,
    context,
    reward: { min: number(draft.reward.min), max: number(draft.reward.max) },
    feedback: {
      ...draft.terms,
      ttl_seconds: number(draft.feedback.ttl_seconds),
      missing_reward: draft.feedback.missing_reward.trim() === "" ? null : number(draft.feedback.missing_reward),
      missing_cost: draft.feedback.missing_cost,
    },
    ...(draft.holdout.on ? { holdout: holdoutOf(draft.holdout) } : {}),
    ...(draft.mode === "live" ? {} : { mode: draft.mode }),
    ...(draft.floor ? { null_arm: "last_resort", floor_arm: draft.floor } : {}),
    ...draft.rest,
  };
}

/** Converts a share in percent and an arm, "" for none. */
export const holdoutOf = ({ fraction, arm: id }) => ({ fraction: Number((Number(fraction) / 100).toFixed(8)), arm: id || null });
