// The inbox: what people are asked, by deadline, and one question with all that a decision needs.
import { Away, get, query } from "./api.js";
import { decisionButtons, openDecision } from "./decide.js";
import { h, icon, link, path, show } from "./dom.js";
import { time, until } from "./format.js";
import { json, members } from "./json_view.js";
import { isObject } from "./exact.js";
import { block, count, inline, plain } from "./text.js";
import { EFFECT, KIND, known } from "./words.js";

const placeOf = (id) => path("approvals", ...String(id).split("/"));
const THEN = { cancel_run: "the run is cancelled", reject: "it counts as rejected", approve: "it counts as approved", escalate: "others are asked", retry: "it is tried again", mark_done: "it counts as done", mark_not_done: "it is called again" };

function card(approval, chosen) {
  const kind = known(KIND, approval.kind);
  return h("li", { class: chosen ? "ask chosen" : "ask", "data-approval": approval.approval_id },
    h("span", { class: "ask-icon" }, icon(kind.icon ?? "person")),
    h("div", { class: "ask-main" },
      link(placeOf(approval.approval_id), { class: "row-link", "aria-current": chosen ? "true" : null }, inline(approval.title || approval.question, 240)),
      h("div", { class: "row-under" }, h("span", { class: "tag" }, kind.word), h("span", null, inline(approval.agent, 60)), approval.may_decide === false ? h("span", { class: "dim" }, "not yours to decide") : null)),
    h("span", { class: "ask-until number", title: "Time left" }, until(Number(approval.expires_at))));
}

/** No condition fired: something went wrong, and went wrong again. */
function troubleText({ error, in_a_row: times, ...rest }) {
  return h("div", { class: "rule" },
    error === undefined ? null : isObject(error) ? h("p", null, h("code", null, inline([error.kind, error.code].filter(Boolean).join(" · "), 80)), " ", inline(error.message ?? "", 400)) : h("p", null, inline(error, 400)),
    Number(times) > 1 ? h("p", { class: "dim" }, `${count(times)} times in a row`) : null,
    Object.keys(rest).length ? json(rest) : null);
}

function ruleText(rule) {
  if (!isObject(rule)) return json(rule);
  if (!("source" in rule) && !("when" in rule)) return troubleText(rule);
  const { source, when, error, arguments: _shown, asks: _asks, ...rest } = rule;
  const where = source === "tool" ? "the tool's own rule" : source === "plan" ? "the plan asks for it" : /^agent\[\d+\]$/.test(source ?? "") ? `rule ${Number(source.slice(6, -1)) + 1} of the agent` : source;
  return h("div", { class: "rule" },
    h("code", null, inline(when ?? "always", 400)), h("span", { class: "dim" }, " · ", inline(where, 80)),
    error ? h("p", { class: "call-error tone-wait" }, "The condition could not be evaluated, so a person is asked: ", inline(error, 300)) : null,
    Object.keys(rest).length ? json(rest) : null);
}

function section(word, ...content) {
  return h("section", { class: "ask-part" }, h("h3", null, word), content);
}

function whyNot(approval, page) {
  if (!page.may("approver")) return "Your token does not have the role of an approver.";
  const whom = (approval.approvers ?? []).length ? approval.approvers.map((name) => plain(name, 60)).join(", ") : "anyone but the task's user";
  return `Asked of ${whom}; you are ${plain(page.me.user, 60)}.`;
}

/** One question, whole. */
function question(page, approval) {
  const kind = known(KIND, approval.kind);
  const effect = approval.effect ? known(EFFECT, approval.effect) : null;
  const history = approval.history ?? {};
  const given = (approval.decisions ?? []).length, yes = (approval.decisions ?? []).filter(({ counts }) => counts !== false).length;
  const closed = approval.open === false;
  return h("article", { class: "question-card", "data-question": approval.approval_id },
    h("header", null,
      h("div", { class: "ask-kind" }, link("/approvals", { class: "back narrow-only" }, "← Inbox"), h("span", { class: "tag tone-wait" }, icon(kind.icon ?? "person"), kind.word),
        approval.escalated ? h("span", { class: "tag tone-bad" }, "escalated") : null, approval.signed ? h("span", { class: "tag" }, "signed decisions only") : null),
      h("h2", null, block(approval.title || approval.question, 600)),
      h("p", { class: "dim ask-meta" }, "run ", link(path("runs", String(approval.run_id)), { class: "mono" }, inline(approval.run_id, 240)), " · agent ", inline(approval.agent, 60), " · for ", inline(approval.user_id, 80), " · asked ", time(approval.requested_at, true))),
    closed
      ? h("div", { class: "standing tone-plain" }, icon("check"), h("div", { class: "standing-text" }, h("strong", null, "Closed"), approval.closed_by ? [" by ", inline(approval.closed_by, 80)] : null, ". There is nothing left to decide."))
      : h("div", { class: "deadline" }, h("span", null, h("strong", { class: "number" }, until(Number(approval.expires_at))), " left"), h("span", { class: "dim" }, ` then ${THEN[approval.on_timeout] ?? plain(approval.on_timeout, 60)}`),
        approval.required > 1 ? h("span", { class: "tag" }, `${yes} of ${approval.required} have said yes`) : null),
    approval.question && approval.question !== approval.title ? section("Question", h("blockquote", { class: "question" }, block(approval.question))) : null,
    approval.arguments === null || approval.arguments === undefined ? null
      : section(approval.kind === "in_doubt" ? "The call" : "What would run",
        h("p", { class: "call-head" }, icon("tool"), h("span", { class: "mono" }, inline(approval.tool, 80)), effect ? h("span", { class: `tag${approval.effect === "external" ? " tone-wait" : ""}`, title: effect.meaning }, effect.word) : null),
        members(approval.arguments)),
    approval.reason ? section("Why, in the model's own words", h("blockquote", { class: "question" }, block(approval.reason))) : null,
    approval.rule ? section("Why you are asked", ruleText(approval.rule)) : null,
    given ? section("Decisions so far", h("ul", { class: "decisions" }, approval.decisions.map((one) => h("li", null, h("strong", null, inline(one.approver, 80)), ` ${plain(one.decision, 40).replaceAll("_", " ")} `, one.reason ? inline(one.reason, 300) : null, h("span", { class: "dim" }, " ", one.at ? time(one.at) : null))))) : null,
    approval.input === null || approval.input === undefined ? null : section("The task", typeof approval.input === "string" ? block(approval.input, 800) : members(approval.input)),
    (history.completed ?? []).length ? section("Done so far", h("ul", { class: "history" }, history.completed.map((one) => h("li", null, icon("check"), h("span", null, h("span", { class: "mono" }, inline(one.tool, 80)), " ", h("span", { class: "dim" }, inline(typeof one.arguments === "string" ? one.arguments : JSON.stringify(one.arguments ?? {}), 160))))))) : null,
    (history.errors ?? []).length ? section("Errors so far", h("ul", { class: "history bad" }, history.errors.map((one) => h("li", null, icon("cross"), h("span", null, h("code", null, inline([one.kind, one.code].filter(Boolean).join(" · "), 80)), " ", inline(one.message ?? "", 300)))))) : null,
    h("p", { class: "dim digest" }, "Digest ", h("span", { class: "mono" }, String(approval.digest ?? "").slice(0, 16)), "…: only these arguments are approved."),
    closed ? null : h("footer", { class: "decision-bar" }, approval.may_decide === false ? h("p", { class: "dim" }, whyNot(approval, page)) : decisionButtons(page, approval)));
}

export function approvals(page, ...parts) {
  const { main, live, keys } = page;
  const view = new AbortController();
  const chosen = parts.length === 2 ? parts.join("/") : null;
  const filter = { kind: page.address.searchParams.get("kind") ?? "", agent: page.address.searchParams.get("agent") ?? "" };
  let [items, cursor, total, current] = [[], null, 0, null];

  const list = h("ol", { class: "asks", "aria-label": "Open questions" });
  const sum = h("p", { class: "summary", role: "status" }, "Loading…");
  const more = h("button", { type: "button", class: "earlier", hidden: true, on: { click: () => load(true) } }, "Show more");
  const detail = h("div", { class: "inbox-detail", role: "region", "aria-label": "Question", "aria-live": "off" });
  const kind = h("select", { "aria-label": "Kind", on: { change: () => refilter("kind", kind.value) } }, h("option", { value: "" }, "All kinds"), Object.entries(KIND).map(([name, { word }]) => h("option", { value: name }, word)));
  kind.value = filter.kind;
  show(main, h("div", { class: chosen ? "inbox has-detail" : "inbox" },
    h("div", { class: "inbox-list" }, h("div", { class: "runs-head" }, h("h1", null, "Approvals"), kind), sum, list, more), detail));

  function refilter(name, value) {
    filter[name] = value;
    page.replace(page.address.pathname + query(filter));
    load();
  }

  async function load(onward) {
    try {
      const answer = await get("/api/approvals" + query({ ...filter, limit: 50, cursor: onward ? cursor : "" }), view.signal);
      items = onward ? [...items, ...answer.approvals] : answer.approvals;
      cursor = answer.next;
      total = Number(answer.total);
      draw();
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Away)) show(sum, page.fault(error));
    }
  }

  function draw() {
    const focused = document.activeElement?.closest?.("[data-approval]")?.dataset.approval;
    more.hidden = !cursor;
    const mine = items.filter((one) => one.may_decide !== false).length;
    show(sum, total ? `${count(total)} open${mine && mine < total ? `, ${count(mine)} of these yours to decide` : ""}` : "");
    show(list, items.map((one) => card(one, one.approval_id === chosen)));
    if (!items.length) show(list, h("li", { class: "empty" }, h("h2", null, "Nothing waits for a person"), h("p", null, "New questions appear here by themselves.")));
    if (focused) list.querySelector(`[data-approval="${CSS.escape(focused)}"] a`)?.focus({ preventScroll: true });
    if (!chosen) show(detail, h("div", { class: "empty wide-only" }, h("p", { class: "dim" }, items.length ? "Choose a question on the left (j, k, Enter)." : "")));
  }

  async function loadChosen() {
    if (!chosen) return;
    try {
      const made = await get("/api/approvals/" + parts.map(encodeURIComponent).join("/"), view.signal);
      const same = current && JSON.stringify(current) === JSON.stringify(made);
      current = made;
      if (!same) show(detail, question(page, current));
      page.title(String(current.title || "Question").slice(0, 60));
    } catch (error) {
      if (error.name === "AbortError" || error instanceof Away) return;
      show(detail, error.status === 404 ? h("div", { class: "empty" }, h("h2", null, "No such question"), h("p", null, "It may have been decided already. "), link(path("runs", parts[0]), null, "See the run")) : page.fault(error));
    }
  }

  const move = (by) => {
    const all = [...list.querySelectorAll("a.row-link")];
    const at = all.findIndex((one) => one === document.activeElement);
    const from = at >= 0 ? at : all.findIndex((one) => one.closest(".chosen")) ;
    all[Math.max(0, Math.min(all.length - 1, from + by))]?.focus();
  };
  const act = (word) => () => {
    if (current?.open !== false && current?.may_decide !== false && current?.allowed_decisions?.includes(word)) openDecision(page, current, word);
  };
  keys.use({
    j: ["Next question", () => move(1)], k: ["Question before", () => move(-1)], Enter: ["Open the question", () => null],
    a: ["Approve (asks once more)", () => act(current?.allowed_decisions?.includes("approve") ? "approve" : "answer")()],
    m: ["Approve with changes", act("modify")], x: ["Reject", act("reject")], o: ["Open the run", () => current && page.go(path("runs", current.run_id))],
    u: ["Back to the inbox", () => page.go("/approvals")],
  });
  let soon = null;
  const both = () => {
    clearTimeout(soon);
    soon = setTimeout(() => (load(), loadChosen()), 150);
  };
  const off = [live.on("approval", both), live.on("back", both)];
  page.decided = both;
  load();
  loadChosen();
  return { title: "Approvals", close: () => (view.abort(), clearTimeout(soon), off.forEach((one) => one())) };
}
