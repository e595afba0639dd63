// Elements without any HTML text: what comes from the service can only ever become text.

/** An element: attributes by name, `on…` as listeners, `class`, `dataset` and `style` as one would think. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  const shown = (child) => child !== null && child !== undefined && child !== false;
  element.append(...children.flat(Infinity).filter(shown));
  return element;
}

/** Sets text only where it differs, so that nothing is announced or painted twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Puts exactly these children into an element, moving none that is in its place already. */
export function setChildren(element, children) {
  const wanted = children.filter(Boolean);
  const kept = new Set(wanted);
  for (const child of [...element.childNodes]) if (!kept.has(child)) child.remove();
  let place = element.firstChild;
  for (const child of wanted) {
    if (child === place) place = place.nextSibling;
    else element.insertBefore(child, place);
  }
}

export const byId = (id) => document.getElementById(id);
