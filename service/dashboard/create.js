// The form that creates a campaign, empty or from an existing one.

import { ROOT, campaignPath, now, request } from "./api.js";
import { copied, curlOf } from "./connect.js";
import { h } from "./dom.js";
import {
  PERIODS, arm, bodyOf, draftOf, feature, forgetArm, newDraft, renameArm, renameResource, resource,
} from "./draft.js";
import { AMOUNT, COUNT, ID_PATTERN, check, field, select, showErrors } from "./fields.js";

const ID = { required: true, pattern: ID_PATTERN, maxlength: 128, title: "letters, digits and . _ : ~ -, first a letter or digit" };
const NAME = { maxlength: 500 };

/** Returns the page; `from` is the id of the campaign to copy, if any. */
export function createPage(from, { title, notify, failed, notFound }) {
  const heading = h("h1", { tabindex: "-1" }, from ? `Copy of ${from}` : "New campaign");
  const body = h("div", {}, h("p", { class: "empty" }, "Loading…"));
  title(heading.textContent);
  if (from) {
    request(campaignPath(from)).then(({ config }) => show(draftOf(config, now())), (error) =>
      error.status === 404 ? notFound() : failed(error));
  } else {
    show(newDraft(new Date(now()).toISOString().slice(0, 10)));
  }

  function show(draft) {
    const form = campaignForm(draft, (made) => {
      notify(`${made.id} was created.`);
      location.hash = `#/campaigns/${encodeURIComponent(made.id)}`;
    });
    body.replaceChildren(form);
  }
  const back = h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns"));
  return { element: h("div", { class: "create" }, back, heading, body), heading };
}

function campaignForm(draft, created) {
  const preview = h("div", { class: "preview card" });
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: "primary" }, "Create campaign");

  const changed = () => {
    const made = bodyOf(draft);
    preview.replaceChildren(
      h("h2", {}, "What is sent"),
      copied("JSON", JSON.stringify(made, null, 2)),
      copied("curl", curlOf("POST", new URL("campaigns", ROOT).href, made)));
  };
  const put = (target, name) => (value) => {
    target[name] = value;
    changed();
  };
  // Groups are drawn again when their parts come and go: names of resources appear at arms and windows.
  const groups = {};
  const redraw = (...names) => {
    for (const name of names) groups[name].replaceChildren(...CONTENTS[name](draft, put, edit).filter(Boolean));
    changed();
  };
  const edit = { redraw };
  for (const name of Object.keys(CONTENTS)) groups[name] = h("fieldset", { class: "card" });

  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    wrong.hidden = true;
    try {
      created(await request("campaigns", { method: "POST", body: bodyOf(draft) }));
    } catch (error) {
      const others = showErrors(form, error.kind === "campaign-exists"
        ? { errors: [{ field: "id", message: "is the id of another campaign" }] } : error);
      wrong.textContent = others.join("; ") || "Some fields have a value that the service refuses; see above.";
      wrong.hidden = false;
      button.disabled = false;
    }
  };
  const form = h("form", { class: "campaign-form", onsubmit: submit, novalidate: true, "aria-label": "New campaign" },
    h("div", { class: "groups" }, Object.values(groups), wrong, h("div", { class: "answers" },
      h("a", { class: "button", href: "#/" }, "Cancel"), button)),
    preview);
  redraw(...Object.keys(CONTENTS));
  return form;
}

const legend = (text, note = null) => [h("legend", {}, text), note ? h("p", { class: "note" }, note) : null];

function remover(items, index, what, redraw) {
  return h("div", { class: "field" }, h("button", {
    type: "button", "aria-label": `Remove ${what} ${index + 1}`, disabled: items.length === 1,
    onclick: () => {
      items.splice(index, 1);
      redraw();
    },
  }, "Remove"));
}

function adder(label, items, make, redraw) {
  return h("button", {
    type: "button", onclick: () => {
      items.push(make());
      redraw();
    },
  }, label);
}

const row = (...children) => h("div", { class: "form-row" }, ...children);

const CONTENTS = {
  names: (draft, put) => [
    ...legend("Name"),
    row(field("id", "Id", ID, put(draft, "id"), { value: draft.id, hint: "callers use it; it cannot change" }),
      field("display_name", "Name", NAME, put(draft, "display_name"), { value: draft.display_name, hint: "for people" })),
    notes(draft, put),
  ],

  resources: (draft, put, { redraw }) => [
    ...legend("Resources", "What decisions cost, and how much of it there is. No decision costs more than its max cost."),
    ...draft.resources.map((one, index) => h("div", { class: "item" },
      row(
        field(`resources.${index}.id`, "Resource", ID, (value) => {
          renameResource(draft, one, value);
          redraw("arms");
        }, { value: one.id }),
        field(`resources.${index}.unit`, "Unit", { maxlength: 32 }, put(one, "unit"), { value: one.unit }),
        field(`resources.${index}.budget`, "Budget", { ...AMOUNT, required: true }, put(one, "budget"), { value: one.budget }),
        field(`resources.${index}.max_cost`, "Max cost of a decision", { ...AMOUNT, required: true },
          put(one, "max_cost"), { value: one.max_cost }),
        remover(draft.resources, index, "resource", () => redraw("resources", "arms"))),
      h("details", { open: Object.keys(one.windows).length > 0, dataset: { path: `resources.${index}.windows` } },
        h("summary", {}, "Windows: at most this per period"),
        row(PERIODS.map((period) => {
          const path = `resources.${index}.windows.${PERIODS.indexOf(period)}`;
          return field(`${path}-${period}`, `Per ${period}`, AMOUNT, put(one.windows, period), { value: one.windows[period] ?? "" });
        }))))),
    adder("Add a resource", draft.resources, resource, () => redraw("resources", "arms")),
  ],

  arms: (draft, put, { redraw }) => [
    ...legend("Arms", "What a decision chooses from. An arm without a max cost has that of the resource."),
    ...draft.arms.map((one, index) => h("div", { class: "item" },
      row(
        field(`arms.${index}.id`, "Arm", ID, (value) => {
          renameArm(draft, one, value);
          redraw("baseline");
        }, { value: one.id }),
        field(`arms.${index}.display_name`, "Name", NAME, (value) => {
          one.display_name = value;
          redraw("baseline");
        }, { value: one.display_name }),
        draft.resources.map(({ id }, place) => id && field(`arms.${index}.max_cost.${id}`, `Max cost in ${id}`, AMOUNT,
          put(one.max_cost, id), { value: one.max_cost[id] ?? "", hint: place ? null : "empty: the resource's" })),
        remover(draft.arms, index, "arm", () => {
          forgetArm(draft, one.id);
          redraw("arms", "baseline");
        })))),
    adder("Add an arm", draft.arms, arm, () => redraw("arms", "baseline")),
  ],

  flight: (draft, put, { redraw }) => [
    ...legend("Flight"),
    row(
      select("end", "It ends", [["horizon", "after decisions"], ["ends_at", "at a date"]], (value) => {
        draft.end = value;
        redraw("flight");
      }, { value: draft.end }),
      draft.end === "horizon"
        ? field("horizon", "Expected decisions", { ...COUNT, required: true }, put(draft, "horizon"), { value: draft.horizon })
        : field("ends_at", "End", { type: "datetime-local", required: true }, put(draft, "ends_at"),
          { value: draft.ends_at, hint: "your local time" }),
      field("starts_at", "Start", { type: "datetime-local" }, put(draft, "starts_at"),
        { value: draft.starts_at, hint: "your local time; empty: at once" }),
      field("timezone", "Time zone of windows", { required: true }, put(draft, "timezone"), { value: draft.timezone })),
  ],

  context: (draft, put, { redraw }) => [
    ...legend("Features", "What a request says about its visitor; the policy learns which arm suits whom."),
    ...(draft.dimension ? [h("p", {}, `A list of ${draft.dimension} numbers, as in the original.`)] : [
      ...draft.features.map((one, index) => featureItem(one, index, draft, put, () => redraw("context"))),
      adder("Add a feature", draft.features, feature, () => redraw("context")),
    ]),
  ],

  feedback: (draft, put) => [
    ...legend("Reward and feedback"),
    row(
      field("reward.min", "Least reward", { type: "number", step: "any" }, put(draft.reward, "min"), { value: draft.reward.min }),
      field("reward.max", "Largest reward", { type: "number", step: "any" }, put(draft.reward, "max"), { value: draft.reward.max }),
      field("feedback.ttl_seconds", "Feedback comes within (seconds)", { ...COUNT }, put(draft.feedback, "ttl_seconds"),
        { value: draft.feedback.ttl_seconds })),
    row(
      field("feedback.missing_reward", "Reward if none comes", { type: "number", step: "any" },
        put(draft.feedback, "missing_reward"), { value: draft.feedback.missing_reward, hint: "empty: teaches nothing" }),
      select("feedback.missing_cost", "Cost if none comes",
        [["hold", "its max cost"], ["none", "nothing"]], put(draft.feedback, "missing_cost"),
        { value: draft.feedback.missing_cost, hint: "its max cost: nothing is overspent unseen" })),
  ],

  baseline: (draft, put, { redraw }) => [
    ...legend("Choice and comparison"),
    row(
      select("floor_arm", "Floor arm", [["", "none"], ...armOptions(draft)], put(draft, "floor"),
        { value: draft.floor, hint: "at worst it is played; none: a request may get no arm" }),
      select("mode", "Mode", [["live", "live: the policy decides"], ["shadow", "shadow: it watches"]],
        put(draft, "mode"), { value: draft.mode, hint: "shadow: the caller decides, the policy watches" }),
      check("holdout", "Hold-out: a baseline decides a share", (on) => {
        draft.holdout.on = on;
        redraw("baseline");
      }, draft.holdout.on)),
    draft.holdout.on ? row(
      field("holdout.fraction", "Share in %", { type: "number", min: 0.01, max: 99.99, step: "any", required: true },
        put(draft.holdout, "fraction"), { value: draft.holdout.fraction }),
      select("holdout.arm", "Baseline", [["", "no arm"], ...armOptions(draft)], put(draft.holdout, "arm"),
        { value: draft.holdout.arm })) : null,
  ],
};

const armOptions = (draft) => draft.arms.map(({ id, display_name: name }) => [id, name || id]);

function notes(draft, put) {
  const area = h("textarea", { id: "field-metadata", rows: 2, placeholder: "owner: growth" });
  area.value = draft.metadata;
  area.addEventListener("input", () => put(draft, "metadata")(area.value));
  return h("div", { class: "field", dataset: { path: "metadata" } },
    h("label", { for: area.id }, "Notes"), area, h("small", {}, "up to 20 lines “name: value”"));
}

const TYPES = [["number", "a number"], ["category", "one of a list"], ["hash", "any text"]];

function featureItem(one, index, draft, put, redraw) {
  const path = `context.features.${index}`;
  const number = { type: "number", step: "any", required: true };
  const kinds = {
    number: [
      field(`${path}.min`, "From", number, put(one, "min"), { value: one.min }),
      field(`${path}.max`, "To", number, put(one, "max"), { value: one.max }),
    ],
    category: [field(`${path}.values`, "Values", { required: true }, put(one, "values"),
      { value: one.values, hint: "separated by commas", broad: true })],
    hash: [field(`${path}.buckets`, "Buckets", COUNT, put(one, "buckets"), { value: one.buckets })],
  };
  return h("div", { class: "item", dataset: { path } }, row(
    field(`${path}.name`, "Feature", { required: true }, put(one, "name"), { value: one.name }),
    select(`${path}.type`, "Kind", TYPES, (value) => {
      one.type = value;
      redraw();
    }, { value: one.type }),
    ...kinds[one.type],
    field(`${path}.default`, "If missing", {}, put(one, "default"), { value: one.default, hint: "empty: refuse" }),
    one.type === "hash" ? null : check(`${path}.strict`, "Refuse other values", put(one, "strict"), one.strict),
    remover(draft.features, index, "feature", redraw)));
}
