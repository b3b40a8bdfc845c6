// One run as a row of the list.
import { h, icon, link, path } from "./dom.js";
import { countdown, money, short, time } from "./format.js";
import { inline, plain } from "./text.js";
import { STATUS, known, waiting } from "./words.js";

export function status(row) {
  const { word, tone } = known(STATUS, row.status);
  const text = row.status === "done" && row.complete === false ? "Done, incomplete" : word;
  return h("span", { class: `status tone-${row.status === "done" && row.complete === false ? "wait" : tone}`, "data-status": row.status },
    h("span", { class: "status-dot", "aria-hidden": "true" }), text);
}

export function flags(row) {
  return [
    row.paused ? h("span", { class: "tag tone-wait" }, "paused") : null,
    row.quarantined ? h("span", { class: "tag tone-bad" }, "quarantined") : null,
  ];
}

/** Steps done of those planned, as a line; without a plan only the number. */
export function progress(row) {
  const done = Number(row.steps_done ?? 0);
  const total = Number(row.steps_total ?? 0);
  const text = total > 0 ? `${done}/${total}` : `${done}`;
  const share = total > 0 ? Math.min(1, done / total) : 0;
  return h("span", { class: "progress", title: total > 0 ? `${done} of ${total} steps` : `${done} steps` },
    h("span", { class: "progress-text" }, text),
    h("span", { class: total > 0 ? "progress-line" : "progress-line none", "aria-hidden": "true" }, h("span", { style: { width: `${share * 100}%` } })));
}

export const remaining = (at) => countdown(Number(at) - Date.now());

/** The row; the whole of it is the link's. */
export function runRow(row) {
  const usage = row.usage ?? {};
  const tokens = Number(usage.input_tokens ?? 0) + Number(usage.output_tokens ?? 0);
  const waits = waiting(row, remaining);
  const errors = Number(row.errors ?? 0);
  return h("div", { class: "run-row", role: "row", "data-run": row.run_id },
    h("div", { role: "cell", class: "cell-status" }, status(row), flags(row)),
    h("div", { role: "cell", class: "cell-main" },
      link(path("runs", row.run_id), { class: "row-link", title: plain(row.title, 200) }, inline(row.title || "(no text)", 400)),
      h("div", { class: "row-under" },
        h("span", { class: "mono" }, inline(row.run_id, 220)),
        waits ? h("span", { class: "row-waits" }, icon("wait"), inline(waits, 120)) : null,
        errors ? h("span", { class: "row-errors" }, icon("cross"), `${errors} ${errors === 1 ? "error" : "errors"}`) : null)),
    h("div", { role: "cell", class: "cell-agent" }, h("span", null, inline(row.agent, 60)), h("span", { class: "dim" }, inline(row.user_id, 60))),
    h("div", { role: "cell", class: "cell-steps" }, progress(row)),
    h("div", { role: "cell", class: "cell-cost number" }, h("span", null, money(usage.cost)), h("span", { class: "dim" }, `${short(tokens)} tok`)),
    h("div", { role: "cell", class: "cell-time number" }, time(row.updated_at, true)));
}
