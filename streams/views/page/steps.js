// A run's story drawn: a card a step, a line a call, the line's bar on the step's own time axis.
import { h, icon, link, path } from "./dom.js";
import { duration, money, short, time } from "./format.js";
import { brief, json, members } from "./json_view.js";
import { scale } from "./scale.js";
import { askedOf, attemptsOf } from "./story.js";
import { block, inline, plain } from "./text.js";
import { ACTION, EFFECT, known } from "./words.js";

const OUTCOMES = { succeeded: "good", adopted: "good", found: "good", failed: "bad", unknown: "wait", in_doubt: "bad", cancelled: "plain" };
const place = (value) => `${(value * 100).toFixed(3)}%`;

function bar(name, from, to, title, text) {
  return h("span", { class: `bar ${name}`, title, style: { left: place(from), width: `max(3px, ${place(Math.max(0, to - from))})` } }, text ? h("span", { class: "bar-text" }, text) : null);
}

function bars(action, axis, decidedAt, now) {
  const all = attemptsOf(action, now);
  const asked = askedOf(action, decidedAt, now);
  const made = [];
  if (asked) {
    made.push(bar(`bar-person${asked.open ? " open" : ""}`, axis.place(asked.from), axis.place(asked.to), `Waited ${duration(asked.to - asked.from)} for a person`, duration(asked.to - asked.from)));
  }
  all.forEach((one, i) => {
    const before = all[i - 1];
    if (before && one.from > before.to) made.push(bar("bar-backoff", axis.place(before.to), axis.place(one.from), `Waited ${duration(one.from - before.to)} before attempt ${one.attempt}`));
    if (one.started > one.from) made.push(bar("bar-queued", axis.place(one.from), axis.place(one.started), `Queued ${duration(one.started - one.from)}`));
    const tone = one.open ? "run" : OUTCOMES[one.outcome] ?? "run";
    made.push(bar(`bar-${tone}${one.open ? " open" : ""}`, axis.place(one.started), axis.place(one.to), `Attempt ${one.attempt}: ${one.open ? "running" : one.outcome ?? "ended"}, ${duration(one.to - one.started)}`));
  });
  if (action.status === "backing_off" && all.length) {
    made.push(bar("bar-backoff open", axis.place(all.at(-1).to), 1, "Waits to try again"));
  }
  return made;
}

function marks(action) {
  const made = [];
  const approval = action.approval;
  if (approval) {
    const last = (approval.decisions ?? []).at(-1);
    const changed = (approval.decisions ?? []).find(({ decision }) => decision === "modify");
    if (approval.open) made.push(link(path("approvals", ...String(approval.approval_id).split("/")), { class: "mark tone-wait" }, icon("person"), "waits for a person: decide"));
    else if (action.status === "rejected" || last?.decision === "reject") made.push(h("span", { class: "mark tone-bad" }, icon("person"), "rejected by ", inline(last?.approver ?? approval.closed_by, 60)));
    else if (!last && !action.approved_by) made.push(h("span", { class: "mark tone-plain" }, icon("person"), "not answered"));
    else made.push(h("span", { class: "mark tone-good" }, icon("person"), changed ? "changed and approved by " : "approved by ", inline(action.approved_by ?? changed?.approver ?? approval.closed_by, 60)));
  }
  const tries = Number(action.attempts ?? 0);
  if (tries > 1) {
    const codes = [...new Set((action.attempts_list ?? []).map(({ error }) => error?.code || error?.kind).filter(Boolean))];
    made.push(h("span", { class: "mark tone-wait" }, `${tries} attempts`, codes.length ? [": ", inline(codes.slice(0, 3).join(", "), 80)] : null));
  }
  if ((action.attempts_list ?? []).some(({ outcome }) => outcome === "adopted")) made.push(h("span", { class: "mark tone-good", title: "Its outcome was asked for: it had happened already" }, "found, not repeated"));
  if (action.degraded) made.push(h("span", { class: "mark tone-wait", title: "An older result or another tool stood in" }, "degraded"));
  return made;
}

function fact(word, ...value) {
  return [h("dt", null, word), h("dd", null, value)];
}

function detail(action, now, decidedAt) {
  const effect = known(EFFECT, action.effect);
  const attempts = attemptsOf(action, now);
  const asked = askedOf(action, decidedAt, now);
  return h("div", { class: "call-detail" },
    h("div", { class: "detail-columns" },
      action.arguments !== null && action.arguments !== undefined ? h("section", null, h("h4", null, "Arguments"), members(action.arguments)) : null,
      action.result !== null && action.result !== undefined ? h("section", null, h("h4", null, "Result"), json(action.result)) : null,
      action.error ? h("section", null, h("h4", null, "Error"), h("p", { class: "error-line" }, h("code", null, inline([action.error.kind, action.error.code].filter(Boolean).join(" · "), 120))), block(action.error.message ?? "", 800)) : null),
    asked
      ? h("section", null, h("h4", null, "Asked of a person"),
        h("p", null, inline(asked.approval.title, 220)),
        h("ul", { class: "decisions" },
          (asked.approval.decisions ?? []).map((one) => h("li", null, h("strong", null, inline(one.approver, 80)), ` ${String(one.decision).replaceAll("_", " ")}`, one.reason ? [": ", inline(one.reason, 400)] : null)),
          h("li", { class: "dim" }, asked.open ? "still open" : `after ${duration(asked.to - asked.from)}`)),
        asked.approval.original_arguments ? [h("h4", null, "Asked with these arguments first"), members(asked.approval.original_arguments)] : null)
      : null,
    attempts.length
      ? h("section", null, h("h4", null, "Attempts"),
        h("div", { class: "scroll-x" }, h("table", { class: "plain-table" },
          h("thead", null, h("tr", null, ["#", "Requested", "Took", "Outcome", "Error"].map((word) => h("th", { scope: "col" }, word)))),
          h("tbody", null, attempts.map((one) => h("tr", null,
            h("td", { class: "number" }, String(one.attempt)), h("td", { class: "number" }, time(one.from)), h("td", { class: "number" }, duration(one.to - one.from)),
            h("td", null, h("span", { class: `word tone-${one.open ? "run" : OUTCOMES[one.outcome] ?? "plain"}` }, one.open ? "running" : String(one.outcome ?? "").replaceAll("_", " "))),
            h("td", null, one.error ? inline([one.error.code || one.error.kind, one.error.message].filter(Boolean).join(": "), 240) : null)))))))
      : null,
    h("dl", { class: "facts-list" },
      fact("Action", h("span", { class: "mono" }, inline(action.action_id, 240))),
      action.kind === "model" ? null : fact("Effect", effect.word, h("span", { class: "dim" }, effect.meaning ? `. ${effect.meaning}` : "")),
      fact("Key", h("span", { class: "mono" }, inline(action.idempotency_key, 240))),
      Number(action.tokens) ? fact("Tokens", short(action.tokens)) : null,
      Number(action.cost) ? fact("Cost", money(action.cost)) : null));
}

function call(action, axis, context) {
  const { now, decidedAt, replies, open } = context;
  const state = known(ACTION, action.status);
  const attempts = attemptsOf(action, now);
  const all = attempts.length ? attempts.at(-1).to - attempts[0].from : null;
  const reply = action.kind === "model" ? replies.get(Number(String(action.action_id).split("/").pop())) : null;
  const kind = { model: "spark", compensation: "undo", notice: "bell" }[action.kind] ?? "tool";
  const error = action.error && action.status !== "succeeded"
    ? [action.error.code || action.error.kind, action.error.message].filter(Boolean).join(": ")
    : "";
  const more = h("div", { class: "call-more" });
  const opened = open.has(action.action_id);
  const toggle = h("button", { type: "button", class: "call-toggle", "aria-expanded": String(opened), "aria-label": plain(`${action.tool}, ${state.word}. Details`, 120) },
    h("span", { class: `state tone-${state.tone}`, title: state.word }, icon(state.icon)),
    h("span", { class: "call-name" }, icon(kind, "call-kind"), inline(action.tool, 80)));
  if (opened) more.append(detail(action, now, decidedAt));
  toggle.addEventListener("click", () => {
    const now_open = !open.has(action.action_id);
    now_open ? open.add(action.action_id) : open.delete(action.action_id);
    toggle.setAttribute("aria-expanded", String(now_open));
    more.replaceChildren(...(now_open ? [detail(action, Date.now(), decidedAt)] : []));
  });
  return h("li", { class: `call kind-${action.kind ?? "tool"}`, "data-action": action.action_id },
    h("div", { class: "call-line" },
      toggle,
      h("div", { class: "call-says" },
        reply ? said(reply) : h("span", { class: "call-arguments" }, brief(action.arguments)),
        h("span", { class: "marks" }, marks(action))),
      h("div", { class: "track", "aria-hidden": "true" }, axis ? [bars(action, axis, decidedAt, now), axis.cuts.map(({ at, ms }) => h("span", { class: "axis-cut", style: { left: place(at) }, title: `${duration(ms)} shortened here` }))] : null),
      h("span", { class: "took number" }, all === null ? "" : duration(all))),
    error ? h("p", { class: `call-error tone-${action.status === "failed" || action.status === "in_doubt" ? "bad" : "wait"}` }, inline(error, 300)) : null,
    more);
}

/** A model's reply in a line: what it decided, and its words. */
function said(entry) {
  const data = entry.data ?? {};
  const calls = (Array.isArray(data.calls) ? data.calls : []).filter((one) => one?.name);
  const words = typeof data.content === "string" ? data.content : data.content?.start ?? "";
  return h("span", { class: "reply" },
    calls.length ? [h("span", { class: "dim" }, "decides: "), calls.map((one, i) => [i ? ", " : "", h("span", { class: one.error ? "call-word broken" : "call-word", title: one.error ? plain(one.error, 300) : null }, inline(one.name, 60))])] : null,
    words ? [calls.length ? " · " : "", h("span", { class: "quote" }, inline(words, 280))] : null,
    !calls.length && !words ? h("span", { class: "dim" }, inline(entry.title, 200)) : null);
}

function heading(step) {
  const names = (step.titles ?? [step.title]).filter((name) => name && !step.actions.some((action) => action.kind === "model" && action.tool === name));
  if (step.undo) return [h("span", { class: "step-number" }, "Undoing"), h("span", { class: "dim" }, " what was done, last first")];
  if (step.notice) return [h("span", { class: "step-number" }, "Telling people")];
  const { steps } = step;
  return [
    h("span", { class: "step-number" }, steps.length > 1 ? `Steps ${steps[0]}–${steps.at(-1)}` : `Step ${steps[0]}`),
    names.length ? h("span", { class: "step-name" }, names.map((name, i) => [i ? " + " : "", inline(name, 80)])) : null,
  ];
}

/** One step's card. `context`: {now, decidedAt, replies, open}. */
export function stepCard(step, context) {
  const { now, decidedAt } = context;
  const models = step.actions.filter(({ kind }) => kind === "model");
  const others = step.actions.filter(({ kind }) => kind !== "model");
  const busy = step.actions.flatMap((action) => attemptsOf(action, now).map(({ from, to }) => [from, to]));
  const axis = step.start === null ? null : scale(step.start, Math.max(step.end, step.start + 1), busy);
  const together = others.length > 1 && others.some((one, i) => {
    const [a, b] = [span(one, decidedAt, now), others[i + 1] && span(others[i + 1], decidedAt, now)];
    return a && b && a[0] < b[1] && b[0] < a[1];
  });
  const cost = step.actions.reduce((sum, { cost }) => sum + Number(cost ?? 0), 0);
  return h("section", { class: "step", "aria-label": `Step ${step.steps.join(", ")}` },
    h("header", { class: "step-head" }, h("h3", null, heading(step)),
      h("span", { class: "step-end number" },
        together ? h("span", { class: "tag" }, `${others.length} side by side`) : null,
        cost ? h("span", { class: "dim" }, money(cost)) : null,
        step.start === null ? null : [time(step.start), h("strong", null, duration(step.end - step.start))])),
    h("ol", { class: "calls" }, models.map((action) => call(action, axis, context))),
    others.length ? h("ol", { class: together ? "calls together" : "calls" }, others.map((action) => call(action, axis, context))) : null);
}

function span(action, decidedAt, now) {
  const all = attemptsOf(action, now);
  const asked = askedOf(action, decidedAt, now);
  const from = asked?.from ?? all[0]?.from;
  return from === undefined ? null : [from, all.at(-1)?.to ?? asked.to];
}

const MARK = { person: "person", model: "spark", bad: "cross", good: "check", wait: "wait", plain: "note" };

/** Something that happened beside the calls: a message, a pause, an end. */
export function moment(entry) {
  const tone = entry.tone ?? "plain";
  return h("div", { class: `moment tone-${{ person: "run", model: "plain" }[tone] ?? tone}`, "data-version": entry.version },
    h("span", { class: "moment-icon" }, icon(MARK[tone] ?? "note")),
    h("span", { class: "moment-text" }, inline(entry.title, 400), entry.actor && !["engine"].includes(entry.actor) ? h("span", { class: "dim" }, " · ", inline(entry.actor, 80)) : null),
    h("span", { class: "number dim" }, time(entry.at)));
}
