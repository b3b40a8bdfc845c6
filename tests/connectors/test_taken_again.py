"""What is no record and could not be taken: the end of a call, a timer. Nobody else knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import ledger, worker
from perdure.streams.runtime.errors import Undeliverable

from perdure import tool

from .world import FakeContext, World, command


@tool("pay", effect="external", approval="never")
async def pay() -> str:
    return "paid"


def test_the_end_of_a_call_that_could_not_be_taken_is_taken_again(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AGAIN_SECONDS", 0.0)
    here = world(pay)
    here.take(command("pay", effect="external"))
    taken: list[Any] = []

    def fails() -> bool:
        if here.assignment.events and not taken:
            taken.append(here.assignment.events.popleft())
            ctx = FakeContext(here)
            here.worker.failed(ctx, None, None, Undeliverable("refused"), taken[0])
            here.commit(ctx)
        return bool(taken)

    while not fails():
        pass
    here.until(lambda: here.worker.running == 0)
    assert here.statuses() == ["started", "succeeded"]
    assert here.ledger() == {"l/r/1/1": "finished"}
    assert here.assignment.in_flight == 0


def test_a_timer_that_could_not_be_taken_comes_again(world: Callable[..., World]) -> None:
    here = world(pay)
    ctx = FakeContext(here)
    key = ledger.SETTLE + b"o/r/1/1"
    here.worker.failed(ctx, None, key, Undeliverable("refused"))
    here.commit(ctx)
    assert [kept for _, kept in here.timers] == [key]
    assert min(here.timers)[0] > here.now
