// Agents and tools as the catalog has them, with how they do.
import { Away, get, query } from "./api.js";
import { h, icon, link, show } from "./dom.js";
import { duration, short, until } from "./format.js";
import { json } from "./json_view.js";
import { block, count, inline } from "./text.js";
import { EFFECT, STATUS, known } from "./words.js";

const tag = (word, tone = "", title = null) => h("span", { class: `tag ${tone}`, title }, word);

function agentCard(agent) {
  const runs = agent.runs ?? {};
  const model = agent.model ? [agent.model.provider, agent.model.name].filter(Boolean).join(" · ") : "plans only";
  const budget = agent.budget ?? {};
  const limits = [budget.steps ? `${count(budget.steps)} steps` : "", budget.tokens ? `${short(budget.tokens)} tokens` : "", budget.seconds ? duration(Number(budget.seconds) * 1000) : "", budget.cost ? `cost ${Number(budget.cost)}` : ""].filter(Boolean).join(", ");
  return h("article", { class: "card" },
    h("header", null, h("h2", null, inline(agent.name, 80)), h("span", { class: "dim number" }, `version ${agent.version ?? 1}`)),
    h("p", { class: "dim" }, icon("spark"), inline(model, 120)),
    agent.instructions ? block(agent.instructions, 240) : null,
    h("div", { class: "run-counts" }, Object.entries(STATUS).map(([status, { word, tone }]) => Number(runs[status] ?? 0)
      ? link("/" + query({ agent: agent.name, status }), { class: `status tone-${tone}` }, h("span", { class: "status-dot", "aria-hidden": "true" }), h("span", { class: "number" }, count(runs[status])), ` ${word.toLowerCase()}`) : null)),
    h("p", { class: "tags" }, (agent.tools ?? []).map((tool) => h("span", { class: "tag mono" }, inline(tool, 60)))),
    limits ? h("p", { class: "dim" }, `Budget of a run: ${limits}; then ${budget.then === "stop" ? "it stops" : "a person is asked"}.`) : null,
    h("details", null, h("summary", null, "Everything it was given"), json(Object.fromEntries(Object.entries(agent).filter(([name]) => name !== "runs")))));
}

function toolRow(tool) {
  const effect = known(EFFECT, tool.effect ?? "external");
  const [calls, failures] = [Number(tool.calls ?? 0), Number(tool.failures ?? 0)];
  const share = calls ? failures / calls : 0;
  const asks = tool.approval === "never" ? "never asks" : tool.approval === "always" || tool.approval === undefined ? "always asks" : null;
  return h("article", { class: "card" },
    h("header", null, h("h2", { class: "mono" }, inline(tool.name, 80)),
      tool.breaker ? h("span", { class: "tag tone-bad", title: String(tool.breaker.reason ?? "") }, icon("cross"), "not called for ", until(Number(tool.breaker.open_until))) : h("span", { class: "tag tone-good" }, icon("check"), "available")),
    tool.description ? block(tool.description, 240) : null,
    tool.breaker ? h("p", { class: "call-error tone-bad" }, inline(tool.breaker.reason, 240)) : null,
    h("p", { class: "tags" }, tag(effect.word, (tool.effect ?? "external") === "external" ? "tone-wait" : "", effect.meaning),
      tool.has_query ? tag("can be asked", "", "Whether a call happened can be asked") : null,
      asks ? tag(asks) : h("span", { class: "tag" }, "asks when ", h("code", null, inline(tool.approval, 120))),
      tool.compensate ? h("span", { class: "tag" }, icon("undo"), "undone by ", inline(tool.compensate, 60)) : null,
      tool.fallback ? h("span", { class: "tag" }, "falls back to ", inline(tool.fallback, 60)) : null),
    h("dl", { class: "facts small" },
      h("div", { class: "fact" }, h("dt", null, "Calls"), h("dd", null, count(calls))),
      h("div", { class: "fact" }, h("dt", null, "Failed"), h("dd", null, count(failures), h("span", { class: "dim" }, calls ? ` ${(share * 100).toFixed(share && share < 0.1 ? 1 : 0)} %` : ""))),
      h("div", { class: "fact" }, h("dt", null, "Last"), h("dd", null, inline(typeof tool.last_status === "object" && tool.last_status ? tool.last_status.status ?? "" : tool.last_status ?? "–", 40))),
      h("div", { class: "fact" }, h("dt", null, "Timeout"), h("dd", null, duration(Number(tool.timeout_seconds ?? 30) * 1000)))),
    h("details", null, h("summary", null, "Parameters"), json(tool.parameters ?? {})));
}

function catalog(page, { title, address, draw, of, none, words }) {
  const view = new AbortController();
  const body = h("div", { class: "cards" });
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title.toLowerCase()}`, spellcheck: "false" });
  let all = [];
  const render = () => {
    const wanted = filter.value.trim().toLowerCase();
    const found = all.filter((one) => !wanted || `${one.name} ${one.description ?? one.instructions ?? ""}`.toLowerCase().includes(wanted));
    show(body, found.length ? found.slice(0, 300).map(draw) : h("div", { class: "empty" }, h("h2", null, all.length ? "Nothing matches" : none), h("p", null, all.length ? "Change the filter." : words)));
  };
  filter.addEventListener("input", render);
  show(page.main, h("div", { class: "catalog" }, h("div", { class: "runs-head" }, h("h1", null, title), filter), body));
  const load = async () => {
    try {
      all = [...of(await get(address, view.signal))].sort((a, b) => (a.name < b.name ? -1 : 1));
      if (!body.querySelector("details[open]")) render();
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Away)) show(body, page.fault(error));
    }
  };
  load();
  page.keys.use({ "/": ["Filter", () => filter.focus()] });
  const timer = setInterval(() => document.hidden || load(), 10_000);
  const off = page.live.on("back", load);
  return { title, close: () => (view.abort(), clearInterval(timer), off()) };
}

export const agents = (page) => catalog(page, {
  title: "Agents", address: "/api/agents", draw: agentCard, of: (answer) => answer.agents, none: "No agents yet",
  words: ["Describe them in YAML, then run ", h("code", null, "perdure apply -f agents.yaml"), "."],
});
export const tools = (page) => catalog(page, {
  title: "Tools", address: "/api/tools", draw: toolRow, of: (answer) => answer.tools, none: "No tools yet",
  words: ["They appear when a worker serves them: ", h("code", null, "perdure worker --tools my_tools.py"), "."],
});
