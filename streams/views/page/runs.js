// The list of runs: filters, pages as far as one scrolls, changes as they happen.
import { Away, get, query } from "./api.js";
import { spark } from "./chart.js";
import { h, icon, show } from "./dom.js";
import { Rows } from "./rows.js";
import { runRow } from "./row.js";
import { count, inline } from "./text.js";
import { STATUS } from "./words.js";

const PAGE = 100;
const LONGEST = 2000; // rows asked for again after a break: who has scrolled further starts there
const FILTERS = ["status", "agent", "user_id", "session_id", "tenant", "q", "stuck", "quarantined", "since"];
const AGES = [["", "Any time"], ["3600", "Last hour"], ["86400", "Last day"], ["604800", "Last week"]];

/** What a filter means in the API's words; ages become a point in time. */
function asked(filter, now) {
  const made = Object.fromEntries(FILTERS.map((name) => [name, filter[name] ?? ""]));
  made.status = filter.status ? filter.status.split(",") : [];
  made.since = filter.since ? now - Number(filter.since) * 1000 : "";
  return made;
}

/** Whether a changed row belongs into the list as it is filtered. The same rules as the server's. */
export function belongs(filter, row) {
  if (filter.status && !filter.status.split(",").includes(row.status)) return false;
  for (const name of ["agent", "user_id", "session_id", "tenant"]) if (filter[name] && row[name] !== filter[name]) return false;
  if (filter.quarantined && !row.quarantined) return false;
  if (filter.stuck) return false; // only the server knows what is stuck
  if (!filter.q) return true;
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const title = String(row.title ?? "").toLowerCase();
  return row.run_id.startsWith(filter.q.trim()) || words.every((word) => title.includes(word));
}

export function runs(page) {
  const { main, live, keys, address } = page;
  const filter = Object.fromEntries(FILTERS.map((name) => [name, address.searchParams.get(name) ?? ""]));
  const view = new AbortController();
  let [items, index, cursor, total] = [[], new Map(), null, 0];
  let loading = null;
  let ended = false;
  let fresh = new Set();
  let generation = 0;

  const rows = new Rows({ scroller: main, draw: runRow, key: (row) => row.run_id, near: () => more(), label: "Runs" });
  const summary = h("p", { class: "summary", role: "status" });
  const pill = h("button", { type: "button", class: "pill", hidden: true, on: { click: () => top() } });
  const end = h("div", { class: "list-end" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Status" });
  const search = h("input", { type: "search", id: "search", placeholder: "Run id or words", "aria-label": "Search runs by id or words", value: filter.q, autocomplete: "off", spellcheck: "false" });
  const agent = h("select", { "aria-label": "Agent" }, h("option", { value: "" }, "All agents"));
  const user = h("input", { type: "text", placeholder: "User", "aria-label": "User", value: filter.user_id, autocomplete: "off", spellcheck: "false" });
  const age = h("select", { "aria-label": "Updated" }, AGES.map(([value, word]) => h("option", { value }, word)));
  age.value = filter.since;
  const chart = h("div", { class: "spark", "aria-hidden": "true" });
  const others = h("div", { class: "other-filters" });

  show(main,
    h("div", { class: "runs" },
      h("div", { class: "runs-head" },
        h("h1", null, "Runs"), chart),
      h("div", { class: "filters", "data-sticky": true },
        chips,
        h("div", { class: "fields" }, h("span", { class: "search" }, search, h("kbd", { "aria-hidden": "true" }, "/")), agent, user, age),
        h("div", { class: "list-line" }, summary, others, pill)),
      h("div", { class: "table", role: "table", "aria-label": "Runs, newest change first" },
        h("div", { class: "run-row table-head", role: "row", "aria-rowindex": "1" },
          ["Status", "Task", "Agent, user", "Steps", "Cost", "Updated"].map((word, i) =>
            h("div", { role: "columnheader", class: ["cell-status", "cell-main", "cell-agent", "cell-steps", "cell-cost number", "cell-time number"][i] }, word))),
        rows.element),
      end));

  function refilter(name, value) {
    filter[name] = value;
    page.replace("/" + query(filter));
    reload();
    drawOthers();
  }

  function drawChips(stats) {
    const totals = stats?.totals ?? {};
    const all = Object.values(totals).reduce((sum, number) => sum + Number(number), 0);
    const chosen = new Set(filter.status ? filter.status.split(",") : []);
    const chip = (name, word, number, pressed, press, tone) => {
      const old = chips.querySelector(`[data-chip="${name}"]`);
      const made = old ?? h("button", { type: "button", "data-chip": name, class: `chip tone-${tone}`, on: { click: press } },
        tone === "none" ? null : h("span", { class: "status-dot", "aria-hidden": "true" }), h("span", null, word), h("span", { class: "chip-count number" }));
      made.querySelector(".chip-count").textContent = stats ? count(number) : "";
      made.setAttribute("aria-pressed", String(pressed));
      if (!old) chips.append(made);
    };
    chip("all", "All", all, !chosen.size && !filter.stuck && !filter.quarantined, () => {
      filter.stuck = filter.quarantined = "";
      refilter("status", "");
      drawChips(stats);
    }, "none");
    for (const [name, { word, tone }] of Object.entries(STATUS)) {
      chip(name, word, totals[name] ?? 0, chosen.has(name), () => {
        const now = new Set(filter.status ? filter.status.split(",") : []);
        now.has(name) ? now.delete(name) : now.add(name);
        refilter("status", [...now].join(","));
        drawChips(lastStats);
      }, tone);
    }
    for (const [name, word] of [["stuck", "Stuck"], ["quarantined", "Quarantined"]]) {
      if (!chips.querySelector(`[data-chip="${name}"]`) && !Number(stats?.[name]) && !filter[name]) continue;
      chip(name, word, stats?.[name] ?? 0, Boolean(filter[name]), () => {
        refilter(name, filter[name] ? "" : "1");
        drawChips(lastStats);
      }, "bad");
    }
  }

  function drawOthers() {
    show(others, ["session_id", "tenant"].filter((name) => filter[name]).map((name) =>
      h("button", { type: "button", class: "filter-tag", on: { click: () => refilter(name, "") }, title: "Remove this filter" },
        `${name === "session_id" ? "session" : name} `, inline(filter[name], 60), icon("cross"))));
  }

  let lastStats = null;
  async function stats(told) {
    try {
      lastStats = told?.totals ? told : await get("/api/stats", view.signal);
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Away)) page.fail(error);
      return;
    }
    drawChips(lastStats);
    const ended = (lastStats.rates ?? []).reduce((sum, one) => sum + Number(one.finished ?? 0), 0);
    show(chart, h("span", null, `${count(ended)} ended in the last hour`), spark(lastStats.rates ?? []));
  }

  function say() {
    const filtered = FILTERS.some((name) => filter[name]);
    summary.textContent = loading && !items.length ? "Loading…" : `${count(total)} ${total === 1 ? "run" : "runs"}${filtered ? " match" : ""}`;
    pill.hidden = !fresh.size;
    pill.textContent = fresh.size ? `${count(fresh.size)} new or changed: show` : "";
    rows.element.parentElement.setAttribute("aria-rowcount", String(total + 1));
    if (!items.length && !loading) {
      show(end, h("div", { class: "empty" }, filtered
        ? [h("h2", null, "No run matches"), h("p", null, "Change or clear the filters above."), h("button", { type: "button", on: { click: () => { for (const name of FILTERS) filter[name] = ""; search.value = user.value = agent.value = age.value = ""; refilter("q", ""); drawChips(lastStats); } } }, "Clear all filters")]
        : [h("h2", null, "No runs yet"), h("p", null, "Submit a task here (n), or run ", h("code", null, "perdure submit tasks.jsonl"), " in a terminal.")]));
    } else {
      show(end, items.length && ended ? h("p", { class: "dim" }, "That is all of them.") : items.length ? h("p", { class: "dim" }, "Loading more…") : null);
    }
  }

  async function more() {
    if (loading || ended) return;
    const mine = generation;
    const first = !items.length;
    loading = get("/api/runs" + query({ ...asked(filter, Date.now()), limit: first ? 50 : PAGE, cursor }), view.signal);
    if (first) say();
    try {
      const answer = await loading;
      if (mine !== generation) return;
      for (const row of answer.runs) {
        if (!index.has(row.run_id)) items.push(row);
        index.set(row.run_id, index.get(row.run_id) ?? items.length - 1);
      }
      total = Number(answer.total);
      cursor = answer.next;
      ended = !cursor;
      loading = null;
      say();
      rows.set(items);
    } catch (error) {
      if (mine !== generation || error.name === "AbortError") return;
      loading = null;
      ended = !(error instanceof Away);
      if (!(error instanceof Away)) show(end, page.fault(error));
    }
  }

  /** The first so many rows, and all that changed after a moment, in as many pages as that takes. */
  async function upTo(wanted, since) {
    const made = { runs: [], next: null, total: 0 };
    const parts = asked(filter, Date.now());
    do {
      const limit = Math.min(200, Math.max(50, wanted - made.runs.length));
      const answer = await get("/api/runs" + query({ ...parts, limit, cursor: made.next }), view.signal);
      made.runs.push(...answer.runs);
      made.next = answer.next;
      made.total = answer.total;
    } while (made.next && made.runs.length < LONGEST && (made.runs.length < wanted || Number(made.runs.at(-1).updated_at) > since));
    return made;
  }

  /** The rows that are shown, each as it is now and where it stands; what is new waits behind the button. */
  function whereTheyStand(found, oldest) {
    const now = new Map(found.map((row) => [row.run_id, row]));
    const kept = items.filter((row) => now.has(row.run_id)).map((row) => now.get(row.run_id));
    for (const row of kept) now.delete(row.run_id);
    const further = [...now.values()].filter((row) => Number(row.updated_at) < oldest);
    for (const row of further) now.delete(row.run_id);
    fresh = new Set(now.keys());
    return [...kept, ...further];
  }

  /**
   * From the start; what is shown stays until the answer is there, so that nothing flashes.
   * `still`: and every row stays where it stands.
   */
  async function reload(still = false) {
    const mine = ++generation;
    const oldest = still ? Math.min(...items.map((row) => Number(row.updated_at))) : Infinity;
    loading = upTo(Math.min(LONGEST, Math.max(50, main.scrollTop < 4 && !still ? 50 : items.length)), oldest);
    try {
      const answer = await loading;
      if (mine !== generation) return;
      fresh = new Set();
      items = still ? whereTheyStand(answer.runs, oldest) : answer.runs;
      index = new Map(items.map((row, i) => [row.run_id, i]));
      total = Number(answer.total);
      cursor = answer.next;
      ended = !cursor;
      loading = null;
      say();
      rows.set(items);
    } catch (error) {
      if (mine !== generation || error.name === "AbortError") return;
      loading = null;
      if (!(error instanceof Away)) show(end, page.fault(error));
    }
  }

  function top() {
    main.scrollTop = 0;
    reload();
  }

  // A list that is being read must not move: new rows come in by themselves only at the very top,
  // with no pointer over the list and no row chosen; else a button says how many there are.
  let over = false;
  rows.element.addEventListener("pointerenter", () => (over = true));
  rows.element.addEventListener("pointerleave", () => (over = false));
  let refreshing = null;
  function changed(row) {
    const at = index.get(row.run_id);
    if (at !== undefined) {
      if (Number(items[at].version) >= Number(row.version)) return;
      items[at] = row;
      rows.renew(row);
      if (at === 0) return;
    } else if (!belongs(filter, row)) {
      return;
    }
    if (at === undefined) fresh.add(row.run_id);
    if (main.scrollTop < 4 && !over && rows.focused() < 0 && fresh.size) {
      refreshing ??= setTimeout(() => {
        refreshing = null;
        if (main.scrollTop < 4 && !over && rows.focused() < 0) reload();
        else say();
      }, 800);
    } else if (at === undefined) {
      say();
    }
  }

  let typed = null;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => refilter("q", search.value.trim()), 200);
  });
  user.addEventListener("change", () => refilter("user_id", user.value.trim()));
  agent.addEventListener("change", () => refilter("agent", agent.value));
  age.addEventListener("change", () => refilter("since", age.value));

  const move = (by) => {
    const at = rows.focused();
    const next = Math.max(0, Math.min(items.length - 1, (at < 0 ? (by > 0 ? -1 : 0) : at) + by));
    if (items.length) rows.focus(next);
  };
  keys.use({
    j: ["Next run", () => move(1)],
    k: ["Run before", () => move(-1)],
    Enter: ["Open the run", () => items[0] && rows.focus(Math.max(0, rows.focused()))],
    "/": ["Search", () => search.focus()],
    r: ["Newest first again", top],
  });

  const off = [
    live.on("run", changed),
    live.on("stats", stats),
    live.on("back", () => (reload(), stats())),
  ];
  drawChips(null);
  drawOthers();
  stats();
  const kept = page.memory.get(page.address.href);
  if (kept) {
    ({ items, index, cursor, total, ended } = kept);
    rows.set(items);
    main.scrollTop = kept.top;
    rows.render();
    say();
    if (kept.focused >= 0) rows.focus(kept.focused);
    reload(kept.focused >= 0 || kept.top >= 4);
  } else {
    more();
  }
  get("/api/agents", view.signal).then(({ agents }) => {
    agent.append(...agents.map(({ name }) => h("option", { value: name }, name)));
    agent.value = filter.agent;
  }).catch(() => null); // the list works without the names

  return {
    title: "Runs",
    close() {
      // Coming back finds the list where it was left.
      page.list = "/" + query(filter);
      page.memory.set(page.addressOf(page.list), { items, index, cursor, total, ended, top: main.scrollTop, focused: rows.focused() });
      view.abort();
      clearTimeout(refreshing);
      clearTimeout(typed);
      rows.close();
      for (const one of off) one();
    },
  };
}
