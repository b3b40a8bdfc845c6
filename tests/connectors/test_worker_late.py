"""Threads that end after their call was given up: what they bring is told (case R01)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import BusinessError, TransientError, tool
from perdure.connectors.call import Call
from perdure.connectors.external import Late
from perdure.streams.runtime.blobs import Blobs

from .world import FakeAssignment, FakeContext, World, command

Make = Callable[..., World]


def given_up(world: Make, effect: str, end: Callable[[], Any], **more: Any) -> tuple[World, Any]:
    """A `def` tool whose call was answered for its time; the event lets its thread end."""
    go = threading.Event()

    @tool("t", effect=effect)
    def act() -> Any:
        go.wait(5)
        return end()

    w = world(act, **more)
    first = w.answer(command(effect=effect, timeout_seconds=0.02))
    assert first["error"]["code"] == "read_timeout"
    w.until(lambda: w.worker.running == 0)
    return w, go


def ended(world: Make, effect: str, end: Callable[[], Any], **more: Any) -> World:
    w, go = given_up(world, effect, end, **more)
    go.set()
    w.until(lambda: w.assignment.in_flight == 0)
    return w


def raising(error: Exception) -> Callable[[], Any]:
    def end() -> Any:
        raise error

    return end


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_late_result_is_told_as_the_same_attempts(world: Make, effect: str) -> None:
    w = ended(world, effect, lambda: {"paid": 5})
    last = w.results()[-1]
    assert (last["status"], last["attempt"], last["result"]) == ("succeeded", 1, {"paid": 5})


def test_late_result_is_in_the_ledger_and_answers_queries_and_repeats(world: Make) -> None:
    w = ended(world, "external", lambda: {"paid": 5})
    for verb in ("query", "call"):
        before = len(w.results())
        w.take(command(effect="external", verb=verb))
        assert len(w.results()) == before + 1
        assert w.results()[-1]["result"] == {"paid": 5}


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_late_refusal_is_told(world: Make, effect: str) -> None:
    w = ended(world, effect, raising(BusinessError("no such account")))
    assert w.results()[-1]["error"]["kind"] == "business"


def test_late_proof_that_nothing_happened_is_told(world: Make) -> None:
    w = ended(world, "external", raising(TransientError("not yet")))
    assert w.results()[-1]["error"]["kind"] == "transient"


@pytest.mark.parametrize("end", [raising(OSError("gone")), object], ids=["raises", "no_json"])
def test_what_proves_nothing_is_not_told(world: Make, end: Callable[[], Any]) -> None:
    assert ended(world, "external", end).statuses() == ["started", "unknown"]


@pytest.mark.parametrize("error", [KeyError("lazy"), SystemExit(1)])
def test_a_late_result_that_cannot_be_read_is_not_told_and_not_waited_for(
    world: Make, error: BaseException
) -> None:
    """Or every stop and every rebalance would wait its full time for it."""

    class Lazy:
        def model_dump(self) -> Any:
            raise error

    w = ended(world, "external", Lazy)
    assert w.statuses() == ["started", "unknown"]
    w.take(command(effect="external", verb="query"))
    w.until(lambda: len(w.results()) == 3)


def test_late_read_is_not_told(world: Make) -> None:
    w, go = given_up(world, "read_only", lambda: 1)
    go.set()
    w.until(lambda: not w.worker._work._threads)
    w.drain()
    assert w.statuses() == ["failed"]


def test_large_late_result_goes_to_the_blob_store(world: Make, tmp_path: Any) -> None:
    w = ended(world, "external", lambda: "x" * 500_000, blobs=Blobs(str(tmp_path)))
    assert w.results()[-1]["result"]["size"] == 500_002


def test_late_result_does_not_replace_what_is_told(world: Make) -> None:
    w = ended(world, "external", lambda: {"paid": 5})
    call = Call(command(effect="external"), None, "external", w.assignment, [], False)  # type: ignore[arg-type]
    ctx = FakeContext(w)
    w.worker.completed(ctx, Late(call, b"{}", lambda: None))
    assert (ctx.sent, ctx.staged) == ([], {})


def test_revoke_waits_for_the_thread_and_its_word(world: Make) -> None:
    w, go = given_up(world, "external", lambda: {"paid": 5})
    w.worker.revoked(w.assignment)
    assert w.assignment.in_flight > 0
    go.set()
    w.until(lambda: w.assignment.in_flight == 0)
    assert w.statuses()[-1] == "succeeded"


def test_word_for_a_partition_that_is_gone_is_nobodys(world: Make) -> None:
    w, go = given_up(world, "external", lambda: {"paid": 5})
    former = w.assignment
    former.alive = False
    w.assignment = FakeAssignment()
    w.live()
    go.set()
    w.until(lambda: not w.worker._work._threads)
    w.drain()
    assert w.statuses() == ["started", "unknown"]
    assert not former.events
