// Tables that become cards on a phone, and lists that are fetched a page at a time.

import { ask } from "./api.js";
import { h, setChildren } from "./dom.js";

/** A table: columns are [heading, cell of an item, class?]. */
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

/** A name, with a badge where there is a word for one. */
export function badged(name, word) {
  return h("span", {}, h("b", {}, name), word ? [" ", h("span", { class: "badge" }, word)] : null);
}

/** One figure with its name, for a list of them. */
export const fact = ([name, value]) => h("div", { dataset: { part: name } }, h("dt", {}, name), h("dd", {}, value));

function rowOf(columns, item, rowAttributes) {
  const cells = columns.map(([name, cell, kind]) => h("td", { class: kind, dataset: { label: name } }, cell(item)));
  return h("tr", rowAttributes(item), cells);
}

/** The newest items of a list, kept up to date until older ones are asked for. */
export function newest({ label, path, columns, limit, key, empty, failed, heard = () => {} }) {
  const body = h("tbody", {});
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => older() }, "Older");
  const none = h("p", { class: "empty", hidden: true }, empty);
  const element = h("div", {}, h("table", { class: "cards", "aria-label": label }, headOf(columns), body), none, more);
  let cursor = null;
  let older_shown = false;
  let known = new Map();

  // Rows that did not change stay as they are, so that a focus or a selection does.
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

  async function load() {
    if (older_shown) return;
    const found = await ask(`${path}?limit=${limit}`);
    if (older_shown) return;
    cursor = found.next_cursor;
    heard(found.items);
    show(found.items);
    more.hidden = cursor === null;
  }

  async function older() {
    older_shown = true;
    more.disabled = true;
    try {
      const found = await ask(`${path}?limit=${limit}&cursor=${encodeURIComponent(cursor)}`);
      cursor = found.next_cursor;
      body.append(...found.items.map((item) => rowOf(columns, item, () => ({}))));
      more.hidden = cursor === null;
    } catch (error) {
      failed(error);
    } finally {
      more.disabled = false;
    }
  }
  /** Back to the newest. */
  function fresh() {
    older_shown = false;
  }
  return { element, load, fresh };
}
