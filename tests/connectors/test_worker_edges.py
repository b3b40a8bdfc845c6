"""What happens at the edges of a call: partitions that go and come back, cancels, bugs, the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import ToolContext, tool
from perdure.connectors.external import Begin
from perdure.schemas import topics

from .world import FakeAssignment, FakeContext, World, command

Make = Callable[..., World]


@tool("t", effect="read_only")
async def double(n: int) -> int:
    """Doubles."""
    return 2 * n


def test_fast_call_that_runs_on_finishes_the_record_of_the_partition_come_back(
    world: Make,
) -> None:
    go = threading.Event()
    calls = []

    @tool("t", effect="idempotent")
    def act() -> None:
        calls.append(1)
        go.wait(5)

    w = world(act)
    w.take(command(effect="idempotent"))
    w.until(lambda: calls == [1])
    w.worker.revoked(w.assignment)
    w.assignment.alive = False
    w.assignment = FakeAssignment()
    w.live()
    w.take(command(effect="idempotent"))
    assert w.assignment.in_flight == 1
    go.set()
    w.until(lambda: w.holds[1].finished)
    assert w.assignment.in_flight == 0
    assert (calls, w.statuses()) == ([1], ["succeeded"])


def test_revoke_drops_what_waits_and_gives_its_place_back(world: Make) -> None:
    go = threading.Event()
    ran = []

    @tool("t", effect="external")
    def act(n: int) -> None:
        ran.append(n)
        go.wait(5)

    w = world(act, threads_per_tool=1)
    for n in (1, 2):
        w.take(command(effect="external", action_id=f"r/{n}", arguments={"n": n}))
    w.worker.revoked(w.assignment)
    go.set()
    w.until(lambda: w.worker.running == 0)
    assert ran == [1]
    assert not w.holds[0].finished  # the next owner takes the command again
    assert w.ledger() == {"l/r/1/1": "finished"}
    w.take(command(effect="external", action_id="r/5", arguments={"n": 5}))
    w.until(lambda: w.worker.running == 0)
    assert ran == [1, 5]


def test_long_call_is_announced(world: Make) -> None:
    go = threading.Event()

    @tool("t", effect="read_only")
    def act() -> None:
        go.wait(5)

    w = world(act, announce_seconds=0.01)
    w.take(command())
    w.until(lambda: w.statuses() == ["started"])
    go.set()
    w.until(lambda: w.statuses() == ["started", "succeeded"])


def test_progress_is_acked_before_save_returns(world: Make) -> None:
    @tool("t", effect="idempotent")
    async def act(context: ToolContext) -> Any:
        before = context.progress
        await context.save_progress({"page": 2})
        return before

    @tool("d", effect="idempotent")
    def plainly(context: ToolContext) -> None:
        context.save_progress({"page": 3})

    w = world(act, plainly)
    w.answer(command(effect="idempotent", progress={"page": 1}))
    assert w.statuses() == ["progress", "succeeded"]
    assert w.results()[0]["progress"] == {"page": 2}
    assert w.results()[1]["result"] == {"page": 1}
    w.take(command("d", effect="idempotent", action_id="r/2"))
    w.until(lambda: w.statuses()[2:] == ["progress", "succeeded"])


def test_ledger_is_cleaned_a_day_after_the_commands_topic(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    w = world(act)
    w.take(command(effect="external"))
    w.until(lambda: w.worker.running == 0)
    w.fire(w.now + 8 * topics.DAY_MS - 1)
    assert w.ledger() == {"l/r/1/1": "finished"}
    w.fire(w.now + 1)
    assert w.ledger() == {}


def test_progress_saved_again_is_cleaned_too(world: Make) -> None:
    """The attempt crashed after it, and the next one saved nothing."""

    @tool("t", effect="idempotent")
    async def act(context: ToolContext) -> None:
        await context.save_progress(1)
        await gate.wait()
        await context.save_progress(2)
        await asyncio.Event().wait()

    gate = asyncio.Event()
    w = world(act)
    w.take(command(effect="idempotent", timeout_seconds=1_000.0))
    w.until(lambda: w.ledger() == {"p/r/1/1": "progress"})
    w.now += 60_000
    w.executor.spawn(lambda: _set(gate))
    w.until(lambda: [v.result for v in w.store.values()] == ["2"])
    w.fire(1_000_000 + 8 * topics.DAY_MS)
    assert w.ledger() == {"p/r/1/1": "progress"}
    w.fire(w.now + 60_000)
    assert (w.ledger(), w.timers) == ({}, {})


async def _set(gate: asyncio.Event) -> None:
    gate.set()


def test_a_command_that_is_none_is_dead_lettered(world: Make) -> None:
    w = world(double)
    for raw, reason in (
        (None, "null"),
        (b"nonsense", "not_json"),
        (b"{}", "missing"),
        (b'{"run_id": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "too_deep"),
        (b"\x00\x00\x00\x00\x01", "avro"),
    ):
        got = w.read(raw)
        assert getattr(got, "reason", got) == reason


def test_trace_is_passed_through(world: Make) -> None:
    w = world(double)
    w.take(command(arguments={"n": 1}), headers=(("traceparent", b"00-1"), ("other", b"x")))
    w.until(lambda: len(w.producer.sent) == 1)
    assert w.producer.sent[0][3] == (("perdure-type", b"ActionResult"), ("traceparent", b"00-1"))


def test_tools_are_announced_once_the_catalog_is_known(world: Make) -> None:
    w = world(double)
    w.live()
    w.live()
    assert [(t, k) for t, k, _, _ in w.producer.sent] == [(topics.CATALOG, b"tool/t")]


def test_tools_the_broker_did_not_take_are_announced_again(world: Make, monkeypatch: Any) -> None:
    async def no_wait(seconds: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", no_wait)
    w = world(double)
    w.producer.broken = 2
    w.live()
    w.until(lambda: len(w.producer.sent) == 1)
    assert w.producer.sent[0][1] == b"tool/t"


def test_cancel_that_meets_a_call_already_over_changes_nothing(world: Make) -> None:
    w = world(double)
    w.producer.stalled = True
    w.take(command(arguments={"n": 1}))
    w.until(lambda: w.statuses() == ["succeeded"])
    w.take(command(verb="cancel"))
    w.take(command(action_id="r/2", arguments={"n": 2}))
    w.until(lambda: w.statuses() == ["succeeded", "succeeded"])


def test_a_bug_of_ours_dead_letters_the_command_and_answers_the_run(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    w = world(act)

    def broken(key: bytes, value: Any) -> bytes:
        raise ValueError("a bug")

    w.worker.encode = broken  # type: ignore[method-assign]
    w.take(command(effect="external"))
    assert [(reason, detail) for _, reason, detail in w.dead] == [
        ("worker_error", "ValueError: a bug")
    ]
    assert w.results()[0]["error"]["kind"] == "internal"
    assert w.worker.running == 0


def _one_at_a_time(effect: Any) -> tuple[Any, list[int], threading.Event]:
    go, ran = threading.Event(), []

    @tool("t", effect=effect)
    def act(n: int) -> None:
        ran.append(n)
        go.wait(5)

    return act, ran, go


def _nth(n: int, effect: str, **more: Any) -> Any:
    return command(effect=effect, action_id=f"r/{n}", arguments={"n": n}, **more)


def test_call_said_to_be_cancelled_does_not_begin_before_that_is_committed(world: Make) -> None:
    act, ran, go = _one_at_a_time("idempotent")
    w = world(act, threads_per_tool=1)
    gate = w.worker._work._gate
    w.take(_nth(1, "idempotent"))
    w.take(_nth(2, "idempotent"))
    ctx = w.process(_nth(2, "idempotent", verb="cancel"))
    go.set()
    w.until(lambda: not gate._waiting and gate.inside == 0)
    w.commit(ctx)
    w.until(lambda: w.worker.running == 0)
    assert ran == [1]
    assert sorted(w.statuses()) == ["cancelled", "succeeded"]
    assert all(hold.finished for hold in w.holds)
    assert (gate.inside, w.assignment.in_flight) == (0, 0)


def test_cancel_of_an_aborted_transaction_is_taken_again(world: Make) -> None:
    act, ran, go = _one_at_a_time("idempotent")
    w = world(act, threads_per_tool=1)
    w.take(_nth(1, "idempotent"))
    w.take(_nth(2, "idempotent"))
    w.process(_nth(2, "idempotent", verb="cancel"))  # never committed
    w.take(_nth(2, "idempotent", verb="cancel"))
    go.set()
    w.until(lambda: w.worker.running == 0)
    assert (ran, sorted(w.statuses())) == ([1], ["cancelled", "succeeded"])


def test_revoke_as_a_waiting_call_gets_its_place_gives_it_back_once(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, ran, go = _one_at_a_time("idempotent")
    w = world(act, threads_per_tool=1)
    work = w.worker._work
    w.take(_nth(1, "idempotent"))
    w.take(_nth(2, "idempotent"))
    start, came = work.go, threading.Event()

    def revoked_first(call: Any) -> bool:
        w.worker.revoked(w.assignment)
        begun = start(call)
        came.set()
        return begun

    monkeypatch.setattr(work, "go", revoked_first)
    go.set()
    w.until(lambda: came.is_set() and not work.calls and not work._threads)
    assert ran == [1]
    assert not w.holds[1].finished
    assert (work._gate.inside, w.assignment.in_flight) == (0, 0)


def test_cancel_as_an_external_call_gets_its_place_gives_it_back_once(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, ran, go = _one_at_a_time("external")
    w = world(act, threads_per_tool=1)
    w.take(_nth(1, "external"))
    w.take(_nth(2, "external"))
    posted: list[Any] = []
    monkeypatch.setattr(w.assignment, "post", posted.append)
    go.set()
    w.until(lambda: len(posted) == 2)
    cancel = w.process(_nth(2, "external", verb="cancel"))
    begin = FakeContext(w)  # in the same transaction
    begin.staged.update(cancel.staged)
    w.worker.completed(begin, next(event for event in posted if isinstance(event, Begin)))
    w.commit(cancel)
    w.commit(begin)
    assert (ran, w.statuses()[-1]) == ([1], "cancelled")
    assert w.worker._work._gate.inside == 0


def test_what_a_tool_or_its_query_raises_or_gives_is_not_logged(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[Any] = ["the secret"]

    @tool("t", effect="idempotent")
    async def act() -> None:
        raise LookupError("the secret")

    @act.query
    async def query() -> Any:
        if said:
            return said.pop()
        raise LookupError("the secret")

    caplog.set_level(logging.DEBUG)
    w = world(act)
    w.answer(command(effect="idempotent"))
    w.until(lambda: w.worker.running == 0)
    for count in (2, 3):
        w.take(command(effect="idempotent", verb="query"))
        w.until(lambda count=count: len(w.results()) == count)
    ours = [r for r in caplog.records if r.name.startswith("perdure.connectors")]
    told = [r.getMessage() for r in ours if r.levelno > logging.DEBUG]
    assert "secret" not in "".join(told)
    assert not any(r.exc_info for r in ours if r.levelno > logging.DEBUG)
    assert [sum(word in text for text in told) for word in ("LookupError at", "gave a str")] == [
        2,
        1,
    ]
    assert __file__ in told[0]
    assert sum(bool(r.exc_info) for r in ours if r.levelno == logging.DEBUG) == 2


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_a_result_that_raises_when_it_is_read_is_no_fault_of_the_call(
    world: Make, effect: Any
) -> None:
    """A refused connection in a lazy row is no proof that the payment before it was not made."""

    class Row:
        def model_dump(self) -> Any:
            raise ConnectionRefusedError("no database")

    @tool("t", effect=effect)
    async def act() -> Any:
        return Row()

    w = world(act)
    error = w.answer(command(effect=effect))["error"]
    assert (error["kind"], error["code"]) == ("unknown", "bad_result")
