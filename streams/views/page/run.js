// One run: what it is, where it stands, its story, and what a person may do to it.
import { Away, get, query, runPath } from "./api.js";
import { controls } from "./control.js";
import { h, icon, link, path, show } from "./dom.js";
import { events } from "./events.js";
import { countdown, duration, money, plural, short, time } from "./format.js";
import { json, members } from "./json_view.js";
import { flags, status } from "./row.js";
import { moment, stepCard } from "./steps.js";
import { story, waitedForPeople } from "./story.js";
import { block, inline } from "./text.js";
import { KIND, known } from "./words.js";

const SHOWN_STEPS = 60;
const TABS = [["story", "Timeline"], ["events", "Every event"], ["state", "State"]];

function fact(word, value, more) {
  return h("div", { class: "fact" }, h("dt", null, word), h("dd", null, value, more ? h("span", { class: "dim" }, more) : null));
}

/** The run's numbers: what a glance is for. */
function facts(run, actions, entries, now) {
  const end = run.finished_at === null || run.finished_at === undefined ? now : Number(run.finished_at);
  const waited = waitedForPeople(actions, entries, now);
  const usage = run.usage ?? {};
  const called = actions.filter(({ attempts }) => Number(attempts) > 0);
  const retries = called.reduce((sum, { attempts }) => sum + Math.max(0, Number(attempts) - 1), 0);
  const failed = actions.filter((one) => ["failed", "in_doubt", "compensation_failed"].includes(one.status)).length;
  const tokens = Number(usage.input_tokens ?? 0) + Number(usage.output_tokens ?? 0);
  const budget = run.budget ?? {};
  return [
    fact(run.finished_at ? "Took" : "Runs for", duration(end - Number(run.started_at))),
    fact("Waited for people", waited ? duration(waited) : "–"),
    fact("Steps", String(run.steps_done ?? 0), run.steps_total ? ` of ${run.steps_total}` : ""),
    fact("Calls", String(called.length), retries ? ` + ${retries} again` : ""),
    fact("Failed", String(failed)),
    fact("Tokens", short(tokens), budget.tokens ? ` of ${short(budget.tokens)}` : ""),
    fact("Cost", money(usage.cost), budget.cost ? ` of ${money(budget.cost)}` : "")];
}

/** Where it stands now: what it waits for, with what to do about it. */
function standing(run, approvals, page) {
  const waits = run.waiting_for ?? [];
  const made = [];
  for (const one of waits) {
    const until = one.until ? [" · ", h("span", { class: "number", "data-until": one.until }, countdown(Number(one.until) - Date.now())), " left"] : null;
    if (Object.hasOwn(KIND, one.kind)) {
      const approval = approvals.find((asked) => asked.approval_id === one.approval_id);
      made.push(h("div", { class: "standing tone-wait" }, icon(known(KIND, one.kind).icon),
        h("div", { class: "standing-text" }, h("strong", null, `${known(KIND, one.kind).word}: `), approval ? inline(approval.title || approval.question, 200) : "a person is asked", h("span", { class: "dim" }, until)),
        link(path("approvals", ...String(one.approval_id).split("/")), { class: "button primary", "data-decide": true }, "Decide")));
    } else {
      made.push(h("div", { class: "standing tone-wait" }, icon("wait"),
        h("div", { class: "standing-text" }, { retry: "Tries again: ", breaker: "A service is unavailable: ", model: "The model is away: " }[one.kind] ?? `${one.kind}: `, h("strong", null, inline(one.target, 100)), h("span", { class: "dim" }, until))));
    }
  }
  if (run.paused) made.push(h("div", { class: "standing tone-wait" }, icon("wait"), h("div", { class: "standing-text" }, h("strong", null, "Paused. "), "What comes in is recorded, nothing new is called until it is resumed.")));
  if (run.quarantined) made.push(h("div", { class: "standing tone-bad" }, icon("cross"), h("div", { class: "standing-text" }, h("strong", null, "Quarantined: "), "its own processing failed, a fault of the software. Its records are kept. Release it after an update.")));
  if (run.incomplete) made.push(h("div", { class: "standing tone-wait" }, icon("note"), h("div", { class: "standing-text" }, "Its first events are no longer there, so some of this is missing. ", h("code", null, `perdure show`), " knows its live state.")));
  return made;
}

function listed(word, list, tone) {
  const all = Array.isArray(list) ? list : [];
  if (!all.length) return null;
  return h("div", { class: "outcome-list" }, h("h4", { class: `tone-${tone}` }, `${word} (${all.length})`),
    h("ul", null, all.slice(0, 30).map((one) => h("li", null, h("span", { class: "mono" }, inline(one.tool ?? one.code ?? one.kind, 80)), " ", h("span", { class: "dim" }, inline(one.message ?? one.error?.message ?? "", 240))))));
}

function outcome(made) {
  if (!made) return null;
  const tone = made.status === "done" ? (made.complete ? "good" : "wait") : made.status === "failed" ? "bad" : "plain";
  const word = made.status === "done" ? (made.complete ? "Done, nothing is missing" : "Done, but not complete") : made.status === "failed" ? "Failed" : "Cancelled";
  return h("section", { class: `outcome tone-${tone}`, "aria-label": "Outcome" },
    h("h2", null, icon(tone === "good" ? "check" : tone === "plain" ? "note" : tone === "wait" ? "wait" : "cross"), word),
    made.text ? h("div", { class: "outcome-text" }, block(made.text, 1200)) : null,
    h("div", { class: "outcome-lists" },
      listed("Not done", made.not_completed, "wait"), listed("In doubt", made.in_doubt, "bad"), listed("Undone", made.compensated, "undo"),
      listed("From an older result", made.degraded, "wait"), listed("Errors", made.errors, "bad")),
    made.result !== null && made.result !== undefined && made.result !== made.text ? h("details", null, h("summary", null, "Result"), json(made.result)) : null);
}

function plan(run) {
  const all = Array.isArray(run.plan) ? run.plan : [];
  if (!all.length) return null;
  return h("ol", { class: "plan", "aria-label": "Plan" }, all.slice(0, 40).map((one) =>
    h("li", { class: `plan-${one.status}`, title: String(one.status ?? "") }, h("span", { class: "plan-mark", "aria-hidden": "true" }), inline(one.title ?? one.id, 80), h("span", { class: "unseen" }, ` (${one.status})`))));
}

function state(run, outcomeOf) {
  const part = (word, value, drawn) => (value === null || value === undefined || value === "" ? null : h("section", { class: "panel" }, h("h3", null, word), drawn ?? json(value)));
  const target = ([name, one]) => h("tr", null, h("td", { class: "mono" }, inline(name, 80)), h("td", null, inline(one?.status, 40)), h("td", null, inline(one?.code ?? "", 60)), h("td", { class: "number" }, String(one?.consecutive ?? "")), h("td", { class: "number" }, one?.at ? time(one.at) : ""));
  const calls = Object.entries(run.last_api_call_status ?? {});
  return h("div", { class: "state-grid" },
    part("Input", run.input, typeof run.input === "string" ? block(run.input) : members(run.input)),
    part("Key state", run.key_state),
    part("Summary of what went before", run.summary, typeof run.summary === "string" ? block(run.summary) : undefined),
    calls.length ? h("section", { class: "panel" }, h("h3", null, "Last call of each target"), h("div", { class: "scroll-x" }, h("table", { class: "plain-table" }, h("thead", null, h("tr", null, ["Target", "Status", "Code", "In a row", "At"].map((word) => h("th", { scope: "col" }, word)))), h("tbody", null, calls.map(target))))) : null,
    part("Budget", run.budget), part("Metadata", Object.keys(run.metadata ?? {}).length ? run.metadata : null, members(run.metadata)),
    part("Agent as it was at the start", run.definition), part("Outcome", outcomeOf));
}

export function run(page, runId) {
  const { main, live, keys } = page;
  const view = new AbortController();
  const open = new Set();
  let [answer, actions, entries, last] = [null, [], [], 0];
  let shown = SHOWN_STEPS;
  let tab = page.address.hash.slice(1) || "story";
  if (!TABS.some(([name]) => name === tab)) tab = "story";
  let eventsView = null;
  let ticking = null;

  const head = h("div", { class: "run-head" });
  const now = h("div", { class: "standings", "aria-live": "polite" });
  const ended = h("div");
  const planned = h("div");
  const numbers = h("dl", { class: "facts" });
  const body = h("div", { class: "run-body", role: "tabpanel", id: "panel" });
  const tabs = h("div", { class: "tabs", role: "tablist" }, TABS.map(([name, word], i) =>
    h("button", { type: "button", role: "tab", "data-tab": name, "aria-controls": "panel", on: { click: () => choose(name), keydown: (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) (choose(TABS[(i + by + TABS.length) % TABS.length][0]), tabs.querySelector('[aria-selected="true"]').focus());
    } } }, word)));
  show(main, h("article", { class: "run" }, head, now, ended, numbers, planned, tabs, body));
  show(body, h("p", { class: "dim loading" }, "Loading…"));

  function choose(name) {
    tab = name;
    history.replaceState(history.state, "", name === "story" ? location.pathname : `#${name}`);
    draw();
  }

  function drawHead() {
    const { run: it } = answer;
    show(head,
      h("div", { class: "run-title" }, link(page.list, { class: "back" }, "← Runs"),
        h("h1", null, inline(it.title || "(no text)", 200)),
        h("div", { class: "run-who" }, status(it), flags(it),
          h("span", { class: "mono copyable" }, inline(it.run_id, 240)),
          h("span", { class: "dim" }, "agent ", link("/" + query({ agent: it.agent }), null, inline(it.agent, 60)), " · for ", link("/" + query({ user_id: it.user_id }), null, inline(it.user_id, 80)),
            it.session_id && it.session_id !== it.run_id ? [" · session ", link("/" + query({ session_id: it.session_id }), null, inline(it.session_id, 80))] : null,
            it.tenant && it.tenant !== "default" ? [" · tenant ", inline(it.tenant, 80)] : null, " · started ", time(it.started_at), ` · version ${it.version}`,
            it.fork_of ? [" · ", icon("fork"), "from ", link(path("runs", String(it.fork_of.run_id)), null, inline(it.fork_of.run_id, 80)), ` at ${it.fork_of.version}`] : null))),
      controls(page, it));
    show(now, standing(it, answer.approvals ?? [], page));
    show(ended, outcome(answer.outcome));
    show(planned, plan(it));
    show(numbers, facts(it, actions, entries, Date.now()));
  }

  function draw() {
    if (!answer) return;
    for (const one of tabs.children) {
      one.setAttribute("aria-selected", String(one.dataset.tab === tab));
      one.tabIndex = one.dataset.tab === tab ? 0 : -1;
    }
    if (tab !== "events" && eventsView) eventsView = (eventsView.close(), null);
    if (tab === "state") show(body, state(answer.run, answer.outcome));
    else if (tab === "events") {
      if (!eventsView) {
        eventsView = events(page, runId);
        show(body, eventsView.element);
      }
    } else drawStory();
  }

  function drawStory() {
    const at = Date.now();
    const { items, replies, decidedAt } = story(actions, entries, at);
    const context = { now: at, decidedAt, replies, open };
    const from = Math.max(0, items.length - shown);
    const focused = document.activeElement?.closest?.("[data-action]")?.dataset.action;
    show(body,
      from ? h("button", { type: "button", class: "earlier", on: { click: () => ((shown += 200), drawStory()) } }, `Show ${plural(from, "earlier step")}`) : null,
      h("div", { class: "story" }, items.slice(from).map((item) => (item.kind === "moment" ? moment(item.entry) : stepCard(item, context)))),
      items.length ? null : h("p", { class: "dim" }, "Nothing has happened yet."));
    if (focused) body.querySelector(`[data-action="${CSS.escape(focused)}"] .call-toggle`)?.focus({ preventScroll: true });
  }

  let loading = false;
  let again = false;
  async function load() {
    if (loading) return void (again = true);
    loading = true;
    const begun = performance.now();
    try {
      const [one, called, more] = await Promise.all([get(runPath(runId), view.signal), get(runPath(runId, "actions"), view.signal), told()]);
      answer = one;
      actions = called.actions;
      entries.push(...more);
      last = Math.max(last, ...more.map(({ version }) => Number(version)));
      drawHead();
      if (tab === "story" || tab === "state") draw();
      else draw(), eventsView?.more();
      page.title(String(one.run.title || one.run.run_id).slice(0, 60));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404 && !answer) waitForIt();
      else if (!(error instanceof Away)) show(answer ? now : body, page.fault(error));
    } finally {
      loading = false;
      // A long run's answers are large: it is asked for again only after three times as long as that took.
      if (again && !view.signal.aborted) setTimeout(() => ((again = false), view.signal.aborted || load()), Math.min(5000, 3 * (performance.now() - begun)));
    }
  }

  /** The entries that are new: they count as told only when all that was asked for with them is here. */
  async function told() {
    const found = [];
    let from = last;
    for (let pages = 0; pages < 20; pages++) {
      const { entries: more, next } = await get(runPath(runId, "timeline") + query({ after: from || "", limit: 500 }), view.signal);
      found.push(...more.filter(({ version }) => Number(version) > from));
      from = Math.max(from, ...more.map(({ version }) => Number(version)));
      if (next === null || next === undefined || !more.length) break;
    }
    return found;
  }

  function waitForIt() {
    show(body, h("div", { class: "empty" }, h("h2", null, "No such run yet"),
      h("p", null, "A task that was just sent appears here by itself, in a second or so. If it does not: check the id, whether an engine runs (Health), and ", h("code", null, "agent.dead-letters"), "."),
      h("p", { class: "mono" }, inline(runId, 240))));
    clearTimeout(ticking);
    ticking = setTimeout(load, 1000);
  }

  const tick = setInterval(() => answer && tab === "story" && !answer.run.finished_at && !document.hidden && (show(numbers, facts(answer.run, actions, entries, Date.now())), body.contains(document.activeElement) || !getSelection().isCollapsed || drawStory()), 2000);
  keys.use({
    a: ["Decide what it waits for", () => main.querySelector("[data-decide]")?.click()],
    j: ["Next call", () => step(1)],
    k: ["Call before", () => step(-1)],
    Enter: ["Open or close the call", () => null],
    e: ["Every event", () => choose(tab === "events" ? "story" : "events")],
    u: ["Back to the runs", () => page.go(page.list)],
  });
  function step(by) {
    const all = [...body.querySelectorAll(".call-toggle, .event-row")];
    const at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))]?.focus();
    document.activeElement?.scrollIntoView?.({ block: "nearest" });
  }
  const off = [
    live.on("run", (row) => row.run_id === runId && load()),
    live.on("approval", (made) => made.run_id === runId && load()),
    live.on("back", load),
  ];
  load();
  return {
    title: "Run",
    close() {
      view.abort();
      clearInterval(tick);
      clearTimeout(ticking);
      eventsView?.close();
      for (const one of off) one();
    },
  };
}
