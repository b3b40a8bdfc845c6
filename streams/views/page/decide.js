// A person's word on a question: what the dialog for each decision asks for, and what is sent.
import { decide, get } from "./api.js";
import { budgetFields } from "./control.js";
import { dialog, field, toast } from "./dialog.js";
import { diff } from "./diff.js";
import { h, show } from "./dom.js";
import { NotJson, isObject, parse, same, stringify } from "./exact.js";
import { members } from "./json_view.js";
import { complaints } from "./schema.js";
import { block, inline } from "./text.js";
import { DECISION, NEEDS_REASON, known } from "./words.js";

const MASK = "***";

async function send(page, approval, decision) {
  const verdict = await decide(approval, decision);
  if (!verdict.accepted) throw new Error(`It did not count: ${verdict.reason || "the run does not take this decision now."}`);
  const done = `${known(DECISION, decision.decision).done}. ${approval.required > 1 ? "Others may still have to say yes." : ""}`.trim();
  const uncounted = (verdict.reason ?? "").startsWith("counted: 0 ");
  toast(uncounted ? "Changed, but not approved: others are asked about these arguments." : done);
  page.decided(approval);
}

function reasonField(required) {
  const input = h("textarea", { id: "decision-reason", rows: 3, maxlength: 20000, "aria-required": String(required), autofocus: required });
  return {
    element: field(required ? "Reason" : "Reason (optional)", input, "Kept in the record; the model reads it."),
    read() {
      const text = input.value.trim();
      if (required && !text) {
        input.setAttribute("aria-invalid", "true");
        input.focus();
        throw new Error("A reason is needed: say in a sentence why, so that the model and the record know.");
      }
      return text ? { reason: text } : {};
    },
  };
}

const subject = (approval) =>
  h("div", { class: "decision-subject" }, h("p", { class: "decision-title" }, inline(approval.title, 400)),
    approval.arguments === null || approval.arguments === undefined ? null : members(approval.arguments));

function simple(page, approval, word, { says, kind = "primary", required = NEEDS_REASON.has(word), whole = false }) {
  const reason = reasonField(required);
  dialog({
    title: known(DECISION, word).word, body: [h("p", null, says), whole ? subject(approval) : h("p", { class: "decision-title" }, inline(approval.title, 400)), reason.element],
    closing: "Back",
    actions: [{ word: known(DECISION, word).word, kind, name: word, run: () => send(page, approval, { decision: word, ...reason.read() }) }],
  });
}

/** Text as a value: JSON if the switch says so. */
function valueField(label, hint, jsonFirst) {
  const input = h("textarea", { id: "decision-answer", rows: 5, autofocus: true, spellcheck: "true" });
  const asJson = h("input", { type: "checkbox", id: "decision-json", checked: jsonFirst });
  return {
    element: [field(label, input, hint), h("div", { class: "check" }, asJson, h("label", { for: "decision-json" }, "This is JSON (an object, a number, ...), not text"))],
    read(needed) {
      if (!input.value.trim()) {
        if (!needed) return undefined;
        throw new Error("Write the answer first.");
      }
      return asJson.checked ? parse(input.value) : input.value;
    },
  };
}

function answer(page, approval) {
  const handover = approval.kind === "handover";
  const made = valueField("Answer", handover ? "In a plan it becomes the action's result; a model reads it as a message." : "It goes to the model as it is.", false);
  const reason = reasonField(false);
  dialog({
    title: "Answer", closing: "Back",
    body: [approval.question ? h("blockquote", { class: "question" }, block(approval.question)) : h("p", { class: "decision-title" }, inline(approval.title, 400)), made.element, reason.element],
    actions: [{ word: "Answer", kind: "primary", name: "answer", run: () => send(page, approval, { decision: "answer", answer: made.read(true), ...reason.read() }) }],
  });
}

function markDone(page, approval) {
  const made = valueField("Its result (optional)", "What the call would have returned, if you know it.", true);
  const reason = reasonField(true);
  dialog({
    title: "It happened", closing: "Back", body: [h("p", null, "The call counts as done and is not made again. Say how you know."), subject(approval), reason.element, made.element],
    actions: [{ word: "It happened", kind: "primary", name: "mark_done", run: () => {
      const value = made.read(false);
      return send(page, approval, { decision: "mark_done", ...(value === undefined ? {} : { answer: value }), ...reason.read() });
    } }],
  });
}

function extend(page, approval) {
  const budget = budgetFields();
  const reason = reasonField(false);
  dialog({
    title: "Extend budget", closing: "Back", body: [h("p", null, "What is filled in is added, and the run goes on."), budget.element, reason.element],
    actions: [{ word: "Extend", kind: "primary", name: "extend", run: () => send(page, approval, { decision: "extend", budget: budget.read(), ...reason.read() }) }],
  });
}

const masked = (value) => value === MASK || (typeof value === "object" && value !== null && (Array.isArray(value) ? value : Object.values(value)).some(masked));

function modify(page, approval) {
  const before = approval.arguments ?? Object.create(null);
  const editor = h("textarea", { id: "decision-arguments", class: "editor", rows: Math.min(16, stringify(before, 2).split("\n").length + 1), spellcheck: "false", autocapitalize: "off", autocomplete: "off", autofocus: true, "aria-describedby": "editor-fault" });
  editor.value = stringify(before, 2);
  const fault = h("p", { class: "fault", id: "editor-fault", role: "status" });
  const advice = h("ul", { class: "advice" });
  const changes = h("div", { class: "changes" });
  const reason = reasonField(true);
  reason.element.querySelector("textarea").removeAttribute("autofocus");
  let schema = null;
  let value = before;
  const check = () => {
    fault.textContent = "";
    editor.removeAttribute("aria-invalid");
    show(advice);
    try {
      value = parse(editor.value);
      if (!isObject(value)) throw new Error("The arguments must be a JSON object: { ... }.");
    } catch (error) {
      value = null;
      fault.textContent = error instanceof NotJson ? `Not JSON yet. ${error.message}` : error.message;
      editor.setAttribute("aria-invalid", "true");
      return;
    }
    show(advice, complaints(schema, value).map((one) => h("li", null, inline(one, 300))));
    show(changes, same(before, value) ? h("p", { class: "dim" }, "Nothing is changed yet.") : diff(before, value));
  };
  editor.addEventListener("input", check);
  editor.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
  check();
  get("/api/tools").then(({ tools }) => {
    schema = tools.find(({ name }) => name === approval.tool)?.parameters ?? null;
    check();
  }).catch(() => null); // without the schema the engine still checks
  dialog({
    title: "Approve with changes", wide: true, closing: "Back",
    body: [
      h("p", { class: "decision-title" }, inline(approval.title, 400)),
      h("div", { class: "modify" },
        h("div", null, field("Arguments (JSON)", editor), fault, advice),
        h("div", null, h("h3", { class: "field-word" }, "What changes"), changes)),
      reason.element],
    actions: [{ word: "Approve these", kind: "primary", name: "modify", run: () => {
      if (value === null) throw new Error("The arguments are not JSON yet: see the line above.");
      if (same(before, value)) throw new Error("Nothing is changed. Change the arguments, or approve them as they are.");
      if (masked(value)) throw new Error(`Values shown as ${MASK} are masked and can't be sent back: write the real value, or approve as it is.`);
      return send(page, approval, { decision: "modify", arguments: value, ...reason.read() });
    } }],
  });
}

const ASK = {
  approve: (page, approval) => simple(page, approval, "approve", { says: "Exactly this is carried out:", whole: true }),
  modify,
  reject: (page, approval) => simple(page, approval, "reject", { kind: "danger", says: approval.kind === "budget" ? "The run stops with what it has done so far." : "It is not carried out; the model is told so, with your reason." }),
  answer,
  retry: (page, approval) => simple(page, approval, "retry", { says: "What failed is tried once more." }),
  mark_done: markDone,
  mark_not_done: (page, approval) => simple(page, approval, "mark_not_done", { says: "The call is made again. Be sure that it did not happen: otherwise it happens twice.", kind: "danger", whole: true }),
  extend,
  cancel_run: (page, approval) => simple(page, approval, "cancel_run", { kind: "danger", says: "The whole run ends. What was done is undone where its agent says so." }),
};

/** Opens the dialog of a decision. */
export const openDecision = (page, approval, word) => ASK[word]?.(page, approval);

const KINDS = { approve: "primary", reject: "danger-text", cancel_run: "quiet danger-text", retry: "primary", extend: "primary", answer: "primary", mark_done: "primary" };

/** The buttons of the decisions that count. */
export function decisionButtons(page, approval) {
  return h("div", { class: "decision-buttons", role: "group", "aria-label": "Your decision" },
    (approval.allowed_decisions ?? []).filter((word) => Object.hasOwn(ASK, word)).map((word) =>
      h("button", { type: "button", class: KINDS[word] ?? "", "data-decision": word, on: { click: () => openDecision(page, approval, word) } }, known(DECISION, word).word)));
}
