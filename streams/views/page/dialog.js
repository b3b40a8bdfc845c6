// A question in front of the page: the browser's own dialog keeps the focus inside and closes on Escape.
import { h } from "./dom.js";

/**
 * Opens a dialog. `actions`: [{word, kind, run}]; `run` may return a promise, and while it lasts
 * nothing can be pressed twice; if it throws, the sentence is shown and the dialog stays.
 */
export function dialog({ title, body, actions = [], wide = false, closing = "Close", onClose }) {
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const heading = `dialog-${Math.round(performance.now() * 1000)}`;
  const made = h("dialog", { class: wide ? "dialog wide" : "dialog", "aria-labelledby": heading });
  const close = () => made.close();
  const buttons = actions.map(({ word, kind = "", run, name }) => {
    const button = h("button", { type: "submit", class: kind, "data-action": name }, word);
    button.addEventListener("click", async (event) => {
      event.preventDefault();
      fault.hidden = true;
      for (const one of [button, ...buttons]) one.disabled = true;
      button.classList.add("busy");
      try {
        if ((await run(say)) !== false) close();
      } catch (error) {
        say(error.message);
      } finally {
        for (const one of [button, ...buttons]) one.disabled = false;
        button.classList.remove("busy");
      }
    });
    return button;
  });
  function say(message) {
    fault.textContent = message;
    fault.hidden = false;
  }
  made.append(
    h("form", { method: "dialog", class: "dialog-form", novalidate: true },
      h("h2", { id: heading }, title),
      h("div", { class: "dialog-body" }, body),
      fault,
      h("div", { class: "dialog-actions" }, h("button", { type: "button", class: "quiet", on: { click: close } }, closing), buttons)));
  const before = document.activeElement;
  made.addEventListener("close", () => {
    made.remove();
    onClose?.();
    if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
  });
  made.addEventListener("click", (event) => {
    if (event.target === made && !made.querySelector("textarea, input")) close();
  });
  document.body.append(made);
  made.showModal();
  const first = made.querySelector("[autofocus]") ?? buttons[0] ?? made.querySelector(".dialog-actions button");
  first?.focus();
  return { element: made, close, say };
}

/** A labelled field; `hint` under it. */
export function field(label, control, hint) {
  const id = control.id || `field-${label.toLowerCase().replace(/\W+/g, "-")}`;
  control.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint ? h("p", { class: "hint" }, hint) : null);
}

/** A short word at the edge of the page that what was asked for has happened, or not. */
export function toast(message, tone = "good") {
  const made = h("div", { class: `toast tone-${tone}` }, message);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), tone === "bad" ? 9000 : 5000);
}
