// A JSON value to read: coloured, with what is long or deep folded behind a button that says how much.
import { isObject, Exact } from "./exact.js";
import { h } from "./dom.js";
import { count, inline } from "./text.js";

const ITEMS = 40;
const DEEP = 6;
const STRING = 400;

function scalar(value) {
  if (typeof value === "string") return h("span", { class: "js" }, "\u201c", inline(value, STRING), "\u201d");
  const kind = value === null || value === undefined ? "jn" : typeof value === "boolean" ? "jb" : "ji";
  return h("span", { class: kind }, value instanceof Exact ? value.text : String(value ?? null));
}

function fold(word, open) {
  const made = h("button", { type: "button", class: "more" }, word);
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    made.replaceWith(...open());
  });
  return made;
}

function entries(pairs, depth) {
  const row = ([key, value]) =>
    h("div", { class: "json-row" }, key === null ? null : [h("span", { class: "jk" }, inline(key, 200)), h("span", { class: "jp" }, ": ")], node(value, depth + 1));
  const made = pairs.slice(0, ITEMS).map(row);
  if (pairs.length > ITEMS) {
    made.push(h("div", { class: "json-row" }, fold(`show all ${count(pairs.length)} entries`, () => pairs.slice(ITEMS).map(row))));
  }
  return made;
}

function node(value, depth) {
  if (!isObject(value) && !Array.isArray(value)) return scalar(value);
  const list = Array.isArray(value);
  const keys = list ? null : Object.keys(value);
  if (!list && keys.length === 1 && keys[0] === "$cut") {
    return h("span", { class: "cut" }, `… ${count(Number(value.$cut))} characters, shortened here; open the event for all of it`);
  }
  const pairs = list ? value.map((part) => [null, part]) : keys.map((key) => [key, value[key]]);
  if (!pairs.length) return h("span", { class: "jp" }, list ? "[]" : "{}");
  const inside = () => h("div", { class: "json-in" }, entries(pairs, depth));
  const [from, to] = list ? ["[", "]"] : ["{", "}"];
  if (depth >= DEEP) {
    return h("span", null, h("span", { class: "jp" }, from), fold(`${count(pairs.length)} entries`, () => [inside()]), h("span", { class: "jp" }, to));
  }
  return h("span", null, h("span", { class: "jp" }, from), inside(), h("span", { class: "jp" }, to));
}

/** The value, in a box. */
export const json = (value) => h("div", { class: "json", dir: "ltr" }, node(value, 0));

/** An object's members as a list of name and value, without braces: how arguments are read. */
export function members(value) {
  if (!isObject(value) || !Object.keys(value).length) return json(value);
  const keys = Object.keys(value);
  const made = h("dl", { class: "members", dir: "ltr" });
  const row = (key) => [h("dt", null, inline(key, 200)), h("dd", null, h("div", { class: "json plain" }, node(value[key], 1)))];
  made.append(...keys.slice(0, ITEMS).flatMap(row));
  if (keys.length > ITEMS) made.append(h("dd", null, fold(`show all ${count(keys.length)} entries`, () => keys.slice(ITEMS).flatMap(row))));
  return made;
}

/** `name: value, ...` on one line, for a row. */
export function brief(value, limit = 140) {
  if (!isObject(value)) return value === null || value === undefined ? "" : inline(typeof value === "string" ? value : JSON.stringify(value), limit);
  const made = [];
  let left = limit;
  for (const [index, key] of Object.keys(value).entries()) {
    const part = value[key];
    const text = part instanceof Exact ? part.text : typeof part === "string" ? part : JSON.stringify(part);
    if (left < 8 || index >= 5) {
      made.push(h("span", { class: "dim" }, " …"));
      break;
    }
    made.push(index ? ", " : "", h("span", { class: "dim" }, inline(key, 30), " "), h("span", { class: "brief-value" }, inlineCut(text, Math.min(left, 60))));
    left -= key.length + Math.min(text.length, 60) + 3;
  }
  return made;
}

// In a row there is no button: the whole value is one click away in the row's own details.
function inlineCut(text, limit) {
  return text.length <= limit ? inline(text, limit * 2) : [inline(text.slice(0, limit), limit * 2), h("span", { class: "dim" }, "…")];
}

Exact.prototype.toJSON = function toJSON() {
  return this.text;
};
