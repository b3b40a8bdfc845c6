// What an operator may ask of a run; each with a confirmation, since none can be taken back.
import { control } from "./api.js";
import { dialog, field, toast } from "./dialog.js";
import { h } from "./dom.js";

const ENDED = new Set(["done", "cancelled"]);

/** Fields for a budget; `read()` gives what was filled in, or throws a sentence. */
export function budgetFields() {
  const names = [["steps", "Steps"], ["tokens", "Tokens"], ["seconds", "Seconds"], ["cost", "Cost"]];
  const inputs = names.map(([name, word]) => [name, h("input", { type: "text", inputmode: "decimal", id: `budget-${name}`, autocomplete: "off" }), word]);
  return {
    element: h("div", { class: "budget-fields" }, inputs.map(([, input, word]) => field(`More ${word.toLowerCase()}`, input))),
    read() {
      const made = {};
      for (const [name, input, word] of inputs) {
        const text = input.value.trim();
        if (!text) continue;
        const whole = name === "steps" || name === "tokens";
        if (!(whole ? /^\d{1,15}$/ : /^\d{1,12}(\.\d+)?$/).test(text)) throw new Error(`${word}: write a ${whole ? "whole " : ""}number, such as 10.`);
        made[name] = Number(text);
      }
      if (!Object.keys(made).length) throw new Error("Fill in at least one of the fields.");
      return made;
    },
  };
}

function ask(page, run, { command, title, says, word, kind = "primary", fields = [], make = () => ({}) }) {
  const reason = h("textarea", { id: "control-reason", rows: 2, maxlength: 20000 });
  dialog({
    title,
    body: [h("p", null, says), fields, field("Reason (kept in the record)", reason)],
    actions: [{ word, kind, name: command, run: async () => {
      const request = { command, ...make() };
      if (reason.value.trim()) request.reason = reason.value.trim();
      const verdict = await control(run.run_id, request);
      if (!verdict.accepted) throw new Error(`Refused: ${verdict.reason || "the run does not take this now."}`);
      toast(`${title}: accepted`);
    } }],
  });
}

/** The buttons that fit the run's status and the person's roles. */
export function controls(page, run) {
  if (!page.may("operator")) return null;
  const button = (word, action, kind = "quiet") => h("button", { type: "button", class: kind, on: { click: action } }, word);
  const made = [];
  const message = () => {
    const text = h("textarea", { id: "control-content", rows: 4, required: true, autofocus: true });
    ask(page, run, { command: "message", title: "Message to the run", says: "The model reads it before its next decision.", word: "Send", fields: [field("Message", text)], make: () => {
      if (!text.value.trim()) throw new Error("Write the message first.");
      return { content: text.value };
    } });
  };
  const extend = () => {
    const budget = budgetFields();
    ask(page, run, { command: "extend", title: "Extend the budget", says: "What is filled in is added to what is left.", word: "Extend", fields: [budget.element], make: () => ({ budget: budget.read() }) });
  };
  const cancel = () => {
    const undo = h("input", { type: "checkbox", id: "control-compensate" });
    ask(page, run, { command: "cancel", title: "Cancel the run", says: "Nothing new is called. What is under way is waited for.", word: "Cancel the run", kind: "danger",
      fields: [h("div", { class: "check" }, undo, h("label", { for: "control-compensate" }, "Undo what was done, where a tool says how"))], make: () => ({ compensate: undo.checked }) });
  };
  if (run.quarantined) made.push(button("Release", () => ask(page, run, { command: "release", title: "Release from quarantine", says: "Its parked records are taken up again. If the fault is still there it is quarantined again.", word: "Release" }), ""));
  if (run.status === "failed") made.push(button("Try again", () => ask(page, run, { command: "retry", title: "Try the failed action again", says: "The run goes on at the action that failed. What is done stays done.", word: "Try again" }), ""));
  if (!ENDED.has(run.status) && run.status !== "failed") {
    made.push(button("Message", message));
    made.push(run.paused
      ? button("Resume", () => ask(page, run, { command: "resume", title: "Resume the run", says: "It goes on where it stopped.", word: "Resume" }), "")
      : button("Pause", () => ask(page, run, { command: "pause", title: "Pause the run", says: "Nothing new is called until it is resumed. What is under way is recorded.", word: "Pause" })));
    made.push(button("Extend", extend));
  }
  if (!ENDED.has(run.status)) made.push(button("Cancel", cancel, "quiet danger-text"));
  return h("div", { class: "controls", role: "group", "aria-label": "What to do with this run" }, made);
}
