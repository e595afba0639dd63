// A page with all things of one kind and a button that creates one.

import { request } from "./api.js";
import { h } from "./dom.js";
import { table } from "./tables.js";

/** Returns the page. `create(done)` and `columns(done)` get what reads the list again after a change. */
export function listPage({ watch, title }, { name, path, seconds, button, create, columns, empty }) {
  title(name);
  const heading = h("h1", { tabindex: "-1" }, name);
  const place = h("div", { class: "card" }, h("p", { class: "empty" }, "Loading…"));
  const again = () => poller.again();
  const made = h("button", { type: "button", class: "primary", onclick: () => create(again) }, button);
  let shownFor = "";

  async function load() {
    const begin = performance.now();
    const { items } = await request(`${path}?limit=1000`);
    const took = performance.now() - begin;
    if (JSON.stringify(items) !== shownFor) {
      shownFor = JSON.stringify(items);
      place.replaceChildren(items.length ? table(name, columns(again), items) : h("p", { class: "empty" }, empty));
    }
    return took;
  }
  const poller = watch(load, seconds);
  const element = h("div", {}, h("p", { class: "back" }, h("a", { href: "#/" }, "← All campaigns")),
    h("div", { class: "campaign-head" }, heading, made), place);
  return { element, heading };
}
