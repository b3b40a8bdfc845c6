// The keyboard: one table of what a view understands, and the list that `?` shows.
import { h } from "./dom.js";
import { dialog } from "./dialog.js";

const EVERYWHERE = [
  ["g r", "Runs"], ["g a", "Approvals"], ["g g", "Agents"], ["g t", "Tools"], ["g h", "Health"],
  ["n", "Submit a task"], ["?", "This list"], ["Esc", "Close, or leave a field"],
];
const PLACES = { r: "/", a: "/approvals", g: "/agents", t: "/tools", h: "/health" };

const typing = (element) => element?.closest?.("input, textarea, select, [contenteditable]");

export class Keys {
  constructor(go) {
    this.go = go;
    this.view = {};
    this.described = [];
    this.prefix = null;
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** `bindings`: {key: [words, action]} of the view that is open. */
  use(bindings) {
    this.view = bindings ?? {};
  }

  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (this.prefix && Date.now() - this.prefix < 1500 && PLACES[event.key]) {
      this.prefix = null;
      event.preventDefault();
      this.go(PLACES[event.key]);
      return;
    }
    this.prefix = event.key === "g" ? Date.now() : null;
    if (event.key === "?") {
      event.preventDefault();
      this.help();
    } else if (event.key === "n") {
      event.preventDefault();
      this.go("/submit");
    } else if (Object.hasOwn(this.view, event.key)) {
      // Enter belongs to what has the focus, if that is a button or a link of its own.
      if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
      event.preventDefault();
      this.view[event.key][1]();
    }
  }

  help() {
    const row = ([key, words]) => h("div", { class: "key-row" }, h("dt", null, key.split(" ").map((one) => h("kbd", null, one))), h("dd", null, words));
    dialog({
      title: "Keyboard",
      body: [
        Object.keys(this.view).length
          ? h("section", null, h("h3", null, "On this page"), h("dl", { class: "key-list" }, Object.entries(this.view).map(([key, [words]]) => row([key, words]))))
          : null,
        h("section", null, h("h3", null, "Everywhere"), h("dl", { class: "key-list" }, EVERYWHERE.map(row))),
      ],
    });
  }
}
