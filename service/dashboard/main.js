// Sign-in, routing, polling and error messages.

import { ServiceError, deleteKey, request, storeKey, storedKey } from "./api.js";
import { campaignPage, explainAt, isTab } from "./campaign.js";
import { createPage } from "./create.js";
import { byId, h, setText } from "./dom.js";
import { auditPage, keysPage } from "./keys.js";
import { overview } from "./overview.js";
import { portfolioPage } from "./portfolio.js";
import { Poller } from "./poller.js";
import { clockTime } from "./format.js";
import { deliveriesPage, webhooksPage } from "./webhooks.js";

const content = byId("content");
const alertBar = byId("alert");
let holder = null;
let place = null; // the page that is shown: { path, view, pollers, dialog }
let live = true;
let failing = new Set(); // names of loads that failed last time

const ROLES = { admin: "admin", reader: "read-only" };

async function start() {
  showTheme();
  byId("theme").addEventListener("click", nextTheme);
  byId("live").addEventListener("click", () => setLive(!live));
  byId("leave").addEventListener("click", () => signOut());
  window.addEventListener("hashchange", () => holder && route());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => place?.view.redraw?.());
  document.addEventListener("keydown", shortcut);
  if (storedKey()) await signIn(storedKey());
  else showSignIn();
}

async function signIn(key) {
  try {
    holder = await request("admin/key", { key });
  } catch (error) {
    if (error.status === 401 || error.status === 403 || !storedKey()) {
      deleteKey();
      showSignIn(error);
    } else {
      // The key was valid before: the service is not reachable.
      showError("start", error, 3);
      setTimeout(() => storedKey() && !holder && signIn(key), 3000);
    }
    return;
  }
  clearError("start");
  storeKey(key);
  setText(byId("holder"), `${holder.name} (${ROLES[holder.role] ?? holder.role})`);
  byId("leave").hidden = byId("live").hidden = false;
  byId("places").hidden = holder.role !== "admin" || Boolean(holder.campaigns);
  route();
}

function signOut(error = null) {
  deleteKey();
  holder = null;
  leavePlace();
  setText(byId("holder"), "");
  setText(byId("updated"), "");
  byId("leave").hidden = byId("live").hidden = byId("places").hidden = true;
  alertBar.hidden = true;
  failing = new Set();
  showSignIn(error);
}

function showSignIn(error = null) {
  const wrong = h("p", { class: "wrong", role: "alert" }, error ? signInMessage(error) : "");
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
    h("p", {}, "With an API key of the role reader (read-only) or admin."),
    h("label", { for: "key" }, "API key"),
    field,
    wrong,
    button,
    h("p", { class: "note" }, "The key is stored for this tab only, until it is closed. ",
      h("code", {}, "cbwk key create"), " creates one."),
  );
  content.replaceChildren(form);
  document.title = "Sign in · cbwk";
  field.focus();
}

function signInMessage(error) {
  if (error.status === 403) return "This key has the role decider. Use one with the role reader or admin.";
  return error.message;
}

/** The page and its tab for an address; the tab "" belongs to pages without tabs. */
function placeOf([, first = "", second, third, fourth]) {
  if (!first) return { path: "overview", make: overview, tab: "" };
  if (first === "campaigns" && second && (!third || isTab(third)) && (!fourth || third === "decisions")) {
    return { path: `campaign ${second}`, make: (here) => campaignPage(second, here), tab: third || "overview" };
  }
  if (first === "portfolios" && second && !third) {
    return { path: `portfolio ${second}`, make: (here) => portfolioPage(second, here), tab: "" };
  }
  const mayCreate = holder.role === "admin" && !holder.campaigns;
  if (first === "new" && mayCreate) return { path: `new ${second}`, make: (here) => createPage(second, here), tab: "" };
  if (first === "keys" && mayCreate && !second) return { path: first, make: keysPage, tab: "" };
  if (first === "audit" && mayCreate && !second) return { path: first, make: auditPage, tab: "" };
  if (first === "webhooks" && mayCreate && !third) {
    return second ? { path: `webhook ${second}`, make: (here) => deliveriesPage(second, here), tab: "" }
      : { path: first, make: webhooksPage, tab: "" };
  }
  return { path: `nothing at ${location.hash}`, make: () => notFoundPage(), tab: "" };
}

function route() {
  const parts = location.hash.split("/").map(decodeSafely);
  const { path, make, tab } = placeOf(parts);
  if (place?.path !== path) {
    leavePlace();
    enter(path, make);
  }
  if (tab) place.view.show?.(tab);
  place.dialog?.then((dialog) => dialog.close());
  place.dialog = tab === "decisions" && parts[4] ? explainAt(parts[2], parts[4]) : null;
  for (const link of byId("places").querySelectorAll("a")) {
    const here = location.hash === link.hash;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function notFoundPage(what = "page") {
  document.title = "404 · cbwk";
  const heading = h("h1", { tabindex: "-1" }, "404: not found");
  const text = what === "campaign" ? "This campaign does not exist, or this key has no access to it."
    : "There is no page at this address.";
  return { element: h("div", { class: "card not-found" }, heading, h("p", {}, text),
    h("p", {}, h("a", { href: "#/" }, "All campaigns"))), heading };
}

/** Shows that the campaign of the present page does not exist. */
function campaignNotFound() {
  place.pollers.forEach((one) => one.stop());
  place.view.close?.();
  place.view = notFoundPage("campaign");
  content.replaceChildren(place.view.element);
  place.view.heading.focus({ preventScroll: true });
}

function decodeSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand: no campaign has this id
  }
}

function enter(path, make) {
  const pollers = [];
  const here = {
    watch: (load, seconds) => {
      const one = watched(load, seconds, pollers.length);
      pollers.push(one);
      return one;
    },
    title: (text) => {
      document.title = `${text} · cbwk`;
    },
    mayChange: holder.role === "admin",
    mayCreate: holder.role === "admin" && !holder.campaigns,
    notFound: campaignNotFound,
    notify,
    failed: (error) => failed("action", error, null),
  };
  const view = make(here);
  place = { path, view, pollers, dialog: null };
  content.replaceChildren(view.element);
  window.scrollTo(0, 0);
  view.heading.focus({ preventScroll: true });
  pollers.forEach((one) => one.now());
}

function watched(load, seconds, number) {
  const name = `load ${number}`;
  const one = new Poller(
    async () => {
      const took = await load();
      clearError(name);
      setText(byId("updated"), `as of ${clockTime(new Date())}`);
      return took;
    },
    { seconds, failed: (error, pause) => failed(name, error, pause) },
  );
  one.paused = !live;
  return one;
}

function leavePlace() {
  place?.pollers.forEach((one) => one.stop());
  place?.view.close?.();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  place = null;
  failing.clear();
  alertBar.hidden = true;
}

function failed(name, error, pause) {
  if (!(error instanceof ServiceError)) console.error(error);
  if (error.status === 401) signOut(error);
  else showError(name, error, pause);
}

function showError(name, error, pause) {
  failing.add(name);
  const again = pause && error.status !== 404 && error.status !== 403 ? ` Retrying in ${Math.round(pause)} s;` : "";
  const shown = again && byId("updated").textContent ? ` the data shown is ${byId("updated").textContent}.` : "";
  setText(alertBar, `${error.message}${shown ? again + shown : again.replace(";", ".")}`);
  alertBar.hidden = false;
}

function clearError(name) {
  failing.delete(name);
  if (name !== "action") failing.delete("action");
  if (!failing.size) alertBar.hidden = true;
}

let noticeTimer = null;
function notify(text) {
  const notice = byId("notice");
  setText(notice, text);
  notice.classList.add("shown");
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => notice.classList.remove("shown"), 5000);
}

function setLive(value) {
  live = value;
  const button = byId("live");
  button.setAttribute("aria-pressed", String(live));
  setText(button, live ? "Live" : "Stopped");
  place?.pollers.forEach((one) => one.setPaused(!live));
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
  showTheme();
  place?.view.redraw?.();
}

function showTheme() {
  const [sign, label] = THEMES[document.documentElement.dataset.theme ?? "auto"];
  const button = byId("theme");
  button.replaceChildren(h("span", { "aria-hidden": "true" }, sign), h("span", { class: "label" }, ` ${label}`));
  button.setAttribute("aria-label", label);
}

start();
