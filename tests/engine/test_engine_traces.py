"""A run's spans: what they hold, and that nothing but a commit makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.streams.engine.outputs import Outputs
from perdure.streams.engine.processor import EngineProcessor
from perdure.streams.engine.traces import Traces
from perdure.streams.runtime.processor import Record
from perdure.streams.runtime.spans import Span, span_id, trace_of

from .desk import Desk, agent, tool
from .test_engine import decide, plan

CANARY = "canary-51c0"
GIVEN = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Traced(Desk):
    """A desk whose engine has a sink."""

    def __init__(self, directory: Path, share: float = 1.0) -> None:
        super().__init__(directory)
        self.spans: list[Span] = []
        self.headers: list[tuple[str, dict[str, bytes | None]]] = []
        self.traces = Traces(self.spans.append, share)
        self.engine = EngineProcessor(
            Outputs(self.blobs), lambda topic: "AbCd", lambda queue: None, self.histories, None,
            self.traces,
        )  # fmt: skip

    def named(self) -> dict[str, Span]:
        return {span.name: span for span in self.spans}


@pytest.fixture
def desk(tmp_path: Path) -> Traced:
    made = Traced(tmp_path)
    made.catalog(tool("call"), tool("pay", approval="always"), agent("call", "pay"))
    return made


def given(desk: Desk, header: bytes | None, **task: Any) -> None:
    value = json.dumps({"task_id": "r", "agent": "demo", **task}).encode()
    headers = () if header is None else (("traceparent", header),)
    desk.take(Record(topics.TASKS, 0, 1, desk.now, None, value, headers))


def test_a_run_is_one_trace_of_steps_and_actions(desk: Traced) -> None:
    given(desk, GIVEN, plan=plan(a={"card": CANARY}, b={}), user_id="uma")
    desk.now += 500
    desk.answer({"secret": CANARY})
    desk.now += 1_000
    desk.answer({"ok": 2})
    spans = {(span.name, span.started_at): span for span in desk.spans}
    assert list(spans) == [
        ("action call", 1_000_000), ("step 1", 1_000_000),
        ("action call", 1_000_500), ("step 2", 1_000_500), ("invoke_agent demo", 1_000_000),
    ]  # fmt: skip
    assert {span.trace_id for span in desk.spans} == {GIVEN.decode()[3:35]}
    action, step, run = desk.spans[0], desk.spans[1], desk.spans[-1]
    assert (run.span_id, run.parent, run.ended_at) == (span_id("r"), "00f067aa0ba902b7", 1_001_500)
    assert (step.parent, step.ended_at) == (run.span_id, 1_000_500)
    assert (action.parent, action.span_id) == (step.span_id, span_id("r/1"))
    assert [(e.name, e.at) for e in action.events] == [("attempt", 1_000_000)]
    assert action.attributes["perdure.target"] == "call"
    assert run.attributes["perdure.status"] == "done"
    assert not any(word in repr(desk.spans) for word in (CANARY, "uma"))


def test_without_a_header_the_trace_is_made_of_the_run_and_goes_with_its_records(
    desk: Traced,
) -> None:
    given(desk, None, plan=plan(a={}))
    (started,) = [e for e in desk.on(topics.EVENTS) if e["type"] == "run_started"]
    header = started["data"]["origin"]["traceparent"]
    trace = trace_of(header)
    assert trace is not None
    assert (trace.parent, trace.sampled) == (span_id("r"), True)
    again = Traced(Path(desk.blobs.url.removeprefix("file://")))
    again.catalog(tool("call"), agent("call"))
    given(again, None, plan=plan(a={}))
    assert header == again.on(topics.EVENTS)[0]["data"]["origin"]["traceparent"]
    desk.answer({})
    root = desk.spans[-1]
    assert (root.span_id, root.parent, root.trace_id) == (span_id("r"), None, trace.trace_id)


def test_retries_are_events_of_their_action_and_its_end_is_an_error(desk: Traced) -> None:
    given(desk, GIVEN, plan=plan(a={}))
    for attempt in (1, 2, 3):
        error = {"kind": "transient", "code": "http_503", "message": CANARY}
        desk.feed(
            topics.RESULTS, run_id="r", action_id="r/1", attempt=attempt, status="failed", error=error
        )  # fmt: skip
        desk.tick(15)
    desk.feed(topics.CONTROL, run_id="r", command="cancel", by="uma")
    action = desk.named()["action call"]
    assert [event.name for event in action.events][:4] == [
        "attempt", "retry_scheduled", "attempt", "retry_scheduled",
    ]  # fmt: skip
    assert action.attributes["perdure.attempts"] == 3
    assert CANARY not in repr(desk.spans)
    assert desk.spans[-1].attributes["perdure.status"] == "cancelled"


def test_a_wait_for_a_person_is_a_span_and_names_nobody(desk: Traced) -> None:
    steps = [{"id": "p", "tool": "pay", "arguments": {}}]
    given(desk, GIVEN, plan=steps, user_id="uma")
    desk.now += 60_000
    decide(desk, "r/a1", "ann", "approve")
    desk.answer({})
    wait = desk.named()["wait action"]
    assert (wait.started_at, wait.ended_at) == (1_000_000, 1_060_000)
    assert wait.attributes["perdure.decision"] == "approve"
    assert wait.parent == desk.named()["step 1"].span_id
    assert "ann" not in repr(desk.spans)


def test_what_is_rolled_back_or_not_sampled_makes_no_span(
    desk: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(desk, GIVEN, plan=plan(a={}))
    with monkeypatch.context() as patch:
        patch.setattr(desk, "_merge", lambda ctx: None)
        desk.answer({})
    assert desk.spans == []
    for share, header in ((0.0, None), (1.0, GIVEN[:-2] + b"00"), (1.0, b"of something else")):
        other = Traced(tmp_path, share)
        other.catalog(tool("call"), agent("call"))
        given(other, header, plan=plan(a={}))
        other.answer({})
        assert other.outcome()["status"] == "done"
        assert other.spans == []


def test_a_mistake_in_a_span_is_counted_and_ends_nothing(
    desk: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(desk, GIVEN, plan=plan(a={}))
    monkeypatch.setattr(desk.traces, "_step", lambda *_: 1 / 0)
    desk.answer({})
    assert desk.outcome()["status"] == "done"
    assert desk.traces.failures == 1
