// What an administrator may do to a campaign, each after a question.

import { adminPath, ask, campaignPath } from "./api.js";
import { confirmed, openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { amount } from "./words.js";

/** The buttons for a campaign as it stands; `done(words)` is called after a change. */
export function changeButtons(campaign, done) {
  const button = (words, onclick, kind = null) => h("button", { type: "button", class: kind, onclick }, words);
  const act = (action, words) => async () => {
    await ask(`${campaignPath(campaign.id)}/${action}`, { method: "POST" });
    await done(words);
  };
  const pause = () =>
    confirmed({
      title: `Pause ${campaign.id}?`,
      words: ["Every request gets no arm until it is resumed. Open holds stay; feedback is still booked and learnt."],
      button: "Pause",
      act: act("pause", `${campaign.id} is paused.`),
    });
  const resume = () =>
    confirmed({
      title: `Resume ${campaign.id}?`,
      words: ["It decides again from where it stopped, and spends."],
      button: "Resume",
      act: act("resume", `${campaign.id} decides again.`),
    });
  const archive = () =>
    confirmed({
      title: `Archive ${campaign.id}?`,
      words: ["This ends the campaign for good: it cannot be resumed. Its log stays, and late costs are still booked."],
      button: "Archive for good",
      danger: true,
      typed: campaign.id,
      act: act("archive", `${campaign.id} is archived.`),
    });
  if (campaign.status === "archived") return [];
  return [
    campaign.status === "active" ? button("Pause…", pause) : button("Resume…", resume, "primary"),
    button("Change budgets…", () => changeBudgets(campaign, done)),
    button("Correct what was spent…", () => correctSpent(campaign, done)),
    button("Archive…", archive, "danger"),
  ];
}

function changeBudgets(campaign, done) {
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
      wrong.textContent = "Nothing is different yet.";
      wrong.hidden = false;
      return;
    }
    dialog.close();
    confirmed({
      title: `Change budgets of ${campaign.id}?`,
      words: [
        h("ul", { class: "changes" }, changed.map(changeLine)),
        "Nothing learnt is lost; prices move on from where they are.",
      ],
      button: "Change budgets",
      act: async () => {
        const resources = changed.map(({ account, input }) => ({ id: account.id, budget: Number(input.value) }));
        const body = { resources, expected_version: campaign.version };
        await ask(campaignPath(campaign.id), { method: "PATCH", body });
        await done(`The budgets of ${campaign.id} are changed.`);
      },
    });
  };
  const form = h(
    "form",
    { onsubmit: review },
    h("h2", {}, `Budgets of ${campaign.id}`),
    fields.map(({ account, input }) =>
      h("div", { class: "field" },
        h("label", { for: input.id }, account.id), input,
        h("small", {}, `at least ${amount(account.spent + account.held)}: `,
          `${amount(account.spent)} spent, ${amount(account.held)} held`)),
    ),
    wrong,
    h("div", { class: "answers" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, "Look over…")),
  );
  const dialog = openDialog(`Budgets of ${campaign.id}`, {}, form);
}

function changeLine({ account, input }) {
  const by = Number(input.value) - account.granted;
  const change = `${by > 0 ? "+" : "−"}${amount(Math.abs(by))}`;
  const after = h("b", {}, amount(Number(input.value)));
  return h("li", {}, `${account.id}: ${amount(account.granted)} → `, after, ` (${change})`);
}

function correctSpent(campaign, done) {
  const choices = campaign.accounts.map((one) => h("option", { value: one.id }, one.id));
  const resource = h("select", { id: "adjust-resource" }, choices);
  const by = h("input", { type: "number", id: "adjust-amount", step: "any", required: true, inputmode: "decimal" });
  const reason = h("input", { type: "text", id: "adjust-reason", required: true, maxlength: 500 });
  const review = (event) => {
    event.preventDefault();
    const value = Number(by.value);
    const way = value < 0 ? "goes down" : "goes up";
    dialog.close();
    confirmed({
      title: `Correct ${resource.value} of ${campaign.id}?`,
      words: [`What was spent ${way} by ${amount(Math.abs(value))} ${resource.value}: ${reason.value}`],
      button: "Correct",
      act: async () => {
        const body = { resource: resource.value, amount: value, reason: reason.value };
        await ask(adminPath(campaign.id, "adjust"), { method: "POST", body });
        await done(`${resource.value} of ${campaign.id} is corrected.`);
      },
    });
  };
  const dialog = openDialog(
    `Correct what ${campaign.id} has spent`,
    {},
    h("form", { onsubmit: review },
      h("h2", {}, `Correct what ${campaign.id} has spent`),
      h("div", { class: "field" }, h("label", { for: resource.id }, "Resource"), resource),
      h("div", { class: "field" },
        h("label", { for: by.id }, "By how much"), by, h("small", {}, "negative for a refund")),
      h("div", { class: "field" }, h("label", { for: reason.id }, "Why, for the audit"), reason),
      h("div", { class: "answers" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Look over…"))),
  );
}
