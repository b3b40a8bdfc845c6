"""One ownership of one partition: everything that must die with it hangs on this object.

The broker checks that we are a member, not that we own what we commit. So what is staged, in
flight or uncommitted belongs to an `OwnedPartition`, made when all inputs of the partition are
assigned, dead at revoke or loss, never revived: what comes for a dead one is dropped, also when
the same partition has come back meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from enum import Enum
from typing import Any

from .offsets import HeldRecord, InputOffsets, StoredOffsets, encode_stored
from .overlay import PartitionState
from .ports import End, Position, Spot
from .processor import Record
from .timers import Timers


class Phase(Enum):
    RESTORING = "restoring"
    LIVE = "live"
    STOPPED = "stopped"


class OwnedPartition:
    """The `Assignment` handed to processors; `post`, `busy` and `finished` are thread-safe."""

    state: PartitionState  # from the restore's end on
    timers: Timers  # from the restore's end on

    def __init__(
        self,
        partition: int,
        partitions: int,
        topics: tuple[str, ...],
        owner: str,
        wake: threading.Event,
    ) -> None:
        self.partition = partition
        self.partitions = partitions
        self.topics = topics
        self.phase = Phase.RESTORING
        self.leaving = False  # given up as soon as its writing calls have ended
        self.paused = False  # too many unfinished records
        self.announced = False  # `Processor.live` has been called
        self.unwritten = False  # its changelog has no entry of ours yet
        self.began_anew = False
        self.now = 0  # ms; never goes back
        self.ahead = False  # `now` is far ahead of the clock, and that was said
        self.live_since = 0
        self.offsets: dict[str, InputOffsets] = {}
        self.taken_until: dict[str, int] = {}  # below it a former owner may have taken records
        self.topic_ids: dict[str, str] = {}
        self.pending: deque[Record | End] = deque()  # polled, not yet taken
        self.taking: tuple[str, int] = ("", 0)  # where the record being processed lies
        self._owner = owner
        self._wake = wake
        self._alive = True
        self._lock = threading.Lock()
        self._busy = 0
        self._inbox: deque[Any] = deque()
        self._finished: deque[HeldRecord] = deque()

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def live(self) -> bool:
        return self._alive and self.phase is Phase.LIVE

    @property
    def in_flight(self) -> int:
        return self._busy

    @property
    def unfinished(self) -> int:
        return sum(o.unfinished for o in self.offsets.values())

    @property
    def span(self) -> int:
        """From the lowest unfinished record to the newest taken."""
        return max((o.span for o in self.offsets.values()), default=0)

    @property
    def has_news(self) -> bool:
        return bool(self._inbox or self._finished)

    def post(self, event: Any) -> None:
        if self._alive:
            self._inbox.append(event)
            self._wake.set()

    def busy(self, delta: int) -> None:
        with self._lock:
            self._busy += delta
        if delta < 0:
            self._wake.set()

    def finished(self, held: HeldRecord) -> None:
        if self._alive:
            self._finished.append(held)
            self._wake.set()

    def take_event(self) -> Any:
        """Raises IndexError when there is none."""
        return self._inbox.popleft()

    def give_back(self, events: list[Any]) -> None:
        self._inbox.extendleft(reversed(events))

    def notice_finished(self) -> None:
        while self._finished:
            held = self._finished.popleft()
            self.offsets[held.topic].finish(held)

    def position(self, spot: Spot) -> int:
        return self.offsets[spot.topic].position

    def spots(self) -> list[Spot]:
        return [Spot(topic, self.partition) for topic in self.topics]

    @property
    def dirty(self) -> bool:
        return any(o.dirty for o in self.offsets.values())

    def positions(self) -> dict[Spot, Position]:
        """Of all inputs: a transaction without offsets would be fenced by nothing."""
        return {
            Spot(topic, self.partition): Position(
                offsets.committed, offsets.note(self._owner, self.unwritten, self.began_anew)
            )
            for topic, offsets in self.offsets.items()
        }

    def clean(self) -> None:
        """The positions are committed."""
        for offsets in self.offsets.values():
            offsets.dirty = False

    def stored_offsets(self) -> bytes:
        inputs = {topic: (o.committed, o.done()) for topic, o in self.offsets.items()}
        return encode_stored(StoredOffsets(self.partitions, self.now, inputs, self.topic_ids))

    def leave(self) -> None:
        """Take nothing more; completions of calls in flight are still committed."""
        self.leaving = True
        self.pending.clear()

    def die(self) -> None:
        self._alive = False
        self.pending.clear()
        self._inbox.clear()
        self._finished.clear()
