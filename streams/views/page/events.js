// Every event of a run, as a list of any length, each to be opened whole.
import { Away, get, query, runPath } from "./api.js";
import { dialog } from "./dialog.js";
import { h, icon, show } from "./dom.js";
import { time } from "./format.js";
import { json } from "./json_view.js";
import { Rows } from "./rows.js";
import { inline, plain } from "./text.js";

const MARK = { person: "person", model: "spark", bad: "cross", good: "check", wait: "wait" };

async function openEvent(page, runId, version) {
  const body = h("div", { class: "event-body" }, h("p", { class: "dim" }, "Loading…"));
  const load = async (uncover) => {
    const event = await get(runPath(runId, "events", String(version)) + query({ uncover: uncover ? 1 : "" }));
    const { data, ...rest } = event;
    show(body, h("h3", null, "Data"), json(data), h("h3", null, "Record"), json(rest));
  };
  dialog({
    title: `Event ${version}`, wide: true, body,
    actions: page.may("approver")
      ? [{ word: "Uncover masked fields", kind: "", name: "uncover", run: async () => (await load(true), false) }]
      : [],
  });
  try {
    await load(false);
  } catch (error) {
    show(body, page.fault(error));
  }
}

/** {element, more(), close()} */
export function events(page, runId) {
  const view = new AbortController();
  const items = [];
  let [after, loading, ended] = [0, false, false];
  const draw = (entry) => {
    const open = () => openEvent(page, runId, entry.version);
    return h("button", { type: "button", class: `event-row tone-${entry.tone ?? "plain"}`, "data-version": entry.version, title: plain(entry.title, 300), on: { click: open } },
      h("span", { class: "number dim" }, String(entry.version)), h("span", { class: "moment-icon" }, icon(MARK[entry.tone] ?? "note")),
      h("span", { class: "event-title" }, inline(entry.title, 400)), h("span", { class: "dim event-actor" }, inline(entry.actor, 80)), h("span", { class: "number dim event-time" }, time(entry.at)));
  };
  const rows = new Rows({ scroller: page.main, draw, key: ({ version }) => version, near: () => more(), label: "Events" });
  rows.element.removeAttribute("role");
  rows.element.classList.add("event-rows");
  const fault = h("div");

  async function more(anew) {
    if (loading || (ended && !anew)) return;
    loading = true;
    try {
      const answer = await get(runPath(runId, "timeline") + query({ after: after || "", limit: 500 }), view.signal);
      const fresh = answer.entries.filter(({ version }) => Number(version) > after);
      items.push(...fresh);
      after = Math.max(after, ...fresh.map(({ version }) => Number(version)));
      ended = answer.next === null || answer.next === undefined || !fresh.length;
      loading = false;
      rows.set(items);
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Away)) show(fault, page.fault(error));
    } finally {
      loading = false;
    }
  }
  more();
  return { element: h("div", { class: "events" }, rows.element, fault), more: () => more(true), close: () => (view.abort(), rows.close()) };
}
