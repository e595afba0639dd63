// Modal dialogs; the browser's own <dialog> keeps the focus inside.

import { h } from "./dom.js";

/** Opens a dialog that removes itself when it is closed, and then calls `closed`. */
export function openDialog(label, { wide = false, closed = () => {} } = {}, ...children) {
  const dialog = h("dialog", { class: wide ? "wide" : null, "aria-label": label }, ...children);
  // The event "close" comes later: until then a secret that the dialog shows would still be in the page.
  dialog.close = () => {
    HTMLDialogElement.prototype.close.call(dialog);
    dialog.remove();
  };
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before `act`; an error is shown inside, and the dialog stays open. `typed` must be typed first. */
export function confirmDialog({ title, lines, button, danger = false, typed = null, act }) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const yes = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: typed !== null }, button);
  const attributes = { type: "text", autocomplete: "off", id: "typed", spellcheck: "false" };
  const field = typed === null ? null : h("input", attributes);
  field?.addEventListener("input", () => {
    yes.disabled = field.value !== typed;
  });
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        if (yes.disabled) return;
        yes.disabled = true;
        wrong.hidden = true;
        try {
          await act();
          dialog.close();
        } catch (error) {
          wrong.textContent = error.message;
          wrong.hidden = false;
          yes.disabled = false;
        }
      },
    },
    h("h2", {}, title),
    lines.map((one) => (typeof one === "string" ? h("p", {}, one) : one)),
    field && h("label", { for: "typed" }, `Type ${typed} to confirm`),
    field,
    wrong,
    h("div", { class: "answers" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), yes),
  );
  const dialog = openDialog(title, {}, form);
}
