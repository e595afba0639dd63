// Signing in, where one is, what is kept up to date, and what is said when something fails.

import { Trouble, ask, dropKey, keepKey, keptKey } from "./api.js";
import { campaignPage, explainAt } from "./campaign.js";
import { byId, h, setText } from "./dom.js";
import { overview } from "./overview.js";
import { Refreshing } from "./refreshing.js";
import { clockTime } from "./words.js";

const content = byId("content");
const trouble = byId("trouble");
let holder = null;
let place = null; // what is shown: { path, view, refreshings, dialog }
let live = true;
let troubled = new Set();

const ROLES = { admin: "may change campaigns", reader: "may only look" };

async function start() {
  dressTheme();
  byId("theme").addEventListener("click", nextTheme);
  byId("live").addEventListener("click", () => setLive(!live));
  byId("leave").addEventListener("click", () => signOut());
  window.addEventListener("hashchange", () => holder && route());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => place?.view.redraw?.());
  document.addEventListener("keydown", shortcut);
  if (keptKey()) await signIn(keptKey());
  else showSignIn();
}

async function signIn(key) {
  try {
    holder = await ask("admin/key", { key });
  } catch (error) {
    if (error.status === 401 || error.status === 403 || !keptKey()) {
      dropKey();
      showSignIn(error);
    } else {
      // The key was good a moment ago: it is the service that is away.
      showTrouble("start", error, 3);
      setTimeout(() => keptKey() && !holder && signIn(key), 3000);
    }
    return;
  }
  clearTrouble("start");
  keepKey(key);
  setText(byId("holder"), `${holder.name} (${ROLES[holder.role] ?? holder.role})`);
  byId("leave").hidden = byId("live").hidden = false;
  route();
}

function signOut(error = null) {
  dropKey();
  holder = null;
  leavePlace();
  setText(byId("holder"), "");
  setText(byId("updated"), "");
  byId("leave").hidden = byId("live").hidden = true;
  trouble.hidden = true;
  troubled = new Set();
  showSignIn(error);
}

function showSignIn(error = null) {
  const wrong = h("p", { class: "wrong", role: "alert" }, error ? signInWords(error) : "");
  const field = h("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: "false" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h(
    "form",
    {
      class: "sign-in card",
      onsubmit: (event) => {
        event.preventDefault();
        button.disabled = true;
        wrong.textContent = "";
        signIn(field.value.trim());
      },
    },
    h("h1", {}, "Sign in"),
    h("p", {}, "With an API key of the role reader, to look, or admin, to change things too."),
    h("label", { for: "key" }, "API key"),
    field,
    wrong,
    button,
    h("p", { class: "note" }, "The key is kept for this tab only and forgotten when it is closed. ",
      h("code", {}, "cbwk key create"), " makes one."),
  );
  content.replaceChildren(form);
  document.title = "Sign in · cbwk";
  field.focus();
}

function signInWords(error) {
  if (error.status === 403) return "This key may decide and not look. Take one of the role reader or admin.";
  return error.message;
}

function route() {
  const [, first, id, second, decision] = location.hash.split("/").map(decodeSafely);
  const path = first === "campaigns" && id ? `campaign ${id}` : "overview";
  if (place?.path !== path) {
    leavePlace();
    enter(path, id);
  }
  place.dialog?.then((dialog) => dialog.close());
  place.dialog = path !== "overview" && second === "decisions" && decision ? explainAt(id, decision) : null;
}

function decodeSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody's own typing; there will be no such campaign
  }
}

function enter(path, id) {
  const refreshings = [];
  const here = {
    watch: (load, seconds) => {
      const one = watched(load, seconds, refreshings.length);
      refreshings.push(one);
      return one;
    },
    title: (words) => {
      document.title = `${words} · cbwk`;
    },
    mayChange: holder.role === "admin",
    told: tell,
    failed: (error) => failed("action", error, null),
  };
  const view = path === "overview" ? overview(here) : campaignPage(id, here);
  place = { path, view, refreshings, dialog: null };
  content.replaceChildren(view.element);
  window.scrollTo(0, 0);
  view.heading.focus({ preventScroll: true });
  refreshings.forEach((one) => one.now());
}

function watched(load, seconds, number) {
  const name = `load ${number}`;
  const one = new Refreshing(
    async () => {
      const asked = await load();
      clearTrouble(name);
      setText(byId("updated"), `as of ${clockTime(new Date())}`);
      return asked;
    },
    { seconds, failed: (error, pause) => failed(name, error, pause) },
  );
  one.paused = !live;
  return one;
}

function leavePlace() {
  place?.refreshings.forEach((one) => one.stop());
  place?.view.close?.();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  place = null;
  troubled.clear();
  trouble.hidden = true;
}

function failed(name, error, pause) {
  if (!(error instanceof Trouble)) console.error(error);
  if (error.status === 401) signOut(error);
  else showTrouble(name, error, pause);
}

function showTrouble(name, error, pause) {
  troubled.add(name);
  const again = pause && error.status !== 404 && error.status !== 403 ? ` Trying again in ${Math.round(pause)} s;` : "";
  const shown = again && byId("updated").textContent ? ` what is shown is ${byId("updated").textContent}.` : "";
  setText(trouble, `${error.message}${shown ? again + shown : again.replace(";", ".")}`);
  trouble.hidden = false;
}

function clearTrouble(name) {
  troubled.delete(name);
  if (name !== "action") troubled.delete("action");
  if (!troubled.size) trouble.hidden = true;
}

let telling = null;
function tell(words) {
  const told = byId("told");
  setText(told, words);
  told.classList.add("shown");
  clearTimeout(telling);
  telling = setTimeout(() => told.classList.remove("shown"), 5000);
}

function setLive(value) {
  live = value;
  const button = byId("live");
  button.setAttribute("aria-pressed", String(live));
  setText(button, live ? "Live" : "Stopped");
  place?.refreshings.forEach((one) => one.setPaused(!live));
}

function shortcut(event) {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && place?.view.focusSearch) {
    event.preventDefault();
    place.view.focusSearch();
  }
}

const THEMES = { auto: ["◐", "Theme: system"], light: ["☀", "Theme: light"], dark: ["☾", "Theme: dark"] };

function nextTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length];
  if (next === "auto") {
    localStorage.removeItem("cbwk.theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("cbwk.theme", next);
    document.documentElement.dataset.theme = next;
  }
  dressTheme();
  place?.view.redraw?.();
}

function dressTheme() {
  const [sign, words] = THEMES[document.documentElement.dataset.theme ?? "auto"];
  const button = byId("theme");
  button.replaceChildren(h("span", { "aria-hidden": "true" }, sign), h("span", { class: "words" }, ` ${words}`));
  button.setAttribute("aria-label", words);
}

start();
