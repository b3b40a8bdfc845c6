"""What a contract test may do to a broker, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.ports import End, GroupConsumer, Kafka, Polled, Position, Spot, Trouble
from perdure.streams.runtime.processor import Headers, Record

T = TypeVar("T")

SECONDS = 15.0
SESSION_MS, HEARTBEAT_MS = 3_000, 500


class World(Protocol):
    """Topic names are logical, as the ports take them; groups and ids are made by `name`."""

    def topic(
        self,
        partitions: int = 1,
        *,
        compact: bool = False,
        append_time: bool = False,
        max_bytes: int = 1_048_588,
        name: str | None = None,
    ) -> str:
        """A new topic. Returns its name."""

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, count: int) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> None: ...

    def put(
        self,
        topic: str,
        value: bytes | None = b"v",
        key: bytes | None = b"k",
        partition: int | None = 0,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        """As a foreign client; the broker has it on return."""

    def name(self, of: str) -> str:
        """A group or transactional id of this test's own."""

    def process(
        self,
        *,
        transaction_timeout_ms: int = 10_000,
        commit_patience_ms: int = 30_000,
        apart: bool = False,
    ) -> Kafka:
        """``apart``: one that can be killed and stopped."""

    def unreachable(self) -> Kafka:
        """A process whose broker does not answer: little patience."""

    def kill(self, process: Kafka) -> None: ...

    def stop(self, process: Kafka) -> None: ...

    def resume(self, process: Kafka) -> None: ...

    def now_ms(self) -> int: ...

    def until(self, done: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        """Wait until ``done`` gives something true. The only way to wait; time passes."""


class Reading:
    """A reader at work: what it was given so far."""

    def __init__(self, world: World, kafka: Kafka, *spots: tuple[Spot, int]) -> None:
        self._world = world
        self._kafka = kafka
        self.reader = kafka.reader(world.name("reader"))
        self.records: list[Record] = []
        self.ends: dict[Spot, int] = {}
        self.troubles: list[Trouble] = []
        for spot, offset in spots:
            self.reader.add(spot, offset)

    def poll(self, limit: int = 100) -> list[Polled]:
        polled = self.reader.poll(limit, 0.02)
        sort(polled, self.records, self.ends, self.troubles)
        return polled

    @property
    def values(self) -> list[bytes | None]:
        return [r.value for r in self.records]

    def to(self, spot: Spot, end: int) -> Reading:
        """Read until this end is told."""
        self._world.until(
            lambda: self.poll() is not None and self.ends.get(spot) == end,
            f"end {end} of {spot}: {self.ends}, {self.troubles}",
        )
        return self

    def has(self, *values: bytes | None) -> Reading:
        self._world.until(
            lambda: self.poll() is not None and len(self.records) >= len(values), f"{values}"
        )
        assert self.values == list(values)
        return self

    def to_the_end(self, spot: Spot) -> Reading:
        """Until there is nothing left, decided or not, that could still be read."""

        def read() -> bool:
            self.poll()
            return self.ends.get(spot) == ends(self._world, self._kafka, spot)[spot]

        self._world.until(read, f"the end of {spot}: {self.ends}")
        return self

    def close(self) -> None:
        self.reader.close()


def sort(
    polled: Sequence[Polled], records: list[Record], ends: dict[Spot, int], troubles: list[Trouble]
) -> None:
    for item in polled:
        if isinstance(item, Record):
            records.append(item)
        elif isinstance(item, End):
            ends[Spot(item.topic, item.partition)] = item.offset
        else:
            troubles.append(item)


def read(world: World, kafka: Kafka, topic: str, partition: int = 0) -> list[Record]:
    """Everything a new reader is given up to the first end it is told."""
    spot = Spot(topic, partition)
    reading = Reading(world, kafka, (spot, 0))
    world.until(lambda: reading.poll() and spot in reading.ends, f"an end of {spot}")
    reading.close()
    return reading.records


class Member:
    """A group member: it follows the group, and keeps what it was told."""

    def __init__(self, world: World, kafka: Kafka, group: str, *topics: str) -> None:
        self._world = world
        self.kafka = kafka
        self.group = group
        self.consumer: GroupConsumer = kafka.group_consumer(group, f"{group}.client")
        self.held: set[Spot] = set()
        self.told: list[tuple[str, tuple[Spot, ...]]] = []
        self.records: list[Record] = []
        self.ends: dict[Spot, int] = {}
        self.troubles: list[Trouble] = []
        self.on_revoke: Callable[[Sequence[Spot]], None] = lambda spots: None
        self.consumer.subscribe(topics, self)

    def assigned(self, spots: Sequence[Spot]) -> None:
        self.told.append(("assigned", tuple(sorted(spots))))
        self.held.update(spots)

    def revoked(self, spots: Sequence[Spot]) -> None:
        self.told.append(("revoked", tuple(sorted(spots))))
        self.on_revoke(spots)
        self.held.difference_update(spots)

    def lost(self, spots: Sequence[Spot]) -> None:
        self.told.append(("lost", tuple(sorted(spots))))
        self.held.difference_update(spots)

    def words(self) -> list[str]:
        return [word for word, _ in self.told]

    def poll(self, limit: int = 100) -> list[Polled]:
        polled = self.consumer.poll(limit, 0.02)
        sort(polled, self.records, self.ends, self.troubles)
        return polled

    def has(self, spots: set[Spot], *others: Member) -> Member:
        """Poll, the others too, until exactly these are held."""

        def holds() -> bool:
            for member in (self, *others):
                member.poll()
            return self.held == spots

        self._world.until(holds, f"{sorted(spots)}, not {sorted(self.held)}")
        return self

    def start(self, at: int = 0) -> Member:
        """All that is held."""
        self.consumer.start(dict.fromkeys(self.held, at))
        return self

    def poll_or_start_again(self, at: int) -> None:
        """What is in trouble is started once more, as whoever uses it has to."""
        self.poll()
        troubles, self.troubles = self.troubles, []
        for trouble in troubles:
            assert trouble.lost
            self.consumer.start({Spot(trouble.topic, trouble.partition): at})

    def has_records(self, *values: bytes | None) -> Member:
        self._world.until(
            lambda: self.poll() is not None and len(self.records) >= len(values),
            f"{values}, not {[r.value for r in self.records]}",
        )
        assert [r.value for r in self.records] == list(values)
        return self


def spots(*topics: str, partitions: Sequence[int] = (0,)) -> set[Spot]:
    return {Spot(t, p) for t in topics for p in partitions}


def new_group(world: World, kafka: Kafka) -> str:
    """With the shortest timeouts there are."""
    group = world.name("group")
    kafka.admin().set_group_timeouts(group, SESSION_MS, HEARTBEAT_MS)
    return group


def committed(
    world: World, kafka: Kafka, group: str, asked: set[Spot], stable: bool = False
) -> dict[Spot, Position]:
    admin = kafka.admin()  # kept: the real one ends with its last reference
    answer = admin.committed(group, sorted(asked), stable)
    world.until(answer.done, "the committed offsets")
    return dict(answer.result())


def is_stable(world: World, kafka: Kafka, group: str, spot: Spot) -> bool:
    try:
        committed(world, kafka, group, {spot}, stable=True)
    except Unanswered:
        return False
    return True


def ends(world: World, kafka: Kafka, *asked: Spot) -> dict[Spot, int]:
    admin = kafka.admin()
    return _told(world, lambda: admin.ends(asked), "the ends")


def _told(world: World, ask: Callable[[], Any], what: str) -> dict[Spot, int]:
    """Asked again while a broker is just becoming a partition's leader."""
    found: dict[Spot, int] = {}
    answer = ask()

    def told() -> bool:
        nonlocal answer
        if not answer.done():
            return False
        try:
            found.update(answer.result())
        except Unanswered:
            answer = ask()
            return False
        return True

    world.until(told, what)
    return found


def starts(world: World, kafka: Kafka, *asked: Spot) -> dict[Spot, int]:
    admin = kafka.admin()
    return _told(world, lambda: admin.starts(asked), "the starts")
