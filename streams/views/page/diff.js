// What a modification changes, line by line (the longest common part stays).
import { stringify } from "./exact.js";
import { h } from "./dom.js";
import { inline } from "./text.js";

const LARGEST = 1500;

/** [{mark: " " | "-" | "+", text}] */
export function lines(old, made) {
  const [a, b] = [old, made];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let [x, y] = [a.length, b.length];
  while (x > start && y > start && a[x - 1] === b[y - 1]) x--, y--;
  const [left, right] = [a.slice(start, x), b.slice(start, y)];
  const out = a.slice(0, start).map((text) => ({ mark: " ", text }));
  if (left.length * right.length > LARGEST * LARGEST) {
    out.push(...left.map((text) => ({ mark: "-", text })), ...right.map((text) => ({ mark: "+", text })));
  } else {
    out.push(...middle(left, right));
  }
  return [...out, ...a.slice(x).map((text) => ({ mark: " ", text }))];
}

function middle(left, right) {
  const width = right.length + 1;
  const longest = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      longest[i * width + j] = left[i] === right[j]
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      out.push({ mark: " ", text: left[i] });
      i++, j++;
    } else if (i < left.length && (j === right.length || longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      out.push({ mark: "-", text: left[i++] });
    } else {
      out.push({ mark: "+", text: right[j++] });
    }
  }
  return out;
}

const WORDS = { " ": "", "-": "was", "+": "becomes" };
const NAMES = { " ": "kept", "-": "gone", "+": "new" };

/** The difference of two values as a table of lines. */
export function diff(old, made) {
  const all = lines(stringify(old, 2).split("\n"), stringify(made, 2).split("\n"));
  return h("div", { class: "diff", role: "group", "aria-label": "What changes", dir: "ltr" },
    all.map(({ mark, text }) =>
      h("div", { class: `diff-line diff-${NAMES[mark]}` },
        h("span", { class: "diff-mark", "aria-hidden": "true" }, mark === "-" ? "−" : mark),
        WORDS[mark] ? h("span", { class: "unseen" }, `${WORDS[mark]} `) : null,
        h("span", { class: "diff-text" }, inline(text, 2000)))));
}
