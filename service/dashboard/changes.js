// Changes to a campaign by an administrator, each after a confirmation.

import { adminPath, campaignPath, request } from "./api.js";
import { confirmDialog, openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { amount } from "./format.js";

const button = (label, onclick, kind = null) => h("button", { type: "button", class: kind, onclick }, label);

/** Returns the buttons in the head of a campaign; they call `done(message)` after a change. */
export function statusButtons(campaign, done, mayCreate) {
  const clone = mayCreate && h("a", { class: "button", href: `#/new/${encodeURIComponent(campaign.id)}` }, "Clone");
  if (campaign.status === "archived") return clone ? [clone] : [];
  const ask = (action, title, line, message, kind) => () => confirmDialog({
    title, lines: [line], button: kind,
    act: async () => {
      await request(`${campaignPath(campaign.id)}/${action}`, { method: "POST" });
      await done(message);
    },
  });
  const pause = ask("pause", `Pause ${campaign.id}?`,
    "Requests get no arm until it is resumed. Open holds stay; feedback is still booked and learnt.",
    `${campaign.id} is paused.`, "Pause");
  const resume = ask("resume", `Resume ${campaign.id}?`, "It decides again and spends its budgets.",
    `${campaign.id} is active.`, "Resume");
  const toggle = campaign.status === "paused" ? button("Resume…", resume, "primary") : button("Pause…", pause);
  return [toggle, ...(clone ? [clone] : [])];
}

/** Asks twice and archives a campaign. */
export function archive(campaign, done) {
  confirmDialog({
    title: `Archive ${campaign.id}?`,
    lines: ["This ends the campaign permanently: it cannot be resumed. Its log stays; late costs are booked."],
    button: "Archive permanently",
    danger: true,
    typed: campaign.id,
    act: async () => {
      await request(`${campaignPath(campaign.id)}/archive`, { method: "POST" });
      await done(`${campaign.id} is archived.`);
    },
  });
}

export function changeBudgets(campaign, done) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const fields = campaign.accounts.map((account) => ({
    account,
    input: h("input", {
      type: "number", id: `budget-${account.id}`, name: account.id, value: account.granted, step: "any",
      min: account.spent + account.held, max: 9e9, required: true, inputmode: "decimal",
    }),
  }));
  const review = (event) => {
    event.preventDefault();
    const changed = fields.filter(({ account, input }) => Number(input.value) !== account.granted);
    if (!changed.length) {
      wrong.textContent = "No budget was changed.";
      wrong.hidden = false;
      return;
    }
    dialog.close();
    confirmDialog({
      title: `Change budgets of ${campaign.id}?`,
      lines: [
        h("ul", { class: "changes" }, changed.map(changeLine)),
        "The model stays; prices continue from their current values.",
      ],
      button: "Change budgets",
      act: async () => {
        const resources = changed.map(({ account, input }) => ({ id: account.id, budget: Number(input.value) }));
        const body = { resources, expected_version: campaign.version };
        await request(campaignPath(campaign.id), { method: "PATCH", body });
        await done(`The budgets of ${campaign.id} were changed.`);
      },
    });
  };
  const form = h(
    "form",
    { onsubmit: review },
    h("h2", {}, `Budgets of ${campaign.id}`),
    fields.map(({ account, input }) =>
      h("div", { class: "field" },
        h("label", { for: input.id }, account.unit ? `${account.id} (${account.unit})` : account.id), input,
        h("small", {}, `at least ${amount(account.spent + account.held)}: `,
          `${amount(account.spent)} spent, ${amount(account.held)} held`)),
    ),
    wrong,
    h("div", { class: "answers" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, "Review…")),
  );
  const dialog = openDialog(`Budgets of ${campaign.id}`, {}, form);
}

function changeLine({ account, input }) {
  const by = Number(input.value) - account.granted;
  const change = `${by > 0 ? "+" : "−"}${amount(Math.abs(by))}`;
  const after = h("b", {}, amount(Number(input.value)));
  return h("li", {}, `${account.id}: ${amount(account.granted)} → `, after, ` (${change})`);
}

export function adjustSpent(campaign, done) {
  const choices = campaign.accounts.map((one) => h("option", { value: one.id }, one.id));
  const resource = h("select", { id: "adjust-resource" }, choices);
  const by = h("input", { type: "number", id: "adjust-amount", step: "any", required: true, inputmode: "decimal" });
  const reason = h("input", { type: "text", id: "adjust-reason", required: true, maxlength: 500 });
  const review = (event) => {
    event.preventDefault();
    const value = Number(by.value);
    const change = value < 0 ? "decreases" : "increases";
    dialog.close();
    confirmDialog({
      title: `Adjust ${resource.value} of ${campaign.id}?`,
      lines: [`The spent amount ${change} by ${amount(Math.abs(value))} ${resource.value}: ${reason.value}`],
      button: "Adjust",
      act: async () => {
        const body = { resource: resource.value, amount: value, reason: reason.value };
        await request(adminPath(campaign.id, "adjust"), { method: "POST", body });
        await done(`${resource.value} of ${campaign.id} was adjusted.`);
      },
    });
  };
  const title = `Adjust the spent amount of ${campaign.id}`;
  const dialog = openDialog(
    title,
    {},
    h("form", { onsubmit: review },
      h("h2", {}, title),
      h("div", { class: "field" }, h("label", { for: resource.id }, "Resource"), resource),
      h("div", { class: "field" },
        h("label", { for: by.id }, "Amount"), by, h("small", {}, "negative for a refund")),
      h("div", { class: "field" }, h("label", { for: reason.id }, "Reason, for the audit log"), reason),
      h("div", { class: "answers" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Review…"))),
  );
}
