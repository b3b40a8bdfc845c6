"""A fake downstream of writes that can be undone, with a ledger of what really happened.

A booking is for a *place* (1, 2, ...) and can be given back. The ledger is written when a request
lands, shares no code with the product, and is what a saga is judged by: the balance of a place is
how often it was booked minus how often it was given back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from perdure.connectors.errors import BusinessError, OutcomeUnknown
from perdure.connectors.tool import ABSENT, Answer, Found, Tool, ToolContext, tool

from .matrix import KINDS, Kind
from .network import Network

TIMEOUT: Final = 2.0
SETTLE: Final = 8.0
WRITES: Final = tuple(kind for kind in KINDS if kind.effect != "read_only")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger. ``what``: `booked`, `given back` or `by hand`."""

    what: str
    place: int


class Bookings:
    """The service. Requests of `idempotent` tools have keys that it keeps; all others just act."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.clear()

    def clear(
        self,
        full: int | None = None,
        lost: Mapping[int, bool] | None = None,
        kept: int | None = None,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """For the next course. ``full``: a place that can't be booked, told to ``on_full`` each
        time; ``lost``: places whose booking nobody can tell of, and whether it happens; ``kept``:
        a place that can't be given back."""
        self.ledger: list[Entry] = []
        self.kept = kept
        self._full = full
        self._on_full = on_full
        self._lost = dict(lost or {})
        self._places: dict[int, int] = {}
        self._answers: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    # --- what the tools do ---------------------------------------------------------------------

    async def book(self, key: str, place: int, keeps_key: bool) -> Any:
        """Raises `BusinessError` for one that is full, `OutcomeUnknown` for one that is lost."""
        if place == self._full:
            self._on_full()
            raise BusinessError(f"place {place} is full")
        happens = self._lost.get(place)
        if happens is None or happens:
            answer = await self._network.send(lambda: self._book(key, place, keeps_key))
        if happens is not None:
            raise OutcomeUnknown(f"nobody can tell whether place {place} is booked")
        return answer

    async def give_back(self, key: str, booking: int, keeps_key: bool) -> Any:
        """Raises `BusinessError` for one that is kept."""
        if self._places[booking] == self.kept:
            raise BusinessError(f"it is too late to give place {self._places[booking]} back")
        return await self._network.send(lambda: self._give_back(key, booking, keeps_key))

    def find(self, key: str) -> Found | Answer:
        """The truth about a request's key."""
        return Found(self._answers[key]) if key in self._answers else ABSENT

    def _book(self, key: str, place: int, keeps_key: bool) -> Any:
        if keeps_key and key in self._answers:
            return self._answers[key]
        number = next(self._numbers)
        self._places[number] = place
        self.ledger.append(Entry("booked", place))
        self._answers[key] = {"booking": number}
        return self._answers[key]

    def _give_back(self, key: str, booking: int, keeps_key: bool) -> Any:
        if keeps_key and key in self._answers:
            return self._answers[key]
        self.ledger.append(Entry("given back", self._places[booking]))
        self._answers[key] = {"given_back": booking}
        return self._answers[key]

    # --- what people see and do ----------------------------------------------------------------

    def by_hand(self, place: int) -> None:
        """Somebody gives it back over the counter."""
        self.ledger.append(Entry("by hand", place))

    def booking_of(self, place: int) -> int:
        """The number of its last booking."""
        return max(number for number, of in self._places.items() if of == place)

    def booked(self, place: int) -> int:
        return self.ledger.count(Entry("booked", place))

    def given_back(self, place: int) -> int:
        """By a tool or by hand."""
        return sum(entry.place == place and entry.what != "booked" for entry in self.ledger)

    def balance(self, place: int) -> int:
        return self.booked(place) - self.given_back(place)


def name_of(verb: str, kind: Kind) -> str:
    """``verb``: `book` or `give_back`."""
    return f"{verb}_{kind.effect}" + ("_queried" if kind.queried else "")


def tools_of(bookings: Bookings) -> list[Tool[..., Any]]:
    """For each kind of writing tool one that books, and one of the same kind that undoes it."""
    made: list[Tool[..., Any]] = []
    for kind in WRITES:
        made += _pair(kind, bookings)
    return made


def _pair(kind: Kind, bookings: Bookings) -> list[Tool[..., Any]]:
    keeps_key = kind.effect == "idempotent"
    times = {"timeout_seconds": TIMEOUT, "settle_seconds": SETTLE}
    undoing = name_of("give_back", kind)

    @tool(name_of("book", kind), effect=kind.effect, compensate=undoing, **times)
    async def book(context: ToolContext, place: int) -> Any:
        return await bookings.book(context.idempotency_key, place, keeps_key)

    @tool(undoing, effect=kind.effect, approval="always", **times)
    async def give_back(context: ToolContext, place: int, result: dict[str, Any]) -> Any:
        return await bookings.give_back(context.idempotency_key, result["booking"], keeps_key)

    pair: list[Tool[..., Any]] = [book, give_back]
    if kind.queried:
        for each in pair:
            each.query(_query(bookings))
    return pair


def _query(bookings: Bookings) -> Any:
    async def find(context: ToolContext) -> Found | Answer:
        return bookings.find(context.idempotency_key)

    return find
