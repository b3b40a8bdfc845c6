"""What one consumer fetches: its partitions, where it is in each, and what a poll gives of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.streams.runtime.ports import End, Polled, Spot, Trouble
from perdure.streams.runtime.processor import Record

from .log import Log

if TYPE_CHECKING:
    from .broker import Broker


class _Fetch:
    __slots__ = ("broken", "log", "paused", "position", "spot", "told")

    def __init__(self, spot: Spot, position: int, paused: bool) -> None:
        self.spot = spot
        self.position = position
        self.paused = paused
        self.told = -1  # the end that was told last
        self.broken = False  # in trouble: nothing more until it is started anew
        self.log: Log | None = None


class Fetcher:
    """The partitions of one consumer. With a `random.Random`, what one poll gives is left to it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fetches: dict[Spot, _Fetch] = {}
        self._exhausted_at = -1  # the broker's version at which there was nothing more
        self._waiting: list[Polled] = []  # told by the next poll

    def __contains__(self, spot: object) -> bool:
        return spot in self._fetches

    def add(self, spot: Spot, position: int, paused: bool) -> None:
        self._fetches[spot] = _Fetch(spot, position, paused)
        self._exhausted_at = -1

    def remove(self, spot: Spot) -> None:
        self._fetches.pop(spot, None)
        self._forget(spot)

    def pause(self, spots: Sequence[Spot]) -> None:
        for spot in spots:
            if spot in self._fetches:
                self._fetches[spot].paused = True

    def resume(self, spots: Sequence[Spot]) -> None:
        for spot in spots:
            fetch = self._fetches.get(spot)
            if fetch is not None:
                fetch.paused = False
                fetch.told = -1
        self._exhausted_at = -1

    def start(self, spot: Spot, position: int) -> None:
        self._forget(spot)
        self._fetches[spot] = _Fetch(spot, position, False)
        self._exhausted_at = -1

    def placeholder(self, spot: Spot) -> None:
        """Assigned at offset 0, which only stands for one, and paused: the port tells no trouble of it."""
        self.add(spot, 0, True)

    def _forget(self, spot: Spot) -> None:
        if self._waiting:
            self._waiting = [w for w in self._waiting if (w.topic, w.partition) != spot]

    def take(self, limit: int) -> list[Polled]:
        broker = self._broker
        if broker.version == self._exhausted_at:
            return []
        if self._waiting:
            waiting, self._waiting = self._waiting[:limit], self._waiting[limit:]
            return waiting
        version = broker.version
        fetches = list(self._fetches.values())
        rng, complete = broker.random, True
        if rng is not None and fetches:
            first = rng.randrange(len(fetches))
            fetches = fetches[first:] + fetches[:first]
            if rng.random() < 0.25:  # nothing has arrived yet of some of them
                fetches = fetches[: rng.randrange(len(fetches) + 1)]
                complete = False
            if limit > 1 and rng.random() < 0.25:
                limit = rng.randint(1, min(limit, 5))
        polled: list[Polled] = []
        for fetch in fetches:
            if fetch.paused or fetch.broken:
                continue
            if len(polled) >= limit:
                complete = False
                break
            if not self._take_of(fetch, limit - len(polled), polled):
                complete = False
        if complete:
            self._exhausted_at = version
        return polled

    def _take_of(self, fetch: _Fetch, room: int, polled: list[Polled]) -> bool:
        """False if there is more to tell."""
        log = fetch.log
        if log is None or log.deleted:
            log = fetch.log = self._broker.log(fetch.spot)
            if log is None:
                fetch.broken = True
                polled.append(Trouble(*fetch.spot, False, "the topic does not exist"))
                return True
        position = fetch.position
        if position < log.start or position > log.end:
            fetch.broken = True
            detail = f"offset {position} is outside the log ({log.start} to {log.end})"
            polled.append(Trouble(*fetch.spot, True, detail))
            return True
        stable = log.stable
        if position < stable:
            found: list[Record] = []
            position = fetch.position = log.committed_from(position, room, found)
            polled += found
            room -= len(found)
        if position < stable:
            return False
        if fetch.told == position or position > stable:  # no end is told from behind the stable one
            return True
        if room <= 0 or (self._broker.random is not None and self._broker.random.random() < 0.3):
            return False  # an end is told by a fetch of its own
        fetch.told = position
        polled.append(End(*fetch.spot, position))
        return True
