// Putting a task on its topic.
import { get, post } from "./api.js";
import { field } from "./dialog.js";
import { h, path, show } from "./dom.js";
import { forSending, parse } from "./exact.js";

const ID = /^(?!\.{1,2}$)[A-Za-z0-9\-_.:@]{1,200}$/;

export function submit(page) {
  const view = new AbortController();
  const agent = h("select", { id: "task-agent", required: true }, h("option", { value: "" }, "Choose an agent"));
  const input = h("textarea", { id: "task-input", rows: 7 });
  const asJson = h("input", { type: "checkbox", id: "task-json" });
  const id = h("input", { type: "text", id: "task-id", autocomplete: "off", spellcheck: "false", placeholder: "made for you" });
  const session = h("input", { type: "text", id: "task-session", autocomplete: "off", spellcheck: "false", placeholder: "the task's id" });
  const user = h("input", { type: "text", id: "task-user", autocomplete: "off", spellcheck: "false", placeholder: page.me.user ?? "anonymous" });
  const steps = h("input", { type: "text", inputmode: "numeric", id: "task-steps", autocomplete: "off", placeholder: "the agent's" });
  const tokens = h("input", { type: "text", inputmode: "numeric", id: "task-tokens", autocomplete: "off", placeholder: "the agent's" });
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: "primary" }, "Submit task");

  function made() {
    if (!agent.value) throw new Error("Choose the agent that is to do it.");
    const task = { agent: agent.value };
    if (input.value.trim()) task.input = asJson.checked ? forSending(parse(input.value)) : input.value;
    else throw new Error("Write what is to be done.");
    for (const [name, control, word] of [["task_id", id, "Task id"], ["session_id", session, "Session"], ["user_id", user, "User"]]) {
      const text = control.value.trim();
      if (text && !ID.test(text)) throw new Error(`${word}: only letters, digits and - _ . : @ can be used, at most 200.`);
      if (text) task[name] = text;
    }
    const budget = {};
    for (const [name, control] of [["steps", steps], ["tokens", tokens]]) {
      const text = control.value.trim();
      if (text && !/^\d{1,15}$/.test(text)) throw new Error(`Budget: ${name} must be a whole number.`);
      if (text) budget[name] = Number(text);
    }
    if (Object.keys(budget).length) task.budget = budget;
    return task;
  }

  async function send(event) {
    event.preventDefault();
    fault.hidden = true;
    button.disabled = true;
    try {
      const { task_id: taskId } = await post("/api/tasks", made());
      page.go(path("runs", taskId));
    } catch (error) {
      fault.textContent = error.message;
      fault.hidden = false;
    } finally {
      button.disabled = false;
    }
  }

  show(page.main, h("div", { class: "submit" }, h("h1", null, "Submit a task"),
    page.may("operator") ? null : h("p", { class: "standing tone-wait" }, "Your token does not have the role of an operator, so the server will refuse a task from here."),
    h("form", { class: "panel", novalidate: true, on: { submit: send } },
      field("Agent", agent), field("Task", input, "A text becomes the first message to the model as it is."),
      h("div", { class: "check" }, asJson, h("label", { for: "task-json" }, "This is JSON")),
      h("details", null, h("summary", null, "Ids and budget"), h("div", { class: "two" }, field("Task id", id, "The same id with the same content is only done once."), field("Session", session), field("User", user), field("Steps at most", steps), field("Tokens at most", tokens))),
      fault, h("div", { class: "dialog-actions" }, button))));
  agent.focus({ preventScroll: true });
  get("/api/agents", view.signal).then(({ agents }) => {
    agent.append(...agents.map(({ name }) => h("option", { value: name }, name)));
    if (agents.length === 1) agent.value = agents[0].name;
    if (!agents.length) throw new Error("There are no agents yet. Describe them in YAML, then run `perdure apply -f agents.yaml`.");
  }).catch((error) => {
    if (error.name === "AbortError") return;
    fault.textContent = error.message;
    fault.hidden = false;
  });
  page.keys.use({});
  return { title: "Submit a task", close: () => view.abort() };
}
