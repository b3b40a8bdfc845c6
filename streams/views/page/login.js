// The question for a token, where the server asks for one.
import { post } from "./api.js";
import { field } from "./dialog.js";
import { h, show } from "./dom.js";

/** Resolves when the server has taken a token; it keeps it in a cookie that no script can read. */
export function login(main) {
  return new Promise((resolve) => {
    const token = h("input", { type: "password", id: "token", autocomplete: "current-password", autofocus: true });
    const fault = h("p", { class: "fault", role: "alert", hidden: true });
    const send = async (event) => {
      event.preventDefault();
      fault.hidden = true;
      try {
        await post("/api/login", { token: token.value.trim() });
        resolve();
      } catch (error) {
        fault.textContent = error.status === 401 || error.status === 403 ? "This token is not known here. Check that all of it was pasted, or ask for a new one." : error.message;
        fault.hidden = false;
        token.select();
      }
    };
    show(main, h("form", { class: "login panel", on: { submit: send } }, h("h1", null, "Sign in"),
      field("Token", token, "Whoever runs this server gives out the tokens."), fault, h("div", { class: "dialog-actions" }, h("button", { type: "submit", class: "primary" }, "Sign in"))));
    token.focus();
  });
}
