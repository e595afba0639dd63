// Dialogs that change a campaign's configuration: each sends one PATCH for the version that is shown.

import { campaignPath, request } from "./api.js";
import { confirmDialog, openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { PERIODS, holdoutOf, local, metadataOf, moment, number, windowsOf } from "./draft.js";
import { AMOUNT, COUNT, ID_PATTERN, check, field, select, showErrors } from "./fields.js";

async function patch(campaign, body) {
  await request(campaignPath(campaign.id), {
    method: "PATCH", body: { ...body, expected_version: campaign.version },
  });
}

/** Opens a form of fields; `bodyOf()` returns the change, or null if there is none. */
function patchDialog({ campaign, title, lines = [], fields, bodyOf, done, message }) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const save = h("button", { type: "submit", class: "primary" }, "Save");
  const complain = (text) => {
    wrong.textContent = text;
    wrong.hidden = !text;
  };
  const submit = async (event) => {
    event.preventDefault();
    const body = bodyOf();
    if (!body) return complain("Nothing was changed.");
    save.disabled = true;
    complain("");
    try {
      await patch(campaign, body);
      dialog.close();
      await done(message);
    } catch (error) {
      complain(showErrors(form, error).join("; "));
      save.disabled = false;
    }
  };
  const form = h("form", { onsubmit: submit }, h("h2", {}, title), lines.map((line) => h("p", {}, line)), fields, wrong,
    h("div", { class: "answers" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), save));
  const dialog = openDialog(title, {}, form);
}

export function changeNames(campaign, done) {
  const { display_name: name, metadata } = campaign.config;
  const before = { name: name ?? "", notes: Object.entries(metadata ?? {}).map((one) => one.join(": ")).join("\n") };
  const now = { ...before };
  const area = h("textarea", { id: "field-metadata", rows: 4, oninput: () => (now.notes = area.value) });
  area.value = before.notes;
  patchDialog({
    campaign, done, title: `Names of ${campaign.id}`, message: `The names of ${campaign.id} were changed.`,
    fields: [
      field("display_name", "Name", { maxlength: 500 }, (value) => (now.name = value), { value: before.name }),
      h("div", { class: "field", dataset: { path: "metadata" } }, h("label", { for: area.id }, "Notes"), area,
        h("small", {}, "lines “name: value”")),
    ],
    bodyOf: () => JSON.stringify(now) !== JSON.stringify(before) &&
      { display_name: now.name.trim() || null, metadata: metadataOf(now.notes) },
  });
}

export function changeDates(campaign, done) {
  const { horizon, starts_at: start, ends_at: end } = campaign.config;
  const before = { horizon: horizon ? String(horizon) : "", end: end ? local(end) : "", start: start ? local(start) : "" };
  const now = { ...before };
  const scheduled = campaign.status === "scheduled";
  patchDialog({
    campaign, done, title: `Flight of ${campaign.id}`, message: `The flight of ${campaign.id} was changed.`,
    lines: ["Set the number of decisions or the end; the other one is then empty."],
    fields: [
      field("horizon", "Expected decisions", COUNT, (value) => (now.horizon = value), { value: before.horizon }),
      field("ends_at", "End", { type: "datetime-local", step: 1 }, (value) => (now.end = value),
        { value: before.end, hint: "your local time" }),
      scheduled && field("starts_at", "Start", { type: "datetime-local", step: 1 }, (value) => (now.start = value),
        { value: before.start, hint: "your local time; empty: now" }),
    ],
    bodyOf: () => {
      const body = {
        ...(now.horizon !== before.horizon && now.horizon ? { horizon: number(now.horizon) } : {}),
        ...(now.end !== before.end && now.end ? { ends_at: moment(now.end) } : {}),
        ...(now.start !== before.start ? { starts_at: moment(now.start) } : {}),
      };
      return Object.keys(body).length ? body : null;
    },
  });
}

export function changeLimits(campaign, done) {
  const rows = campaign.config.resources.map((one) => {
    const windows = Object.fromEntries((one.windows ?? []).map(({ period, limit }) => [period, String(limit)]));
    return { id: one.id, cost: String(one.max_cost), unit: one.unit ?? "", windows, was: null };
  });
  const shape = ({ cost, unit, windows }) => JSON.stringify([cost, unit, windowsOf(windows)]);
  for (const one of rows) one.was = shape(one);
  patchDialog({
    campaign, done, title: `Limits of ${campaign.id}`, message: `The limits of ${campaign.id} were changed.`,
    fields: rows.map((one, index) => h("fieldset", { dataset: { path: `resources.${index}` } }, h("legend", {}, one.id),
      field(`resources.${index}.unit`, "Unit", { maxlength: 32 }, (value) => (one.unit = value), { value: one.unit }),
      field(`resources.${index}.max_cost`, "Max cost of a decision", { ...AMOUNT, required: true },
        (value) => (one.cost = value), { value: one.cost }),
      h("div", { class: "form-row" }, PERIODS.map((period) =>
        field(`resources.${index}.windows.${period}`, `Per ${period}`, AMOUNT, (value) => (one.windows[period] = value),
          { value: one.windows[period] ?? "" }))))),
    bodyOf: () => {
      const changed = rows.filter((one) => shape(one) !== one.was);
      const resources = changed.map((one) => {
        const [cost, unit, windows] = JSON.parse(one.was);
        return {
          id: one.id,
          ...(one.cost !== cost ? { max_cost: number(one.cost) } : {}),
          ...(one.unit !== unit ? { unit: one.unit.trim() || null } : {}),
          ...(JSON.stringify(windowsOf(one.windows)) !== JSON.stringify(windows) ? { windows: windowsOf(one.windows) } : {}),
        };
      });
      return resources.length ? { resources } : null;
    },
  });
}

export function changeHoldout(campaign, done) {
  const { holdout, arms } = campaign.config;
  const now = { on: Boolean(holdout), fraction: String(100 * (holdout?.fraction ?? 0.05)), arm: holdout?.arm ?? "" };
  const options = [["", "no arm"], ...arms.filter((arm) => !arm.retired).map(({ id, display_name: name }) => [id, name ?? id])];
  patchDialog({
    campaign, done, title: `Hold-out of ${campaign.id}`, message: `The hold-out of ${campaign.id} was changed.`,
    fields: [
      check("holdout", "A baseline decides a share", (on) => (now.on = on), now.on),
      field("holdout.fraction", "Share in %", { type: "number", min: 0.01, max: 99.99, step: "any" },
        (value) => (now.fraction = value), { value: now.fraction }),
      select("holdout.arm", "Baseline", options, (value) => (now.arm = value), { value: now.arm }),
    ],
    bodyOf: () => ({ holdout: now.on ? holdoutOf(now) : null }),
  });
}

export function addArm(campaign, done) {
  const arm = { id: "", name: "", costs: {} };
  const id = { required: true, pattern: ID_PATTERN, maxlength: 128 };
  patchDialog({
    campaign, done, title: `New arm of ${campaign.id}`, message: `The arm was added to ${campaign.id}.`,
    lines: ["What is learnt of the other arms stays; the new one is tried first."],
    fields: [
      field("add_arms.0.id", "Arm", id, (value) => (arm.id = value)),
      field("add_arms.0.display_name", "Name", { maxlength: 500 }, (value) => (arm.name = value)),
      campaign.config.resources.map((one) => field(`add_arms.0.max_cost.${one.id}`, `Max cost in ${one.id}`, AMOUNT,
        (value) => (arm.costs[one.id] = value), { hint: "empty: the resource's" })),
    ],
    bodyOf: () => {
      const costs = Object.entries(arm.costs).filter(([, value]) => value !== "");
      return { add_arms: [{
        id: arm.id, ...(arm.name.trim() ? { display_name: arm.name.trim() } : {}),
        ...(costs.length ? { max_cost: Object.fromEntries(costs.map(([name, value]) => [name, number(value)])) } : {}),
      }] };
    },
  });
}

/** Asks, then sends a change that has no fields. */
function confirmed(campaign, done, { title, line, button, danger = false, body, message }) {
  confirmDialog({
    title, lines: [line], button, danger,
    act: async () => {
      await patch(campaign, body);
      await done(message);
    },
  });
}

export function changeArm(campaign, arm, status, done) {
  const paused = status === "paused";
  confirmed(campaign, done, {
    title: `${paused ? "Pause" : "Activate"} arm ${arm.id}?`, button: paused ? "Pause arm" : "Activate arm",
    line: paused ? "It is not chosen until it is active again. What is learnt of it stays."
      : "It can be chosen again, with what was learnt of it.",
    body: { arms: [{ id: arm.id, status }] }, message: `Arm ${arm.id} is ${status}.`,
  });
}

export function retireArm(campaign, arm, done) {
  confirmed(campaign, done, {
    title: `Retire arm ${arm.id}?`, button: "Retire arm", danger: true,
    line: "It is not chosen any more. Its decisions stay in the log.",
    body: { retire_arms: [arm.id] }, message: `Arm ${arm.id} is retired.`,
  });
}

export function goLive(campaign, done) {
  confirmed(campaign, done, {
    title: `Take ${campaign.id} live?`, button: "Go live",
    line: "From now on the policy decides, with what it has learnt. This cannot be taken back.",
    body: { mode: "live" }, message: `${campaign.id} is live.`,
  });
}
