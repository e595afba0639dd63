// Commands to copy: what a caller sends, as curl.

import { ROOT, adminPath } from "./api.js";
import { h } from "./dom.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns a command for a shell; the key is taken from the environment and never shown. */
export function curlOf(method, address, body = null) {
  const lines = [`curl -sS -X ${method} ${quoted(address)}`, '  -H "Authorization: Bearer $CBWK_API_KEY"'];
  if (body) lines.push("  -H 'Content-Type: application/json'", `  -d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n");
}

/** Returns a button that copies a text; where the browser does not allow that, the text can be marked by hand. */
export function copyButton(label, text) {
  const button = h("button", { type: "button", class: "copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Mark the text and copy it";
    }
    setTimeout(() => (button.textContent = label), 2000);
  } }, label);
  return button;
}

/** Returns a text to copy, under a heading. */
export function copied(title, text) {
  return h("div", { class: "copied" },
    h("div", { class: "section-head" }, h("h3", {}, title), copyButton(`Copy ${title}`, () => text)),
    h("pre", { tabindex: 0, "aria-label": title }, text));
}

/** Returns an example of the context that a campaign declares. */
export function exampleContext({ features, dimension }) {
  if (!features) return Array(dimension).fill(0.5);
  const valueOf = (feature) =>
    feature.type === "number" ? feature.min : feature.type === "category" ? feature.values[0] : "example";
  return Object.fromEntries(features.map((feature) => [feature.name, valueOf(feature)]));
}

/** Returns a card with the commands that ask for a decision and report its outcome. */
export function connectCard(campaign, title) {
  const { config } = campaign;
  const decision = `try-${Array.from(crypto.getRandomValues(new Uint8Array(4)), (one) => one.toString(16)).join("")}`;
  const ask = {
    campaign_id: campaign.id, decision_id: decision, context: exampleContext(config.context),
    ...(config.mode === "shadow" ? { baseline_arm: config.arms[0]?.id ?? null } : {}),
    ...(config.arms.length ? {} : { actions: [{ id: "a", features: exampleContext(config.arm_features) }] }),
  };
  const costs = Object.fromEntries(config.resources.map((one) => [one.id, one.max_cost]));
  const tell = { campaign_id: campaign.id, decision_id: decision, reward: config.reward.max, costs };
  const address = (path) => new URL(path, ROOT).href;
  return h("div", { class: "card connect" }, h("h2", {}, title),
    h("p", {}, "Ask for a decision, act on it, and report what it earned and cost. Both take a key of the role decider in ",
      h("code", {}, "CBWK_API_KEY"), "."),
    copied("curl for a decision", curlOf("POST", address("decide"), ask)),
    copied("curl for feedback", curlOf("POST", address("feedback"), tell)),
    h("p", { class: "note" }, "All decisions as a file: ",
      copyButton("Copy curl for an export", () => curlOf("GET", address(adminPath(campaign.id, "export"))))));
}
