"""A command that a dead process may have taken: "nothing happened" is true of this delivery alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import BusinessError, ToolContext, TransientError, tool

from .world import World, command

Make = Callable[..., World]


def failing(error: Exception) -> Any:
    @tool("t", effect="idempotent")
    async def act(context: ToolContext) -> None:
        raise error

    return act


@tool("t", effect="idempotent")
async def fine() -> int:
    """Works."""
    return 1


def answer(w: World, before: bool, **values: Any) -> dict[str, Any]:
    w.taken_before = before
    w.take(command(effect="idempotent", **values))
    w.until(lambda: w.results() and w.results()[-1]["status"] != "started")
    found: dict[str, Any] = w.results()[-1]
    return found


@pytest.mark.parametrize(("before", "status"), [(False, "failed"), (True, "unknown")])
@pytest.mark.parametrize("error", [TransientError("later"), ConnectionRefusedError("no")])
def test_what_proves_that_nothing_happened_proves_it_of_one_delivery(
    world: Make, error: Exception, before: bool, status: str
) -> None:
    found = answer(world(failing(error)), before)
    assert found["status"] == status
    assert ("may have been made before" in found["error"]["message"]) is before


@pytest.mark.parametrize(("before", "status"), [(False, "failed"), (True, "unknown")])
def test_a_command_that_expired_may_have_been_made_in_time(
    world: Make, before: bool, status: str
) -> None:
    w = world(fine)
    w.now = 10_000_000
    found = answer(w, before, expires_at=9_999_999)
    assert (found["status"], found["error"]["code"]) == (status, "EXPIRED")


@pytest.mark.parametrize(("before", "status"), [(False, "failed"), (True, "unknown")])
def test_a_worker_without_the_tool_does_not_speak_for_the_one_before(
    world: Make, before: bool, status: str
) -> None:
    found = answer(world(fine), before, target="gone")
    assert (found["status"], found["error"]["code"]) == (status, "NO_SUCH_TOOL")


def test_the_services_own_word_counts_whoever_asked_before(world: Make) -> None:
    """An idempotent service would have given the first result."""
    assert answer(world(failing(BusinessError("no money"))), True)["status"] == "failed"
    assert answer(world(fine), True)["status"] == "succeeded"


def test_a_cancelled_call_may_have_been_made_before(world: Make) -> None:
    w = world(fine, calls_in_all=1, calls_per_target=1)
    w.taken_before = True
    w.worker._work._gate.enter("t", lambda: False)  # no place: it waits
    w.take(command(effect="idempotent"))
    w.take(command(effect="idempotent", verb="cancel"))
    assert [each["status"] for each in w.results()] == ["unknown"]


@pytest.mark.parametrize(
    ("before", "status", "calls"), [(False, "succeeded", 1), (True, "unknown", 0)]
)
@pytest.mark.parametrize("was", ["idempotent", "read_only"])
def test_a_tool_that_became_external_is_not_called_again_blindly(
    world: Make, was: str, before: bool, status: str, calls: int
) -> None:
    """The former process called it without a note in the ledger."""
    made: list[int] = []

    @tool("t", effect="external", approval="never")
    async def pay() -> str:
        made.append(1)
        return "paid"

    w = world(pay)
    w.taken_before = before
    asked = command(effect=was)
    assert w.answer(asked)["status"] == status
    w.take(asked)  # the engine's copy, once more
    assert w.results()[-1]["status"] == status
    assert len(made) == calls
    assert w.ledger() == {"l/r/1/1": "finished"}


def test_an_external_command_that_waited_is_called(world: Make) -> None:
    """The ledger has no entry of it: no process before has begun it."""

    @tool("t", effect="external", approval="never")
    async def pay() -> str:
        return "paid"

    w = world(pay)
    w.taken_before = True
    assert w.answer(command(effect="external"))["status"] == "succeeded"
