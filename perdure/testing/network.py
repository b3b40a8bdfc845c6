"""The way from a tool to a fake service: a request on it lands even if its sender is dead.

A fake whose requests go through a `Network` can be asked the hard question: the worker dies with
its request on the wire, the tool's query truthfully says that nothing has happened, and then the
request lands. Outside of a crash test (and for a fake that is used without one) a request lands
at once, so the same fake serves ordinary tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from .executor import Killed
from .processes import Life
from .world import World

R = TypeVar("R")
PROMPT: Final = 0.001
"""Seconds of an ordinary request's way."""


class Way(Protocol):
    """How requests travel in one simulated world."""

    @property
    def world(self) -> World: ...

    late: float | None
    """Seconds of the first request's way; None: it is an ordinary one."""
    sent: int
    """Requests so far."""
    on_the_way: int
    """Requests that have not landed."""


class Network:
    """Give it to a fake service (`crashes.network`); the fake calls `send` or `call`."""

    def __init__(self) -> None:
        self._way: Way | None = None
        self.used = False
        """Somebody sent something in a simulated world."""

    def goes_through(self, way: Way | None) -> None:
        """From now on requests travel like this; None: they land at once."""
        self._way = way

    async def send(self, land: Callable[[], R]) -> R:
        """The request of an ``async def`` tool. ``land`` is what the service does when it has
        come; what it returns or raises is the answer."""
        way = self._way
        if way is None:
            return land()
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def arrived(outcome: _Outcome) -> None:
            if not answer.done():
                outcome.settle(answer)

        self._post(way, land, arrived)
        return await answer

    def call(self, land: Callable[[], R]) -> R:
        """The same of a ``def`` tool: it blocks until the answer is there."""
        way = self._way
        life = way.world.running if way is not None else None
        if way is None or life is None:
            return land()
        got: list[_Outcome] = []
        self._post(way, land, got.append)
        number = way.sent
        way.world.point(life, f"request {number}", "sent")
        _block(life, lambda: bool(got))
        way.world.point(life, f"request {number}", "answered")
        return got[0].result()  # type: ignore[no-any-return]

    def _post(self, way: Way, land: Callable[[], Any], arrived: Callable[[_Outcome], None]) -> None:
        self.used = True
        way.sent += 1
        seconds = way.late if way.late is not None and way.sent == 1 else PROMPT
        way.on_the_way += 1
        number = way.sent
        way.world.say(f"request {number} is sent")

        def landing() -> None:
            way.on_the_way -= 1
            way.world.say(f"request {number} lands")
            arrived(_Outcome.of(land))

        way.world.later(seconds, landing)


class _Outcome:
    """What a service answered."""

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value = value
        self._error = error

    @classmethod
    def of(cls, land: Callable[[], Any]) -> _Outcome:
        try:
            return cls(land(), None)
        except Exception as error:
            return cls(None, error)

    def settle(self, future: asyncio.Future[Any]) -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._value)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


def _block(life: Life, condition: Callable[[], bool]) -> None:
    """A thread of ``life`` waits; everything else goes on, that process's loop too."""
    executor = life.executor
    before, executor._in_thread = executor._in_thread, False  # what runs meanwhile is no thread
    try:
        while not condition():
            life.until(condition)
            if not life.alive:
                raise Killed(life.name)
    finally:
        executor._in_thread = before
