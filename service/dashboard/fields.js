// Fields of forms: each belongs to a place of the request's body and shows what the service says about that place.

import { h } from "./dom.js";

export const ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9._:~\\-]{0,127}";
export const AMOUNT = { type: "number", step: 0.000001, min: 0, max: 9e9, inputmode: "decimal" };
export const COUNT = { type: "number", step: 1, min: 1, inputmode: "numeric" };

/** Returns a labelled input for `path` ("resources.0.budget"); `changed(value)` gets its text. */
export function field(path, label, attributes, changed, { hint = null, value = "", broad = false } = {}) {
  const id = `field-${path.replaceAll(".", "-")}`;
  const input = h("input", { id, autocomplete: "off", spellcheck: "false", ...attributes, value });
  return wrapped(path, label, input, changed, hint, broad ? "field broad" : "field");
}

/** Returns a labelled choice of [value, text] pairs. */
export function select(path, label, options, changed, { hint = null, value = "" } = {}) {
  const id = `field-${path.replaceAll(".", "-")}`;
  const input = h("select", { id }, options.map(([key, text]) =>
    h("option", { value: key, selected: String(key) === String(value) }, text)));
  return wrapped(path, label, input, changed, hint);
}

/** Returns a labelled checkbox. */
export function check(path, label, changed, checked) {
  const id = `field-${path.replaceAll(".", "-")}`;
  const input = h("input", { id, type: "checkbox", checked, onchange: () => changed(input.checked) });
  return h("div", { class: "field", dataset: { path } }, h("label", { class: "check", for: id }, input, ` ${label}`));
}

function wrapped(path, label, input, changed, hint, kind = "field") {
  const wrapper = h("div", { class: kind, dataset: { path } }, h("label", { for: input.id }, label), input,
    hint ? h("small", {}, hint) : null);
  input.addEventListener("input", () => {
    complain(wrapper, input, "");
    changed(input.value);
  });
  // As the service would: at once, and not only at the end.
  input.addEventListener("change", () => complain(wrapper, input, input.checkValidity() ? "" : input.validationMessage));
  return wrapper;
}

function complain(wrapper, input, text) {
  wrapper.querySelector(".wrong")?.remove();
  input?.toggleAttribute("aria-invalid", false);
  input?.removeAttribute("aria-describedby");
  if (!text) return;
  if (wrapper.tagName === "DETAILS") wrapper.open = true;
  const id = `${input?.id ?? `field-${wrapper.dataset.path}`}-wrong`;
  wrapper.append(h("p", { class: "wrong", id }, text));
  input?.setAttribute("aria-invalid", "true");
  input?.setAttribute("aria-describedby", id);
}

/** Shows the errors of a refused request at the fields they name; returns the texts that have no field. */
export function showErrors(form, error) {
  for (const wrapper of form.querySelectorAll("[data-path]")) complain(wrapper, inputOf(wrapper), "");
  const others = [];
  let first = null;
  for (const { field: place, pointer, message } of error.errors ?? []) {
    const path = pointer ? pointer.replace(/^[#/]*/, "").replaceAll("/", ".") : place;
    const wrapper = nearest(form, path);
    const text = message.charAt(0).toUpperCase() + message.slice(1);
    if (wrapper) {
      complain(wrapper, inputOf(wrapper), path === wrapper.dataset.path ? text : `${path}: ${text}`);
      first ??= inputOf(wrapper);
    } else {
      others.push(`${path}: ${message}`);
    }
  }
  first?.focus();
  return error.errors?.length ? others : [error.message];
}

const inputOf = (wrapper) => wrapper.querySelector("input, select, textarea");

/** The field of a place, or of the part of the body around it. */
function nearest(form, path) {
  const wrappers = [...form.querySelectorAll("[data-path]")];
  for (let place = path; place; place = place.includes(".") ? place.slice(0, place.lastIndexOf(".")) : "") {
    const found = wrappers.find((one) => one.dataset.path === place);
    if (found) return found;
  }
  return null;
}
