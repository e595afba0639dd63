// Tab "Settings": the configuration, and for administrators what can be changed.

import { adjustSpent, archive, changeBudgets } from "./changes.js";
import { connectCard } from "./connect.js";
import { h } from "./dom.js";
import { amounts, armNames, fullMoment, moment, percent, unitNames, whole, withUnit } from "./format.js";
import { addArm, changeArm, changeDates, changeHoldout, changeLimits, changeNames, goLive, retireArm } from "./patches.js";
import { badged, fact, section, table } from "./tables.js";

export function settingsTab({ mayChange, changed }) {
  const element = h("div", {});
  let shownFor = "";
  let connect = null;

  function update(campaign) {
    const signature = JSON.stringify([campaign.status, campaign.version, campaign.accounts.map((one) => one.granted)]);
    if (signature === shownFor) return;
    shownFor = signature;
    connect ??= connectCard(campaign, "Use it");
    const open = mayChange && campaign.status !== "archived";
    const button = (label, act, kind = null) =>
      open && h("button", { type: "button", class: kind, onclick: () => act(campaign, changed) }, label);
    const { config } = campaign;
    const card = (name, title, body, ...buttons) =>
      section(name, title, h("div", { class: "card" }, body), h("div", { class: "buttons" }, buttons));
    element.replaceChildren(
      card("names", "Name", facts([
        ["Id", campaign.id], ["Name", config.display_name ?? "–"],
        ...Object.entries(config.metadata ?? {}),
      ]), button("Change names…", changeNames)),
      card("budget-settings", "Budgets and limits", budgets(campaign),
        button("Change budgets…", changeBudgets), button("Change limits…", changeLimits), button("Adjust spent…", adjustSpent)),
      card("flight-settings", "Flight", flight(campaign), button("Change dates…", changeDates)),
      card("arm-settings", "Arms", arms(campaign, open, changed), config.model === "per_arm" && button("Add arm…", addArm)),
      card("comparison-settings", "Comparison", comparison(config),
        config.mode !== "shadow" && button("Change hold-out…", changeHoldout), config.mode === "shadow" && button("Go live…", goLive)),
      section("connect", "Connection", connect),
      card("configuration", "Configuration", h("details", {}, h("summary", {}, `JSON, version ${campaign.version}`),
        h("pre", { tabindex: 0, "aria-label": "Configuration" }, JSON.stringify(config, null, 2))),
        button("Archive…", archive, "danger")),
    );
  }
  return { element, update, loads: [], charts: () => [] };
}

const facts = (pairs) => h("dl", { class: "facts big" }, pairs.map(fact));

function budgets({ accounts, config }) {
  const declared = new Map(config.resources.map((one) => [one.id, one]));
  const windows = (one) => (declared.get(one.id).windows ?? []).map(({ period, limit }) => `${withUnit(limit, one)} per ${period}`);
  return table("Budgets and limits", [
    ["Resource", (one) => h("b", {}, one.id)],
    ["Budget", (one) => withUnit(one.granted, one), "number"],
    ["Max cost of a decision", (one) => withUnit(declared.get(one.id).max_cost, one), "number"],
    ["Windows", (one) => windows(one).join(", ") || "–"],
  ], accounts);
}

function flight({ config, status, created_at: created }) {
  const at = (value) => h("span", { title: fullMoment(value) }, moment(value));
  return facts([
    ["Status", status],
    config.ends_at ? ["End", at(config.ends_at)] : ["Expected decisions", whole(config.horizon)],
    ["Start", config.starts_at ? at(config.starts_at) : h("span", {}, "when it was created, ", at(created))],
    ["Time zone of windows", config.timezone ?? "UTC"],
  ]);
}

function arms(campaign, open, changed) {
  const { config } = campaign;
  const unit = unitNames(config);
  if (!config.arms.length) return h("p", {}, "Requests bring their own arms.");
  const standing = (arm) => (arm.retired ? "retired" : arm.status === "paused" ? "paused" : null);
  const button = (arm, label, act) =>
    h("button", { type: "button", "aria-label": `${label} arm ${arm.id}`, onclick: act }, `${label}…`);
  const actions = (arm) => h("span", { class: "buttons" },
    standing(arm) ? button(arm, "Activate", () => changeArm(campaign, arm, "active", changed))
      : button(arm, "Pause", () => changeArm(campaign, arm, "paused", changed)),
    arm.retired ? null : button(arm, "Retire", () => retireArm(campaign, arm, changed)));
  return table("Arms of the campaign", [
    ["Arm", (arm) => badged(arm.id, standing(arm))],
    ["Name", (arm) => arm.display_name ?? "–"],
    ["Max cost", (arm) => (arm.max_cost ? amounts(arm.max_cost, unit) : "the resource's")],
    ...(open ? [["Change", actions, "why"]] : []),
  ], config.arms);
}

function comparison({ mode, holdout, arms: known }) {
  const nameOf = armNames({ arms: known });
  return facts([
    ["Mode", mode === "shadow" ? "shadow: the caller decides" : "live: the policy decides"],
    ["Hold-out", holdout ? `${percent(holdout.fraction, 2)} of the decisions: ${holdout.arm === null ? "no arm" : nameOf(holdout.arm)}` : "none"],
  ]);
}
