// Creates elements without parsing HTML: data of the service can only become text.

/** Creates an element: `on…` attributes become listeners, `dataset` and `style` take objects. */
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

/** Sets text only if it differs, so that nothing is announced or painted twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Gives an element exactly these children, without moving those already in place. */
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
