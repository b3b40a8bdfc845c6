"""A clock was ahead once: the partition's time never goes back, and stands still until it is caught up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from perdure.connectors import tool

from .world import World, command

HOUR = 3_600_000


@tool("t", effect="external", approval="never")
async def pay() -> str:
    return "paid"


@pytest.mark.parametrize("effect", ["external", "idempotent"])
def test_a_command_is_not_expired_by_it(world: Callable[..., World], effect: str) -> None:
    w = world(pay)
    w.ahead = HOUR
    assert w.answer(command(effect=effect, expires_at=w.now + 50_000))["status"] == "succeeded"


def test_nor_one_that_waited_for_its_place(world: Callable[..., World]) -> None:
    w = world(pay, calls_in_all=1, calls_per_target=1)
    gate = w.worker._work._gate
    w.ahead = HOUR
    assert gate.enter("t", lambda: False)
    w.take(command(effect="external", expires_at=w.now + 50_000))
    gate.leave("t")
    w.until(lambda: len(w.statuses()) == 2)
    assert w.statuses() == ["started", "succeeded"]


def test_a_command_whose_time_is_over_is_not_called(world: Callable[..., World]) -> None:
    w = world(pay)
    w.ahead = HOUR
    found = w.answer(command(effect="external", expires_at=w.now))
    assert found["error"]["code"] == "EXPIRED"
