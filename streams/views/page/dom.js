// Elements without markup: text only ever gets in as a text node, so nothing can run.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

function set(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      // Property by property: a style attribute is refused by the page's content policy.
      for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    } else if (name === "value" || name === "checked") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  return element;
}

/** An element. `props`: attributes, `on` {event: listener}, `style` {property: value}. */
export const h = (tag, props, ...children) => fill(set(document.createElement(tag), props), children);

/** An SVG element. */
export const s = (tag, props, ...children) =>
  fill(set(document.createElementNS(SVG, tag), props), children);

/** Replaces what an element holds. */
export function show(element, ...children) {
  element.replaceChildren();
  return fill(element, children);
}

/** A link inside the page. */
export const link = (href, props, ...children) => h("a", { ...props, href, "data-inside": true }, ...children);

/** A path whose parts are data. */
export const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

const ICONS = {
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4 4l8 8M12 4l-8 8",
  wait: "M8 4v4l2.5 2M8 1.8a6.2 6.2 0 100 12.4A6.2 6.2 0 008 1.8z",
  person: "M8 8a2.8 2.8 0 100-5.6A2.8 2.8 0 008 8zm-5.3 5.8c.5-2.6 2.6-4 5.3-4s4.8 1.4 5.3 4",
  spark: "M8 1.8l1.6 4.6 4.6 1.6-4.6 1.6L8 14.2 6.4 9.6 1.8 8l4.6-1.6z",
  tool: "M9.8 6.2a3.2 3.2 0 014-4L11.6 4.4l.2 1.8 1.8.2 2.2-2.2a3.2 3.2 0 01-4 4L6 14a1.6 1.6 0 01-2.2-2.2z",
  undo: "M5.5 3L2.5 6l3 3M2.8 6h6.4a3.6 3.6 0 010 7.2H6",
  bell: "M4 11.5V7a4 4 0 018 0v4.5l1 1H3zM6.8 14.2h2.4",
  flag: "M4 14V2.5h8l-1.6 3L12 8.5H4",
  note: "M3 3h10v7.5H7L4 13v-2.5H3z",
  fork: "M5 2.5v4a3 3 0 003 3M11 2.5v4a3 3 0 01-3 3v4",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.4M8 13.6V15M1 8h1.4M13.6 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.4 9.6A5.8 5.8 0 016.4 2.6a5.8 5.8 0 107 7z",
  down: "M4 6l4 4 4-4",
  list: "M5.5 4H14M5.5 8H14M5.5 12H14M2.2 4h.6M2.2 8h.6M2.2 12h.6",
  inbox: "M2 9l2-6h8l2 6v4H2zM2 9h3.5l1 2h3l1-2H14",
  agent: "M4 5h8v7H4zM8 5V2.5M6.2 8.2v.6M9.8 8.2v.6M2 8v2M14 8v2",
  pulse: "M1.5 8H5l1.8-5 2.6 10L11 8h3.5",
  plus: "M8 3v10M3 8h10",
};

/** A line icon, 16 px; decoration only. */
export const icon = (name, extra = "") =>
  s("svg", { class: `icon-${name} glyph ${extra}`, viewBox: "0 0 16 16", "aria-hidden": "true" },
    s("path", { d: ICONS[name] ?? ICONS.note }));
