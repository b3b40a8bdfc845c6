"""Batches of agent.events into the tables: the only writer of rows and histories.

A run's history is written before its row, and the row says how much of the history counts. So a
process that dies between the two, and reads the batch again, writes the same place anew.

What is written goes to the store at once and to its changelog a moment later. Events that come
again say that the moment may have been missed: what they led to is then put once more, the same
bytes under the same keys, or another process would make its tables of a changelog with holes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory, follow
from perdure.streams.core.state import Run

from .projections import histories
from .projections.rows import Row, advance

FOLDED_BYTES: Final = 64_000_000
"""Of events whose states are held in memory; what is not held is folded anew when it goes on."""


class Tables(Protocol):
    """One partition's tables."""

    def row(self, run_id: str) -> Row | None: ...

    def put_row(self, row: Row) -> None: ...

    def chunk(self, run_id: str, number: int) -> bytes | None: ...

    def put_chunk(self, run_id: str, number: int, chunk: bytes) -> None: ...


def history(tables: Tables, row: Row, after: int = 0) -> list[RunEvent]:
    """A run's events above version ``after`` as far as its row counts them."""
    found: list[RunEvent] = []
    for number in range(row.chunks):
        chunk = tables.chunk(row.run_id, number)
        if chunk is not None:
            found += histories.events_in(chunk)
    return [event for event in found if event.version > after] if after else found


class Folded:
    """States of the runs that last went on, within a bound of bytes."""

    def __init__(self, most: int = FOLDED_BYTES) -> None:
        self._most = most
        self._held: OrderedDict[str, tuple[Run, int]] = OrderedDict()
        self._bytes = 0

    def take(self, run_id: str) -> tuple[Run | None, int]:
        """The state, which is the caller's from now on, and the bytes of events it stands for."""
        found = self._held.pop(run_id, None)
        if found is None:
            return None, 0
        self._bytes -= found[1]
        return found

    def put(self, run_id: str, run: Run, size: int) -> None:
        self._held[run_id] = (run, size)
        self._bytes += size
        while self._bytes > self._most and len(self._held) > 1:
            _, (_, gone) = self._held.popitem(last=False)
            self._bytes -= gone


class Projector:
    """Owns nothing but the cache of states; the tables are the truth."""

    def __init__(self, folded: Folded | None = None) -> None:
        self._folded = Folded() if folded is None else folded
        self.events = 0
        self.bad = 0

    def take(self, tables: Tables, raws: Sequence[bytes | None]) -> list[Row]:
        """Records of one partition in their order; the rows that changed."""
        runs: dict[str, list[tuple[RunEvent, bytes]]] = {}
        for raw in raws:
            event = None if raw is None else histories.event_of(raw)
            if event is None or raw is None:
                self.bad += 1
                continue
            self.events += 1
            runs.setdefault(event.run_id, []).append((event, raw))
        changed = []
        for run_id, came in runs.items():
            row = self._run(tables, run_id, came)
            if row is not None:
                changed.append(row)
        return changed

    def _run(self, tables: Tables, run_id: str, came: list[tuple[RunEvent, bytes]]) -> Row | None:
        row = tables.row(run_id)
        changed = None
        for anew, life in _lives(row, came):
            if anew:
                row = None  # nothing of before counts
                self._folded.take(run_id)
            row = self._life(tables, run_id, row, life)
            changed = row or changed
            row = row or tables.row(run_id)
        return changed

    def _life(
        self, tables: Tables, run_id: str, row: Row | None, came: list[tuple[RunEvent, bytes]]
    ) -> Row | None:
        if row is not None and came[0][0].version <= row.version:
            _put_again(tables, row, [(e, raw) for e, raw in came if e.version <= row.version])
        run, size = self._state(tables, row, run_id)
        row, run, new = advance(row, run, (event for event, _ in came))
        if row is not None and new:
            fresh = {id(event) for event in new}
            raws = [raw for event, raw in came if id(event) in fresh]
            for chunk in histories.chunks(raws):
                tables.put_chunk(run_id, row.chunks, chunk)
                row.chunks += 1
            tables.put_row(row)
            size += sum(map(len, raws))
        if run is not None:
            self._folded.put(run_id, run, size)
        return row if new else None

    def _state(self, tables: Tables, row: Row | None, run_id: str) -> tuple[Run | None, int]:
        run, size = self._folded.take(run_id)
        if row is None or row.gap:
            return None, 0
        if run is not None and run.header.version == row.version:
            return run, size
        run = fold(history(tables, row))
        return (run, row.version * 1000) if run and run.header.version == row.version else (None, 0)


def _lives(
    row: Row | None, came: list[tuple[RunEvent, bytes]]
) -> list[tuple[bool, list[tuple[RunEvent, bytes]]]]:
    """Split where the id begins anew (True), which it may do once the engine has forgotten it."""
    lives: list[tuple[bool, list[tuple[RunEvent, bytes]]]] = []
    first = None if row is None else row.first
    for event, raw in came:
        anew = event.version == 1 and event.hash != first
        if anew:
            first = event.hash
        if anew or not lives:
            lives.append((anew, []))
        lives[-1][1].append((event, raw))
    return lives


def _put_again(tables: Tables, row: Row, came: list[tuple[RunEvent, bytes]]) -> None:
    """What these events led to, once more; a record of the history that is not there, from them."""
    oldest = came[0][0].version
    number, reached, lost = row.chunks, 0, False
    held: list[tuple[int, bytes]] = []
    while number > 0:
        chunk = tables.chunk(row.run_id, number - 1)
        last = 0 if chunk is None else histories.events_in(chunk)[-1].version
        reached = max(reached, last)
        if chunk is not None and last < oldest:
            break
        number -= 1
        lost = lost or chunk is None
        if chunk is not None:
            held.insert(0, (number, chunk))
    if not lost and reached >= row.version:
        for at, chunk in held:
            tables.put_chunk(row.run_id, at, chunk)
    else:
        found = {event.version: raw for _, chunk in held for event, raw in histories.raws_in(chunk)}
        found |= {event.version: raw for event, raw in came}
        for made in histories.chunks([found[version] for version in sorted(found)]):
            tables.put_chunk(row.run_id, number, made)
            number += 1
        row.chunks = number
    tables.put_row(row)


def fold(events: Sequence[RunEvent], run: Run | None = None) -> Run | None:
    """The state of a history, or None where it has none that the core could make."""
    try:
        for event in events:
            run = follow(run, event)
    except (BrokenHistory, KeyError, TypeError, AttributeError, LookupError, ValueError):
        return None
    return run
