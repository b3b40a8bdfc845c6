// JSON that loses nothing: a browser's own numbers are exact only up to 2^53, and forget 1.0.
//
// In the answers integers beyond that come as {"$int": "digits"} (and a value that itself looks
// so as {"$int_": ...}); here they are `Exact` numbers, shown as digits and sent back as they came.

/** A number that a browser can't hold as it is written; `text` is what it says. */
export class Exact {
  constructor(text) {
    this.text = text;
  }
  valueOf() {
    return Number(this.text);
  }
  toString() {
    return this.text;
  }
}

export class NotJson extends Error {
  constructor(message, at, text) {
    const before = text.slice(0, at);
    const line = before.split("\n").length;
    super(`Line ${line}, column ${at - before.lastIndexOf("\n")}: ${message}`);
    this.line = line;
  }
}

const NUMBER = /-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const BLANK = /[ \t\n\r]*/y;
const SIMPLE = /"[^"\\\u0000-\u001f]*"/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const DEEPEST = 100;

/** A value from text. Throws `NotJson` with line and column. */
export function parse(text) {
  let at = 0;
  const blank = () => {
    BLANK.lastIndex = at;
    BLANK.test(text);
    at = BLANK.lastIndex;
  };
  const fail = (message) => {
    throw new NotJson(message, at, text);
  };
  const string = () => {
    SIMPLE.lastIndex = at;
    if (SIMPLE.test(text)) {
      const made = text.slice(at + 1, SIMPLE.lastIndex - 1);
      at = SIMPLE.lastIndex;
      return made;
    }
    STRING.lastIndex = at;
    if (!STRING.test(text)) fail("this string does not end, or holds an escape that JSON does not have");
    const made = JSON.parse(text.slice(at, STRING.lastIndex));
    at = STRING.lastIndex;
    return made;
  };
  const value = (depth) => {
    if (depth > DEEPEST) fail("nested deeper than 100");
    blank();
    const c = text[at];
    if (c === '"') return string();
    if (c === "{") {
      const made = Object.create(null); // so that "__proto__" is a key like any other
      at++;
      blank();
      if (text[at] === "}") return at++, made;
      for (;;) {
        blank();
        if (text[at] !== '"') fail("expected a name in double quotes");
        const key = string();
        if (key in made) fail(`the name ${JSON.stringify(key)} stands here twice`);
        blank();
        if (text[at] !== ":") fail("expected a colon after the name");
        at++;
        made[key] = value(depth + 1);
        blank();
        if (text[at] === ",") at++;
        else if (text[at] === "}") return at++, made;
        else fail("expected a comma or the closing }");
      }
    }
    if (c === "[") {
      const made = [];
      at++;
      blank();
      if (text[at] === "]") return at++, made;
      for (;;) {
        made.push(value(depth + 1));
        blank();
        if (text[at] === ",") at++;
        else if (text[at] === "]") return at++, made;
        else fail("expected a comma or the closing ]");
      }
    }
    for (const [word, meant] of [["true", true], ["false", false], ["null", null]]) {
      if (text.startsWith(word, at)) return (at += word.length), meant;
    }
    NUMBER.lastIndex = at;
    if (c !== undefined && NUMBER.test(text)) {
      const said = text.slice(at, NUMBER.lastIndex);
      at = NUMBER.lastIndex;
      const number = Number(said);
      return String(number) === said && (Number.isSafeInteger(number) || !Number.isInteger(number)) ? number : new Exact(said);
    }
    return fail(c === undefined ? "the text ends too early" : `${JSON.stringify(c)} can't stand here`);
  };
  const made = value(0);
  blank();
  if (at < text.length) fail("there is more after the end of the value");
  return made;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Exact);

function mapped(value, one) {
  if (Array.isArray(value)) return value.map((part) => mapped(part, one));
  if (!isObject(value)) return one(value);
  const made = Object.create(null);
  for (const key of Object.keys(value)) made[key] = mapped(value[key], one);
  return one(made);
}

const only = (value) => (isObject(value) && Object.keys(value).length === 1 ? Object.keys(value)[0] : "");

/** An answer's text as values; `$int` objects become numbers. */
export function received(text) {
  return mapped(parse(text), (value) => {
    const key = only(value);
    if (key === "$int" && typeof value[key] === "string") return new Exact(value[key]);
    if (/^\$int_+$/.test(key)) return { [key.slice(0, -1)]: value[key] };
    return value;
  });
}

/** A free-form value as it is sent: large integers as `$int` objects again. */
export function forSending(value) {
  return mapped(value, (part) => {
    if (part instanceof Exact && /^-?\d+$/.test(part.text) && !Number.isSafeInteger(Number(part.text))) {
      return { $int: part.text };
    }
    const key = only(part);
    return /^\$int_*$/.test(key) && !(part[key] instanceof Exact) ? { [key + "_"]: part[key] } : part;
  });
}

// Invisible characters stand as JSON escapes, so that an editor's text hides nothing.
const quoted = (text) =>
  JSON.stringify(text).replace(/[^\P{C}]|[^\P{Z} ]|[\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu, (c) =>
    [...Array(c.length).keys()].map((i) => "\\u" + c.charCodeAt(i).toString(16).padStart(4, "0")).join(""));

/** JSON text of a value; `indent` blanks a level, 0 for one line. */
export function stringify(value, indent = 0, depth = 0) {
  const [line, end] = indent ? ["\n" + " ".repeat(indent * (depth + 1)), "\n" + " ".repeat(indent * depth)] : ["", ""];
  const join = indent ? "," : ", ";
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return "[" + value.map((part) => line + stringify(part, indent, depth + 1)).join(join) + end + "]";
  }
  if (isObject(value)) {
    const keys = Object.keys(value);
    if (!keys.length) return "{}";
    return "{" + keys.map((key) => `${line}${quoted(key)}: ${stringify(value[key], indent, depth + 1)}`).join(join) + end + "}";
  }
  if (value instanceof Exact) return value.text;
  return typeof value === "string" ? quoted(value) : String(value ?? null);
}

/** Whether two values are the same JSON. */
export const same = (one, other) => stringify(sorted(one)) === stringify(sorted(other));

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const made = Object.create(null);
  for (const key of Object.keys(value).sort()) made[key] = sorted(value[key]);
  return made;
}

export { isObject };
