// What comes from a model or a user, as people may see it: inert, with nothing invisible in it.
//
// The same rule as the command line's: what is not printable (controls, bidi marks, zero-width
// characters, odd blanks) and what is printable but draws nothing stands as an escape.
import { h } from "./dom.js";
import { stringify } from "./exact.js";

const MARK =
  /( {12,})|([\p{C}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}])/gu;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeOf(character) {
  const code = character.codePointAt(0);
  if (NAMED[character]) return NAMED[character];
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
  return "\\U" + code.toString(16).padStart(8, "0");
}

/** Where a text is expected anything may stand: what is none is shown as JSON. */
const textOf = (value) => (typeof value === "object" && value !== null ? stringify(value) : String(value ?? ""));

export const count = (number) => Number(number).toLocaleString("en-US");

/** For attributes: a plain string with escapes, cut at `limit` characters. */
export function plain(value, limit = 300) {
  const text = textOf(value);
  const cut = text.slice(0, limit).replace(MARK, (all, blanks) =>
    blanks ? `[${count(blanks.length)} blanks]` : all === " " ? " " : escapeOf(all));
  return text.length > limit ? `${cut}... (${count(text.length)} characters)` : cut;
}

/** Text and escape marks as nodes. `lines`: line feeds also break the line. */
function nodes(text, lines) {
  const made = [];
  let from = 0;
  for (const found of text.matchAll(MARK)) {
    const [all, blanks] = found;
    if (all === " ") continue;
    if (found.index > from) made.push(text.slice(from, found.index));
    from = found.index + all.length;
    if (lines && all === "\n") {
      made.push("\n");
    } else {
      const shown = blanks ? `${count(blanks.length)} blanks` : escapeOf(all);
      const title = blanks ? "A long run of blanks" : "A character that would not be seen";
      made.push(h("span", { class: "escape", title }, shown));
    }
  }
  if (from < text.length) made.push(text.slice(from));
  return made;
}

/** Where `limit` characters are seen: a long run of blanks is one mark, so padding hides nothing behind a cut. */
function seen(text, limit) {
  let left = limit;
  let from = 0;
  for (const { 0: blanks, index } of text.matchAll(/ {12,}/g)) {
    if (index - from > left) break;
    left -= index - from + 12;
    from = index + blanks.length;
    if (left <= 0) return from;
  }
  const end = Math.min(text.length, from + left);
  return /[\ud800-\udbff]$/.test(text.slice(0, end)) ? end - 1 : end;
}

function cutting(text, limit, lines, tag, name) {
  const box = h(tag, { class: name, dir: "ltr" });
  const end = seen(text, limit);
  if (text.length - end <= limit * 0.1) {
    box.append(...nodes(text, lines));
    return box;
  }
  const rest = h("button", { type: "button", class: "more" }, `show all ${count(text.length)} characters`);
  rest.addEventListener("click", (event) => {
    event.preventDefault();
    event.stopPropagation();
    box.replaceChildren(...nodes(text, lines));
  });
  box.append(...nodes(text.slice(0, end), lines), h("span", { class: "ellipsis" }, "…"), " ", rest);
  return box;
}

/** One line of text; line feeds are escapes too. */
export const inline = (value, limit = 300) => cutting(textOf(value), limit, false, "span", "said");

/** Text of several lines. */
export const block = (value, limit = 1500) => cutting(textOf(value), limit, true, "div", "said said-block");
