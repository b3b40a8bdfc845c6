// A list of any length: only the rows in sight are elements, all of one height, so that nothing jumps.
import { h } from "./dom.js";

const SPARE = 8;
const FIRST = 100;

export class Rows {
  /**
   * `scroller`: what scrolls. `draw(item)` gives a row's element, `key(item)` its identity;
   * `near()` is called when the end comes near.
   */
  constructor({ scroller, draw, key, near, label }) {
    Object.assign(this, { scroller, draw, key, near });
    this.items = [];
    this.total = 0;
    this.drawn = new Map();
    this.element = h("div", { class: "rows", role: "rowgroup", "aria-label": label });
    this.onScroll = () => this.schedule();
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    this.sizes = new ResizeObserver(() => this.schedule());
    this.sizes.observe(scroller);
  }

  close() {
    this.scroller.removeEventListener("scroll", this.onScroll);
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }

  get height() {
    return parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 60;
  }

  set(items) {
    this.items = items;
    this.render();
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.render();
    });
  }

  /** Draws one item anew where it stands, if it is in sight. */
  renew(item) {
    const key = this.key(item);
    const old = this.drawn.get(key);
    if (!old) return;
    const made = this.place(this.draw(item), old.index);
    const focused = old.element.contains(document.activeElement);
    old.element.replaceWith(made);
    if (focused) made.querySelector("a")?.focus({ preventScroll: true });
    this.drawn.set(key, { element: made, index: old.index, item });
  }

  place(element, index) {
    element.style.setProperty("transform", `translateY(${index * this.height}px)`);
    element.setAttribute("aria-rowindex", String(index + 2));
    return element;
  }

  render() {
    const height = this.height;
    this.element.style.setProperty("height", `${this.items.length * height}px`);
    const top = this.scroller.scrollTop - this.offset();
    const first = Math.max(0, Math.floor(top / height) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((top + this.scroller.clientHeight) / height) + SPARE);
    const wanted = new Map();
    for (let index = first; index < last; index++) wanted.set(this.key(this.items[index]), index);
    for (const [key, { element }] of this.drawn) {
      if (!wanted.has(key)) element.remove(), this.drawn.delete(key);
    }
    for (const [key, index] of wanted) {
      const item = this.items[index];
      const old = this.drawn.get(key);
      if (old && old.item === item) {
        if (old.index !== index || old.height !== height) this.place(old.element, index);
        old.index = index;
        old.height = height;
        continue;
      }
      const element = this.place(this.draw(item), index);
      const focused = old?.element.contains(document.activeElement);
      if (old) old.element.replaceWith(element);
      else this.element.append(element);
      if (focused) element.querySelector("a")?.focus({ preventScroll: true });
      this.drawn.set(key, { element, index, item, height });
    }
    // A page ahead of whoever scrolls: an end that is not reached does not move.
    const ahead = this.items.length > FIRST ? FIRST : 3 * SPARE;
    if (last > this.items.length - ahead) this.near?.();
  }

  offset() {
    return this.element.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top + this.scroller.scrollTop;
  }

  /** Scrolls until the item is in sight, draws it and gives it the focus. */
  focus(index) {
    const height = this.height;
    const head = this.scroller.querySelector("[data-sticky]")?.offsetHeight ?? 0;
    const top = this.offset() + index * height;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop + head) this.scroller.scrollTop = top - head;
    else if (top + height > scrollTop + clientHeight) this.scroller.scrollTop = top + height - clientHeight;
    this.render();
    const item = this.items[index];
    const drawn = item && this.drawn.get(this.key(item));
    drawn?.element.querySelector("a")?.focus({ preventScroll: true });
  }

  /** Index of the item whose row has the focus, or -1. */
  focused() {
    for (const { element, index } of this.drawn.values()) if (element.contains(document.activeElement)) return index;
    return -1;
  }
}
