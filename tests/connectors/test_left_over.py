"""Calls that end after their partition was lost: another worker settles them, and this one forgets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from perdure.connectors import Found, tool
from perdure.connectors.call import ENDED

from .world import FakeAssignment, World, command

Make = Callable[..., World]


@pytest.fixture
def lost(world: Make) -> Iterator[Callable[[], tuple[World, World]]]:
    """Two workers; a call of the first ended after the second had taken the partition over."""
    go = threading.Event()

    @tool("pay", effect="external", approval="never")
    def pay() -> str:
        go.wait(10)
        return "paid"

    @pay.query
    def find() -> Found:
        return Found("paid, says the query")

    def make() -> tuple[World, World]:
        first = world(pay, instance_id="A", stands=True)
        first.take(command("pay", effect="external"))
        first.assignment.alive = False
        first.worker.revoked(first.assignment)
        second = world(pay, instance_id="B", store=first.store)
        second.live()
        go.set()
        call = first.worker._work.calls["r/1", 1]
        first.until(lambda: call.phase == ENDED and not first.worker._work.threads)
        return first, second

    yield make
    go.set()


def settle(second: World) -> None:
    second.fire(second.now + 60_000)
    second.until(lambda: second.statuses() == ["succeeded"])


def test_back_at_the_first_worker_it_is_forgotten_and_the_ledger_answers(
    lost: Callable[[], tuple[World, World]],
) -> None:
    first, second = lost()
    settle(second)
    first.assignment, first.now = FakeAssignment(), second.now
    first.live()
    assert first.worker.running == 0
    first.take(command("pay", effect="external", verb="query"))
    assert first.statuses() == ["started", "succeeded"]
    assert first.results()[-1]["adopted"]


def test_a_query_is_not_told_that_it_runs(lost: Callable[[], tuple[World, World]]) -> None:
    """The ledger was lost with the second worker's word, or its entry is gone by now."""
    first, _ = lost()
    first.store.clear()
    first.assignment = FakeAssignment()
    first.take(command("pay", effect="external", verb="query"))
    first.until(lambda: len(first.statuses()) == 2)
    assert first.statuses()[-1] == "succeeded"


def test_where_the_partition_never_comes_back_it_is_forgotten_in_time(
    lost: Callable[[], tuple[World, World]],
) -> None:
    first, _ = lost()
    first.worker.revoked(FakeAssignment(1))
    assert first.worker.running == 1  # it may come back before another settles it
    first.now += 60_000
    first.worker.revoked(FakeAssignment(1))
    assert first.worker.running == 0
