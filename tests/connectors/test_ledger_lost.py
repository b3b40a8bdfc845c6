"""The ledger does not go back to the beginning: its state was lost, or it has forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import ABSENT, UNCLEAR, Found, tool
from perdure.schemas.topics import DAY_MS

from .world import World, command

LOST_AT = 500_000_000
"""ms; when the ledger began anew."""


class Service:
    """An external service; ``said``: what its query finds."""

    def __init__(self) -> None:
        self.calls = 0
        self.said: Any = UNCLEAR


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def anew(world: Callable[..., World], service: Service) -> World:
    @tool("pay", effect="external", approval="never")
    async def pay() -> str:
        service.calls += 1
        return "paid"

    @pay.query
    async def find() -> Any:
        return service.said

    w = world(pay)
    w.now = LOST_AT
    w.assignment.began_anew = True
    w.live()
    assert w.ledger() == {"b/": "begun"}
    return w


def sent(at: int, **more: Any) -> Any:
    return command("pay", effect="external", issued_at=at, expires_at=at + 50_000, **more)


def asked(w: World, at: int) -> str:
    """The answer to a query of an attempt that was sent then."""
    w.committed.clear()
    query = command("pay", effect="external", verb="query", issued_at=w.now, expires_at=at + 50_000)
    w.take(query)
    w.until(lambda: bool(w.statuses()))
    return w.statuses()[-1]


def test_an_attempt_of_before_is_unknown_and_never_barred(anew: World, service: Service) -> None:
    assert asked(anew, LOST_AT - 1_000) == "unknown"
    assert anew.ledger() == {"b/": "begun"}
    service.said = Found("paid")
    assert asked(anew, LOST_AT - 1_000) == "succeeded"


def test_the_tools_own_word_counts(anew: World, service: Service) -> None:
    service.said = ABSENT
    assert asked(anew, LOST_AT - 1_000) == "absent"


def test_what_was_sent_since_is_told_as_ever(anew: World, service: Service) -> None:
    assert asked(anew, LOST_AT + 1_000) == "absent"
    assert anew.ledger() == {"b/": "begun", "l/r/1/1": "barred"}


def test_a_command_of_before_that_comes_again_is_not_called(anew: World, service: Service) -> None:
    anew.taken_before = True
    assert anew.answer(sent(LOST_AT - 1_000))["error"]["code"] == "ledger_lost"
    anew.take(sent(LOST_AT - 1_000))
    assert (anew.statuses(), service.calls) == (["unknown", "unknown"], 0)


def test_a_command_since_is_called(anew: World, service: Service) -> None:
    anew.taken_before = True  # by the owner before, who had this ledger
    assert anew.answer(sent(LOST_AT + 1))["status"] == "succeeded"
    assert service.calls == 1


def test_a_cancel_does_not_say_that_it_never_began(anew: World) -> None:
    anew.take(sent(LOST_AT - 1_000, verb="cancel"))
    assert anew.statuses() == ["unknown"]
    anew.take(sent(LOST_AT + 1_000, verb="cancel", action_id="r/2"))
    assert anew.statuses() == ["unknown", "cancelled"]


def test_an_attempt_older_than_what_is_kept_is_unknown(anew: World, service: Service) -> None:
    assert anew.answer(sent(LOST_AT))["status"] == "succeeded"
    anew.fire(anew.now + 9 * DAY_MS)
    assert anew.ledger() == {"b/": "begun"}
    assert asked(anew, LOST_AT) == "unknown"
