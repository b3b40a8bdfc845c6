"""What a deployment tells of itself: figures, traces and logs of all its roles, and no secret in any.

One `perdure up` at DEBUG with JSON logs (at INFO the lines are among these), with views that take
tokens, and with a collector of traces; it starts and works for about 15 s.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from perdure.schemas.canonical import canonical
from perdure.streams.views.access import entry
from prometheus_client.parser import text_string_to_metric_families

from tests.cases.deployment import WATCHED, Deployment, perdure
from tests.cases.inputs import Sent
from tests.cases.model_server import ModelServer, model_server
from tests.cli.test_dashboard import DASHBOARD, unknown
from tests.cli.test_tracing import Collector, collecting

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

CANARY = "canary-5d1c"
"""In everything that is nobody's business; nothing that is named has it."""
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ROLES = ("engine", "worker", "views")
RUNS = ("ok", "again", "bad", "waits", "gone")


@dataclass(frozen=True)
class Observed:
    """A deployment with work behind it: its figures by name and labels, as each role told them."""

    made: Deployment
    collector: Collector
    pages: dict[str, str]

    def value(self, role: str, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.pages[role])
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"the {role} has no {name} {labels}"
        return sum(found)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.made.log().splitlines()]


def plan(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"id": "a", "tool": tool, "arguments": arguments}]


def agents(model: ModelServer) -> dict[str, Any]:
    by_model = {"provider": "openai", "name": "m", "base_url": model.url("observed")}
    quick = {"attempts": 8, "first_wait_seconds": 0.05, "longest_wait_seconds": 0.1}
    return {
        "modelled": {"tools": ["charge"], "model": {**by_model, "api_key_env": "OBSERVED_KEY"}},
        "planned": {"tools": ["charge", "explode", "gone", "pay"], "retry": quick},
    }


def work(made: Deployment) -> None:
    """A call that works by a model, one that is tried again, one that fails, one that waits for a
    person, a service that is down, and what can't be read."""
    traceparent = f"00-{TRACE}-{PARENT}-01".encode()
    ok = {"agent": "modelled", "task_id": "ok", "input": f"charge {CANARY}"}
    made.send("agent.tasks", Sent(json.dumps(ok).encode(), headers=[("traceparent", traceparent)]))
    card = f"{CANARY}-card"
    for run_id, tool in (("again", "charge"), ("bad", "explode"), ("gone", "gone")):
        made.task("planned", run_id, plan=plan(tool, card=card), input=CANARY)
    made.task("planned", "waits", plan=plan("pay", to=CANARY, amount=5), user_id="uma")
    made.send("agent.tasks", Sent(f'{{"task_id": "x", "input": "{CANARY}'.encode()))
    made.put("agent.approvals", approval_id="waits/a9", decision="approve", approver=CANARY)
    for run_id in ("ok", "again", "bad"):
        made.outcome(run_id)
    made.question("waits")
    made.topics.wait("agent.dead-letters", lambda seen: seen.raw, "the dead letter")
    made.topics.wait("agent.verdicts", lambda seen: seen.key == "waits", "the verdict")
    made.topics.wait("agent.events", lambda seen: b"BREAKER_OPEN" in (seen.raw or b""), "no calls")


def look(made: Deployment) -> dict[str, str]:
    """The page's readers, one with a token and one with none; then what each role tells of itself."""
    url = made.ready["url"]
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as page:
        own = {"Authorization": f"Bearer {CANARY}-token"}
        made.until(lambda: page.get("/ready").status_code == 200, "the views are ready", 40, 0.1)

        def shown() -> bool:
            found = page.get("/api/runs", headers=own).json()["runs"]
            return {"waits", "gone"} <= {row["run_id"] for row in found if row["waiting_for"]}

        made.until(shown, "the runs are shown", every=0.2)
        assert page.get(f"/api/runs/{CANARY}", headers=own).status_code == 404
        assert page.get("/api/runs").status_code == 401
        assert page.get(f"/{CANARY}/{CANARY}").status_code == 404
        with page.stream("GET", "/api/changes", headers=own) as stream:
            assert stream.status_code == 200
            # What is committed is asked of Kafka at the first look, and again after 10 s.
            return made.until(lambda: all_read(made), "everything is read", 30, every=0.5)


@pytest.fixture(scope="module")
def observed(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    directory = tmp_path_factory.mktemp("observed")
    tokens = directory / "tokens.jsonl"
    tokens.touch(0o600)
    tokens.write_bytes(canonical(entry(f"{CANARY}-token", "ann", ["operator", "approver"])))
    with model_server() as model, collecting() as (collector, endpoint):
        call = {"id": "c1", "name": "charge", "arguments": json.dumps({"card": f"{CANARY}-card"})}
        model.play(
            "observed",
            [
                {"tool_calls": [call], "finish_reason": "tool_calls"},
                {"content": f"charged {CANARY}", "finish_reason": "stop"},
            ],
        )
        made = Deployment(directory, broker, f"t-{uuid.uuid4().hex[:8]}.", model)
        made.start(
            agents(model),
            tools=[Path(__file__).with_name("observed_tools.py")],
            watched=[*WATCHED, "agent.breakers"],
            flags=("--port", "0", "--log-level", "DEBUG"),
            PERDURE_LOG_FORMAT="json",
            PERDURE_TOKENS_FILE=str(tokens),
            PERDURE_BREAKER_FAILURES="3",
            PERDURE_BREAKER_OPEN_SECONDS="120",
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OBSERVED_SECRET=f"{CANARY}-secret",
            OBSERVED_KEY=f"sk-{CANARY}",
        )
        try:
            work(made)
            yield Observed(made, collector, look(made))
        finally:
            assert made.stop() == 0
        assert CANARY not in made.log()  # also not in what is said at the end


def all_read(made: Deployment) -> dict[str, str] | None:
    """The figures of each role, once none has anything unread."""
    pages = {role: made.metrics(role) for role in ROLES}
    lags = [re.findall(r"^perdure_lag_records\{.* (\S+)$", page, re.M) for page in pages.values()]
    return pages if all(lag and not any(map(float, lag)) for lag in lags) else None


def test_the_figures_are_what_happened(observed: Observed) -> None:
    value = observed.value
    assert value("engine", "perdure_runs_started_total", agent="planned") == 4
    assert value("engine", "perdure_runs_finished_total", agent="planned", status="done") == 1
    assert value("engine", "perdure_runs_finished_total", agent="planned", status="failed") == 1
    assert value("engine", "perdure_runs_finished_total", agent="modelled", status="done") == 1
    assert value("engine", "perdure_waits", kind="action") == 1
    assert value("engine", "perdure_waits", kind="breaker") == 1
    assert value("engine", "perdure_verdicts_total", accepted="false") == 1
    assert value("engine", "perdure_dead_letters_total", reason="not_json") == 1
    assert value("engine", "perdure_quarantined_runs") == 0
    calls = {"target": "charge", "status": "succeeded", "error": "none"}
    assert value("worker", "perdure_calls_total", **calls) == 2
    assert value("worker", "perdure_calls_total", target="charge", error="transient") == 2
    assert value("worker", "perdure_calls_total", target="explode", error="internal") >= 1
    assert value("worker", "perdure_calls_total", target="gone", error="transient") == 3
    assert value("worker", "perdure_breaker_open", target="gone") == 1
    assert value("worker", "perdure_model_tokens_total", direction="input") > 0
    assert value("engine", "perdure_commands_total", queue="models") == 2
    for role in ("engine", "worker"):
        assert value(role, "perdure_transaction_seconds_count") > 0
        assert value(role, "perdure_takeover_seconds_count") in (2, 4)  # of each processor
    # An attempt is timed by its engine, a call by its worker: the same ones.
    times = {"target": "charge"}
    assert value("engine", "perdure_action_seconds_count", **times) == 4
    assert value("worker", "perdure_call_seconds_count", **times) == 4
    events = len(observed.made.topics.on("agent.events", lambda seen: True))
    assert value("views", "perdure_views_events_total") == events
    assert value("views", "perdure_views_runs") == 5
    assert value("views", "perdure_views_waiting", kind="action") == 1
    assert value("views", "perdure_views_listeners") == 1
    http = "perdure_http_seconds_count"
    assert value("views", http, route="/api/runs", status="401") == 1
    assert value("views", http, route="/api/runs", status="200") >= 1
    assert value("views", http, route="none", status="404") == 1
    # Everything has been read, and each role says so of its own inputs.
    topics = {"engine": "agent.results", "worker": "agent.commands.tools", "views": "agent.events"}
    for role, topic in topics.items():
        assert value(role, "perdure_lag_records", topic=topic) == 0
        assert value(role, "perdure_oldest_unread_seconds") == 0


def test_every_figure_of_the_dashboard_is_told_by_a_role(observed: Observed) -> None:
    expressions = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", ())]
    served = {
        family.name
        for page in observed.pages.values()
        for family in text_string_to_metric_families(page)
    }
    assert unknown("\n".join(expressions), served) == set()


def test_a_run_is_one_trace_of_engine_and_worker(observed: Observed) -> None:
    def spans() -> list[Any]:
        mine = [(s, of) for s, of in observed.collector.spans if s.trace_id.hex() == TRACE]
        return mine if any(s.name == "invoke_agent modelled" for s, _ in mine) else []

    found = observed.made.until(spans, "the run's spans have come")
    commands = observed.made.topics.on("agent.commands.tools", lambda seen: seen.key == "ok")
    assert commands
    assert all(TRACE in seen.header("traceparent") for seen in commands)
    roots = [span for span, _ in found if span.parent_span_id.hex() == PARENT]
    assert [span.name for span in roots] == ["invoke_agent modelled"]
    ids = {span.span_id for span, _ in found}
    assert all(span.parent_span_id in ids for span, _ in found if span is not roots[0])
    by = {name: {s.name for s, of in found if of["perdure.role"] == name} for name in ROLES}
    assert {"step 1", "step 2", "execute_tool charge"} & by["worker"] == {"execute_tool charge"}
    assert {"step 1", "step 2", "invoke_agent modelled"} <= by["engine"]
    assert "chat m" in by["worker"]
    # Runs without a header of their own have a trace each, of both roles as well.
    others: dict[str, set[str]] = {}
    for span, of in observed.collector.spans:
        run = {each.key: each.value.string_value for each in span.attributes}["perdure.run_id"]
        others.setdefault(run, set()).add(span.trace_id.hex())
        assert of["service.name"] == f"perdure-{of['perdure.role']}"
    assert {"again", "bad", "gone"} <= others.keys()
    assert all(len(traces) == 1 for traces in others.values())


def test_a_log_line_is_json_and_says_of_which_run_it_is(observed: Observed) -> None:
    lines = observed.lines()
    assert {line.get("role") for line in lines} >= set(ROLES)
    named = re.compile(rf"\b({'|'.join(RUNS)})/\d")
    about = [line for line in lines if named.search(line["message"])]
    assert about
    assert [line for line in about if line.get("run_id") not in RUNS] == []
    assert {line["run_id"] for line in lines if "run_id" in line} <= {*RUNS}


def test_doctor_finds_the_views_sound(observed: Observed) -> None:
    tokens = str(observed.made.directory / "tokens.jsonl")
    told = perdure("doctor", "--json", where=observed.made.where, PERDURE_TOKENS_FILE=tokens)
    assert told.returncode == 0, told.stdout + told.stderr
    found = {each["name"]: each for each in map(json.loads, told.stdout.splitlines())}
    assert found["views"]["text"] == "1 process, nothing unread"
    assert found["view tables"]["text"].endswith("was made of these topics")
    assert found["page"]["text"] == f"{observed.made.ready['url']} is served and ready"
    assert found["tokens"]["text"] == f"{tokens} lets in 1: ann"
    assert {each["level"] for name, each in found.items() if name != "disk"} <= {"ok", "warn"}
    assert CANARY not in told.stdout


def test_no_secret_is_in_a_log_a_figure_or_a_trace(observed: Observed) -> None:
    assert CANARY not in observed.made.log()
    assert all(CANARY not in page for page in observed.pages.values())
    assert observed.collector.raw
    assert all(CANARY.encode() not in raw for raw in observed.collector.raw)
    # It was there: on the topics, and in what the tools were given.
    outcome = json.dumps(observed.made.outcome("again"))
    assert f"{CANARY}-secret" in outcome
