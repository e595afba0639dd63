// Tables that become cards on a phone, and lists that load page by page.

import { request } from "./api.js";
import { h, setChildren } from "./dom.js";

/** Creates a table; a column is [heading, function from item to cell, class?]. */
export function table(label, columns, items, rowAttributes = () => ({})) {
  return h(
    "table",
    { class: "cards", "aria-label": label },
    headOf(columns),
    h("tbody", {}, items.map((item) => rowOf(columns, item, rowAttributes))),
  );
}

function headOf(columns) {
  return h("thead", {}, h("tr", {}, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind }, name))));
}

/** Creates a name with an optional badge. */
export function badged(name, badge) {
  return h("span", {}, h("b", {}, name), badge ? [" ", h("span", { class: "badge" }, badge)] : null);
}

/** Creates one entry of a list of figures. */
export const fact = ([name, value]) => h("div", { dataset: { part: name } }, h("dt", {}, name), h("dd", {}, value));

/** Creates a section with a heading. */
export function section(name, title, body, button = null) {
  const heading = h("h2", { id: `h-${name}` }, title);
  return h("section", { "aria-labelledby": heading.id }, h("div", { class: "section-head" }, heading, button), body);
}

function rowOf(columns, item, rowAttributes) {
  const cells = columns.map(([name, cell, kind]) => h("td", { class: kind, dataset: { label: name } }, cell(item)));
  return h("tr", rowAttributes(item), cells);
}

// Pages in a row that may be empty: a selective list reads a part of the log per page.
const EMPTY_PAGES_MAX = 10;

/** Creates a table of the newest items of a list; `load` updates it until older items are shown. `query` returns
    further parameters. */
export function newest({ label, path, columns, limit, key, empty, failed, loaded = () => {}, query = () => "" }) {
  const body = h("tbody", {});
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => older() }, "Older");
  const none = h("p", { class: "empty", hidden: true }, empty);
  const element = h("div", {}, h("table", { class: "cards", "aria-label": label }, headOf(columns), body), none, more);
  let cursor = null;
  let olderShown = false;
  let known = new Map();

  // Unchanged rows stay, and with them the focus and the selection.
  function show(items) {
    const next = new Map();
    for (const item of items) {
      const signature = JSON.stringify(item);
      const before = known.get(item[key]);
      const same = before?.signature === signature;
      next.set(item[key], same ? before : { signature, row: rowOf(columns, item, () => ({})) });
    }
    setChildren(body, [...next.values()].map((one) => one.row));
    known = next;
    none.hidden = items.length > 0;
  }

  async function pageFrom(start) {
    const items = [];
    let next = start;
    for (let page = 0; page < EMPTY_PAGES_MAX; page += 1) {
      const rest = next ? `&cursor=${encodeURIComponent(next)}` : "";
      const found = await request(`${path}?limit=${limit}${query()}${rest}`);
      items.push(...found.items);
      next = found.next_cursor;
      if (items.length || !next) break;
    }
    return { items, next_cursor: next };
  }

  async function load() {
    const asked = query();
    if (olderShown) return;
    const found = await pageFrom(null);
    if (olderShown || asked !== query()) return;
    cursor = found.next_cursor;
    loaded(found.items);
    show(found.items);
    more.hidden = cursor === null;
  }

  async function older() {
    olderShown = true;
    more.disabled = true;
    try {
      const found = await pageFrom(cursor);
      cursor = found.next_cursor;
      body.append(...found.items.map((item) => rowOf(columns, item, () => ({}))));
      more.hidden = cursor === null;
    } catch (error) {
      failed(error);
    } finally {
      more.disabled = false;
    }
  }
  /** Returns to the newest items. */
  function reset() {
    olderShown = false;
  }
  return { element, load, reset };
}
