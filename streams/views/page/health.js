// Whether all of it runs: what lags, what is stuck, what was refused.
import { Away, get } from "./api.js";
import { ends, series } from "./chart.js";
import { h, icon, link, show } from "./dom.js";
import { duration, money, plural, short } from "./format.js";
import { json } from "./json_view.js";
import { count, inline } from "./text.js";
import { KIND, WAIT, known } from "./words.js";

function tile(word, value, tone, says, href) {
  const inside = [h("span", { class: "tile-word" }, word), h("span", { class: "tile-value number" }, value), h("span", { class: "tile-says" }, says)];
  return href ? link(href, { class: `tile tone-${tone}` }, inside) : h("div", { class: `tile tone-${tone}` }, inside);
}

function draw(health, stats) {
  const rates = stats.rates ?? [];
  const sum = (name) => rates.reduce((all, one) => all + Number(one[name] ?? 0), 0);
  const lags = Object.entries(health.lag ?? {}).map(([topic, lag]) => [topic, Number(lag)]).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...lags.map(([, lag]) => lag));
  const behind = lags.reduce((all, [, lag]) => all + lag, 0);
  const dead = Number(health.dead_letters ?? 0);
  const oldest = health.oldest_task_age_seconds === null || health.oldest_task_age_seconds === undefined ? null : Number(health.oldest_task_age_seconds);
  const processors = Object.entries(health.processors ?? {});
  const waiting = Object.entries(stats.waiting ?? {}).filter(([, number]) => Number(number));
  return [
    h("div", { class: "tiles" },
      tile("This view", health.ready ? "Ready" : "Catching up", health.ready ? "good" : "wait", health.ready ? "What is shown is up to date." : "What is shown is old until it has read the log."),
      tile("Behind", count(behind), behind > 10_000 ? "wait" : "good", behind ? "records not read yet" : "nothing is waiting to be read"),
      tile("Oldest task not read", oldest === null ? "–" : duration(oldest * 1000), oldest !== null && oldest > 60 ? "bad" : "good", oldest !== null && oldest > 60 ? "Is an engine running? Start `perdure engine`." : "tasks are taken at once"),
      tile("Dead letters", count(dead), dead ? "wait" : "good", dead ? "Records that nobody could use: read agent.dead-letters for the reasons." : "nothing was refused"),
      tile("Stuck", count(stats.stuck ?? 0), Number(stats.stuck) ? "bad" : "good", Number(stats.stuck) ? "They should go on and do not: show them" : "every run goes on or waits for something", Number(stats.stuck) ? "/?stuck=1" : null),
      tile("Quarantined", count(stats.quarantined ?? 0), Number(stats.quarantined) ? "bad" : "good", Number(stats.quarantined) ? "A fault of the software stopped them: show them" : "none", Number(stats.quarantined) ? "/?quarantined=1" : null)),
    h("div", { class: "health-grid" },
      h("section", { class: "panel" }, h("h2", null, "Runs ended a minute"), series(rates.map((one) => ({ ...one, ...ends(one) })), ["finished", "failed"], "Runs ended a minute"),
        h("p", { class: "legend" }, h("span", { class: "key-finished" }), "done or cancelled ", h("span", { class: "key-failed" }), "failed",
          h("span", { class: "dim" }, `last hour: ${count(sum("started"))} started, ${count(sum("finished"))} ended, ${count(sum("failed"))} failed`))),
      h("section", { class: "panel" }, h("h2", null, "Steps a minute"), series(rates, ["steps"], "Steps a minute"),
        h("p", { class: "legend" }, h("span", { class: "dim" }, `last hour: ${plural(sum("steps"), "step")}, ${short(sum("tokens"))} tokens, cost ${money(sum("cost"))}`))),
      h("section", { class: "panel" }, h("h2", null, "Lag by topic"),
        lags.length ? h("table", { class: "lag" }, h("tbody", null, lags.map(([topic, lag]) => h("tr", null, h("th", { scope: "row", class: "mono" }, inline(topic, 100)),
          h("td", { class: "lag-bar", "aria-hidden": "true" }, h("span", { class: lag > 10_000 ? "over" : "", style: { width: `${(lag / most) * 100}%` } })), h("td", { class: "number" }, count(lag)))))) : h("p", { class: "dim" }, "No figures yet.")),
      h("section", { class: "panel" }, h("h2", null, "What runs wait for"),
        waiting.length ? h("ul", { class: "plain-list" }, waiting.map(([kind, number]) => h("li", null, icon(known({ ...KIND, ...WAIT }, kind).icon), h("span", null, inline(known({ ...KIND, ...WAIT }, kind).word, 60)), h("span", { class: "number" }, count(number))))) : h("p", { class: "dim" }, "Nothing waits.")),
      h("section", { class: "panel" }, h("h2", null, "Processors"),
        processors.length ? h("ul", { class: "plain-list" }, processors.map(([name, one]) => h("li", null, icon("pulse"), h("span", { class: "mono" }, inline(name, 100)), h("span", { class: "number" }, typeof one === "object" && one !== null ? processorSays(one) : inline(String(one), 80))))) : h("p", { class: "dim" }, "No figures yet.")),
      h("section", { class: "panel" }, h("h2", null, "Views"),
        (health.views ?? []).length ? h("ul", { class: "plain-list" }, health.views.map((one) => h("li", null, icon("list"), h("span", { class: "mono" }, inline(one.instance, 100)), h("span", { class: "number" }, `partitions ${(one.partitions ?? []).join(", ") || "none"}`)))) : h("p", { class: "dim" }, "Only this one."))),
    h("details", { class: "panel" }, h("summary", null, "As the API says it"), json(health)),
  ];
}

function processorSays({ behind, started }) {
  if (!started) return "has not run yet";
  return Number(behind) ? `${count(Number(behind))} behind` : "up to date";
}

export function health(page) {
  const view = new AbortController();
  const body = h("div", { class: "health" });
  show(page.main, h("div", { class: "catalog" }, h("div", { class: "runs-head" }, h("h1", null, "Health")), body));
  const load = async () => {
    try {
      const [one, stats] = await Promise.all([get("/api/health", view.signal), get("/api/stats", view.signal)]);
      if (!body.querySelector("details[open]")) show(body, draw(one, stats));
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Away)) show(body, page.fault(error));
    }
  };
  load();
  page.keys.use({});
  const timer = setInterval(() => document.hidden || load(), 5000);
  const off = page.live.on("back", load);
  return { title: "Health", close: () => (view.abort(), clearInterval(timer), off()) };
}
