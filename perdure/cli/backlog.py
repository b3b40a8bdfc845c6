"""How far a role is behind, as Kafka has it: asked when somebody scrapes, at most every 10 s.

Lag is the log's end less the committed offset (of a worker that is the lowest unfinished command), and 0
where only markers of transactions lie between. The age is that of the oldest unread record of a
processor's first input: tasks, a queue's commands, events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from perdure.streams.runtime.errors import KafkaUnreachable, Unanswered
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.runtime.ports import Admin, Answer, End, Kafka, Position, Reader, Spot
from perdure.streams.runtime.processor import Record

ASK_EVERY_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 2.0
"""A scrape waits no longer than this for each answer; without one there are no figures."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Input:
    """What a processor reads: its group, its topics."""

    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behind:
    """One partition of one input. ``oldest_at`` (ms): of the ``first`` input's first unread record.
    ``started``: its group has committed something there."""

    processor: str
    spot: Spot
    records: int
    first: bool = False
    oldest_at: int | None = None
    started: bool = False


def held_by(board: HealthBoard) -> dict[str, set[int]]:
    """The partitions each processor has: live, restoring or stopped."""
    return {s.processor: {*s.live, *s.restoring, *s.stopped} for s in board.snapshots()}


class Backlog:
    """``held``: the partitions each processor of this process has now. Thread-safe."""

    def __init__(
        self,
        held: Callable[[], Mapping[str, Iterable[int]]],
        inputs: Mapping[str, Input],
        kafka: Kafka,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held = held
        self._inputs = inputs
        self._kafka = kafka
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._admin: Admin | None = None
        self._reader: Reader | None = None
        self._again_at = 0.0
        self._known: list[Behind] = []

    def look(self) -> list[Behind]:
        """As of now or some seconds ago; nothing where Kafka does not answer."""
        with self._lock:
            now = self._monotonic()
            if now >= self._again_at:
                self._again_at = now + ASK_EVERY_SECONDS
                try:
                    self._known = self.ask()
                except (Unanswered, KafkaUnreachable):
                    self._known = []
            return self._known

    def ask(self) -> list[Behind]:
        """As of now. Raises `Unanswered`, `KafkaUnreachable`. Not for two threads at once."""
        if self._admin is None:
            self._admin = self._kafka.admin()
        found: list[Behind] = []
        for processor, mine in self._held().items():
            of = self._inputs[processor]
            spots = [Spot(topic, partition) for topic in of.topics for partition in sorted(mine)]
            if not spots:
                continue
            committed = self._answer(self._admin.committed(of.group, spots, False))
            starts = self._answer(self._admin.starts(spots))
            ends = self._answer(self._admin.ends(spots))
            at = {spot: _position(committed.get(spot), starts[spot]) for spot in spots}
            behind = {spot: max(ends[spot] - at[spot], 0) for spot in spots}
            first = self._first({spot: at[spot] for spot in spots if behind[spot]})
            for spot in spots:
                read = first.get(spot)
                # An end before the log's: an open transaction holds the rest, which waits.
                nothing = isinstance(read, End) and read.offset >= ends[spot]
                left = 0 if nothing else behind[spot]
                told = spot.topic == of.topics[0]
                oldest = read.timestamp if told and isinstance(read, Record) else None
                found.append(Behind(processor, spot, left, told, oldest, spot in committed))
        return found

    def _answer(self, asked: Answer[T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not asked.done():
            if time.monotonic() > deadline:
                raise Unanswered("Kafka has not answered")
            time.sleep(0.005)
        return asked.result()

    def _first(self, unread: Mapping[Spot, int]) -> dict[Spot, Record | End]:
        """What a reader finds from there on: a record or, behind markers alone, the end. What can't be
        read in time is left out."""
        found: dict[Spot, Record | End] = {}
        if not unread:
            return found
        if self._reader is None:
            self._reader = self._kafka.reader("perdure.backlog")
        for spot, offset in unread.items():
            self._reader.add(spot, offset)
        waiting = set(unread)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while waiting and time.monotonic() < deadline:
            for item in self._reader.poll(1_000, 0.05):
                spot = Spot(item.topic, item.partition)
                if spot in waiting:
                    waiting.discard(spot)
                    if isinstance(item, Record | End):
                        found[spot] = item
        for spot in unread:
            self._reader.remove(spot)
        return found


def _position(committed: Position | None, start: int) -> int:
    """What lies before the log's start is gone and nobody's backlog."""
    return start if committed is None else max(committed.offset, start)
