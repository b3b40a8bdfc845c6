"""Calls that wait for a place: how long, and what they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import tool
from perdure.connectors.breaker import BreakerSettings

from .world import FakeAssignment, World, command

Make = Callable[..., World]
EFFECTS = ("read_only", "external")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.connectors.waiting.LOOK_SECONDS", 0.005)


class Hanging:
    """A `def` tool of one thread, which hangs until `go`."""

    def __init__(self, world: Make, effect: Any, **more: Any) -> None:
        self.go = threading.Event()
        self.ran: list[int] = []
        self.effect = effect

        @tool("t", effect=effect, approval="never")
        def act(n: int) -> int:
            self.ran.append(n)
            self.go.wait(5)
            return n

        @tool("other", effect=effect, approval="never")
        async def other(n: int) -> int:
            return n

        self.w = world(act, other, threads_per_tool=1, **more)
        self.gate = self.w.worker._work._gate

    def take(self, n: int, target: str = "t", **more: Any) -> None:
        of = {"effect": self.effect, "action_id": f"r/{n}", "arguments": {"n": n}, **more}
        self.w.take(command(target, **of))

    def codes(self, n: int) -> list[str | None]:
        """Those of the answers to a call; None: it has succeeded."""
        ended = [r for r in self.w.results() if r["status"] != "started"]
        return [(r.get("error") or {}).get("code") for r in ended if r["action_id"] == f"r/{n}"]


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_call_that_waits_is_told_when_its_time_is_over(world: Make, effect: str) -> None:
    """Not when there is a place: behind a thread that hangs there may never be one, and its record
    would keep the partition from going on."""
    h = Hanging(world, effect)
    h.take(1)
    h.w.until(lambda: h.ran == [1])
    h.take(2, expires_at=h.w.now + 10)
    h.w.now += 10
    h.w.until(lambda: h.codes(2) == ["EXPIRED"])
    h.w.until(lambda: h.w.worker.running == 1)
    assert h.gate.waiting == 0
    assert all(hold.finished for hold in h.w.holds[1:])
    h.go.set()
    h.w.until(lambda: h.codes(1) == [None])
    h.take(3)
    h.w.until(lambda: h.codes(3) == [None])
    assert (h.ran, h.gate.inside, h.codes(2)) == ([1, 3], 0, ["EXPIRED"])


@pytest.mark.parametrize("effect", EFFECTS)
def test_while_all_threads_of_a_tool_hang_its_calls_are_refused(world: Make, effect: str) -> None:
    h = Hanging(world, effect, breaker=BreakerSettings(failures=0))
    h.take(1, timeout_seconds=0.02)
    h.take(2)
    h.w.until(lambda: h.codes(1) == ["read_timeout"] and h.codes(2) == ["BREAKER_OPEN"])
    h.take(3)
    h.w.until(lambda: h.codes(3) == ["BREAKER_OPEN"])
    refused = next(r for r in h.w.results() if r["action_id"] == "r/3")
    assert refused["error"]["kind"] == "unavailable"
    assert refused["error"]["retry_after_seconds"] == 10.0
    assert "all its 1 threads are held" in refused["error"]["message"]
    h.take(4, "other")
    h.w.until(lambda: h.codes(4) == [None])
    h.go.set()
    h.w.until(lambda: h.gate.inside == 0)
    h.take(5)
    h.w.until(lambda: h.codes(5) == [None])
    assert h.ran == [1, 5]
    assert (h.gate.waiting, h.w.worker.running, h.w.assignment.in_flight) == (0, 0, 0)


def refused_not_taken(h: Hanging) -> FakeAssignment:
    """The second call has waited in vain, and that is posted to its partition, which stands still."""
    h.take(1)
    h.w.until(lambda: h.ran == [1])
    h.take(2, expires_at=h.w.now + 10)
    still, h.w.assignment = h.w.assignment, FakeAssignment()
    h.w.now += 10
    h.w.until(lambda: bool(still.events))
    h.w.assignment = still
    return still


def test_a_call_that_was_cancelled_meanwhile_is_answered_once(world: Make) -> None:
    h = Hanging(world, "external")
    refused_not_taken(h)
    h.take(2, verb="cancel")
    h.w.until(lambda: h.w.worker.running == 1)
    of_second = [r["status"] for r in h.w.results() if r["action_id"] == "r/2"]
    assert (of_second, h.w.ledger()["l/r/2/1"]) == (["cancelled"], "barred")
    h.go.set()
    h.w.until(lambda: h.w.worker.running == 0)
    assert (h.ran, h.gate.inside) == ([1], 0)


def test_a_partition_given_up_answers_for_no_call_that_waited(world: Make) -> None:
    """The next owner takes the command: what is said of it is its to say."""
    h = Hanging(world, "external")
    still = refused_not_taken(h)
    h.w.worker.revoked(still)
    h.w.drain()
    assert h.codes(2) == []
    assert h.w.holds[0].left
    assert h.w.worker.running == 1
    h.go.set()
    h.w.until(lambda: h.gate.inside == 0)
