"""Durable timers: keys in the store, ordered by due time.

Truth owned here: the earliest due time of a partition, and whether its inputs have been read
far enough for a due timer to fire. A timer due at T fires only once everything that lay on the
inputs when the owner first saw T pass has been read: an answer that came in time beats its
timeout, also after an outage. Open transactions of others may hold the inputs up: 60 s, then
the timer fires all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .errors import Unanswered
from .ports import Answer, Spot

PREFIX = b"t/"
_VALUE_AT = len(PREFIX) + 9
PATIENCE_MS = 60_000
HELD_BACK_MS = 250
MAX_SCANNED = 5_000  # due timers looked at in a cycle, fired or not


def timer_key(due: int, key: bytes) -> bytes:
    """Big-endian, so that byte order is time order."""
    return PREFIX + max(due, 0).to_bytes(8, "big") + b"/" + key


def parse_timer(stored: bytes) -> tuple[int, bytes]:
    return int.from_bytes(stored[len(PREFIX) : _VALUE_AT - 1], "big"), stored[_VALUE_AT:]


@dataclass(slots=True)
class _Gate:
    """The inputs' ends as asked for at ``seen_at``; timers due until then wait for them."""

    seen_at: int
    answer: Answer[Mapping[Spot, int]]
    ends: Mapping[Spot, int] | None = None


class Timers:
    """``scan`` yields timer keys of the store from a key on; ``ends`` asks for the inputs' ends."""

    def __init__(
        self,
        scan: Callable[[bytes], Iterator[bytes]],
        ends: Callable[[], Answer[Mapping[Spot, int]]],
    ) -> None:
        self._scan = scan
        self._ends = ends
        self._gate: _Gate | None = None
        self._not_before = 0
        self._next_due = self._first(PREFIX)  # a lower bound: a cancelled timer leaves it as it is

    def set(self, due: int | None) -> None:
        """A timer was committed."""
        if due is not None and (self._next_due is None or due < self._next_due):
            self._next_due = due

    @property
    def wake_at(self) -> int | None:
        """When to look again (ms)."""
        return None if self._next_due is None else max(self._next_due, self._not_before)

    @property
    def asking(self) -> bool:
        """Due timers wait for the inputs to be read."""
        return self._gate is not None

    def due(self, now: int, position: Callable[[Spot], int]) -> Iterator[tuple[int, bytes]] | None:
        """Timers that may fire now, earliest first; None: none may. Else call `done` once what
        they did is committed, also when there turned out to be none (all were cancelled)."""
        if self._next_due is None or max(self._next_due, self._not_before) > now:
            return None
        if self._gate is None:
            self._gate = _Gate(now, self._ends())
        if not self._open(self._gate, now, position):
            return None
        return self._until(self._gate.seen_at, timer_key(self._next_due, b""))

    def _until(self, seen_at: int, start: bytes) -> Iterator[tuple[int, bytes]]:
        for scanned, stored in enumerate(self._scan(start)):
            due, key = parse_timer(stored)
            if due > seen_at or scanned >= MAX_SCANNED:
                return
            yield due, key

    def done(self, now: int, held_back: bool) -> None:
        """``held_back``: some due timers have to wait longer (`Processor.timer_delay`)."""
        if self._next_due is None or self._gate is None or self._gate.ends is None:
            return
        self._next_due = self._first(timer_key(self._next_due, b""))
        if self._next_due is None or self._next_due > self._gate.seen_at:
            self._gate = None
        elif held_back:
            self._gate = None
            self._not_before = now + HELD_BACK_MS

    def _open(self, gate: _Gate, now: int, position: Callable[[Spot], int]) -> bool:
        late = now >= gate.seen_at + PATIENCE_MS
        if gate.ends is None and gate.answer.done():
            try:
                gate.ends = gate.answer.result()
            except Unanswered:
                gate.answer = self._ends()
        if gate.ends is None:
            if late:
                gate.ends = {}
            return late
        return late or all(position(spot) >= end for spot, end in gate.ends.items())

    def _first(self, start: bytes) -> int | None:
        for stored in self._scan(start):
            return parse_timer(stored)[0]
        return None
