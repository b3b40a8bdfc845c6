"""What the runtime asks of Kafka, as ports: `kafka.py` is the real one, the simulation has another.

Topic names are logical on this side; the port adds and takes off the deployment's prefix.
Group and transactional ids are full names. Each method says which errors of `errors.py` it
raises; nothing else of the client library comes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from .processor import Headers, Record

T_co = TypeVar("T_co", covariant=True)


class Spot(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """A committed offset and what we wrote beside it."""

    offset: int
    metadata: str = ""


class End(NamedTuple):
    """All below ``offset`` has been read: control records and aborted ones at the tail included."""

    topic: str
    partition: int
    offset: int


class Trouble(NamedTuple):
    """A partition can't be read. ``lost``: its position is outside the log."""

    topic: str
    partition: int
    lost: bool
    detail: str


Polled = Record | End | Trouble


class Answer(Protocol[T_co]):
    """A question under way. ``result`` of one that failed raises `Unanswered`."""

    def done(self) -> bool: ...

    def result(self) -> T_co: ...


class Listener(Protocol):
    """Told of the group's decisions from inside `GroupConsumer.poll` and ``close``."""

    def assigned(self, spots: Sequence[Spot]) -> None:
        """They are already assigned to us, and paused."""

    def revoked(self, spots: Sequence[Spot]) -> None:
        """Still ours until this returns."""

    def lost(self, spots: Sequence[Spot]) -> None:
        """Already another's."""


class GroupConsumer(Protocol):
    """The member of the group. read_committed; never commits by itself."""

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None: ...

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        """Waits for the first, takes what else is there. A listener's raise comes out of here."""

    def pause(self, spots: Sequence[Spot]) -> None:
        """Nothing more is fetched; what is on its way may still come."""

    def resume(self, spots: Sequence[Spot]) -> None:
        """Go on where it stopped."""

    def start(self, positions: Mapping[Spot, int]) -> None:
        """Take up partitions paused since `Listener.assigned`, each at exactly this offset."""

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        """Synchronous, fenced by the member's epoch. Raises `GroupFenced`, `Unanswered`."""

    def membership(self) -> object:
        """For `TransactionalProducer.send_offsets`."""

    def close(self) -> None: ...


class TransactionalProducer(Protocol):
    """Raises `Aborted` (call ``abort``, take the batch again), `GroupFenced` (the same),
    `ProducerFenced` or `OutcomeUnknown` (the process ends)."""

    def start(self) -> None:
        """Takes the transactional id: whoever had it is fenced, what it had open is aborted."""

    def begin(self) -> None: ...

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        """``delivered`` is called with the record's offset before ``commit`` returns."""

    def send_offsets(self, positions: Mapping[Spot, Position], membership: object) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class PlainProducer(Protocol):
    """Idempotent, no transaction: for results whose loss or repeat the effect allows."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        """Thread-safe. ``done`` is called once the broker has it (None) or it failed."""

    def flush(self, timeout: float) -> int:
        """How many are still under way."""

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads partitions outside any group; read_committed; tells ends."""

    def add(self, spot: Spot, offset: int) -> None: ...

    def remove(self, spot: Spot) -> None: ...

    def poll(self, limit: int, timeout: float) -> list[Polled]: ...

    def close(self) -> None: ...


class Admin(Protocol):
    """Questions; those with an `Answer` never block."""

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Missing topics are left out. Blocks; raises `KafkaUnreachable`."""

    def set_group_timeouts(self, group: str, session_ms: int, heartbeat_ms: int) -> None:
        """Blocks. A broker that does not allow it is logged, not raised: failover is slower."""

    def committed(
        self, group: str, spots: Sequence[Spot], stable: bool
    ) -> Answer[Mapping[Spot, Position]]:
        """Spots without an offset are left out. ``stable``: not done, or `Unanswered`, while a
        transaction holding an offset of one of them is open."""

    def ends(self, spots: Sequence[Spot]) -> Answer[Mapping[Spot, int]]:
        """Log ends as read_uncommitted."""

    def starts(self, spots: Sequence[Spot]) -> Answer[Mapping[Spot, int]]: ...

    def topic_ids(self, topics: Sequence[str]) -> Answer[Mapping[str, str]]: ...

    def close(self) -> None: ...


class Kafka(Protocol):
    """Makes the above."""

    def group_consumer(self, group: str, client_id: str) -> GroupConsumer: ...

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer: ...

    def plain_producer(self, client_id: str) -> PlainProducer: ...

    def reader(self, client_id: str) -> Reader: ...

    def admin(self) -> Admin: ...

    def abort_open_transaction(self, transactional_id: str) -> None:
        """Take the id for a moment, in the background; never raises. Its holder is fenced."""
