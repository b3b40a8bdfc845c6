"""The port between the exactly-once runtime and what runs on it.

The runtime (``cycle.py``) polls, restores, stages, commits and acts; it knows Kafka and the
store and nothing of agents. A *processor* (the engine, a worker queue) says what a record
means. Everything a processor wants to happen goes through the `Context` of one savepoint: it
is merged into the cycle's transaction when the call returns and forgotten when it raises.

Topic names here are logical (``agent.tasks``); the runtime puts the deployment's
``topic_prefix`` before them on the way out and takes it off on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One inbound record, as its producer wrote it.

    A forwarded record is unwrapped before a processor sees it: topic, partition, offset and
    timestamp are those of the original record (contract section 2). ``timestamp`` is in ms.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded record. ``owner`` decides which partition processes it (None: where it lies)."""

    owner: str | None
    body: Any
    record: Record


class Undecodable(Exception):
    """The record can't be read: it goes to the dead letters with this reason and detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Hold(Protocol):
    """A record whose work goes on after its cycle; its offset is passed only once finished.

    The committed offset stays the lowest unfinished record; finished ones above it are listed
    in the commit's metadata and are not handed out again after a restart.
    """

    def finish(self) -> None:
        """The record is done. Thread-safe, idempotent; ignored on a dead assignment."""

    def leave(self) -> None:
        """It stays unfinished, for the next owner: a stop waits for it no longer. Thread-safe."""


class Assignment(Protocol):
    """One ownership of one partition: made at assign, dead at revoke or loss, never revived."""

    partition: int
    began_anew: bool
    """Its state was lost, and a person has said to go on without it. True in the first ownership since."""

    @property
    def alive(self) -> bool:
        """False once revoked or lost, also if the same partition has come back since."""

    def post(self, event: Any) -> None:
        """Hand ``event`` to `Processor.completed` in a coming cycle. Thread-safe; dropped when dead."""

    def busy(self, delta: int) -> None:
        """Count writing calls in flight: a revoke waits (at most 20 s) until the count is 0."""


class Context(Protocol):
    """What a processor may do while handling one input. Values put are frozen from then on."""

    partition: int
    partitions: int
    now: int  # ms; never goes back within a partition
    assignment: Assignment

    @property
    def taken_before(self) -> bool:
        """A former owner may have taken this record: it lay on the input when we took over.

        What it did with it in a transaction is in the state; what it did outside of one, nobody
        knows.
        """

    def get(self, key: bytes) -> Any | None:
        """The decoded value: what this cycle staged, else what is committed. Treat as frozen."""

    def put(self, key: bytes, value: Any) -> None: ...
    def delete(self, key: bytes) -> None: ...

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        """Keys with ``prefix``, in byte order, from ``start`` on, staged changes included."""

    def recall(self, key: bytes) -> Any | None:
        """What was remembered under ``key``, or None: it may be forgotten at any time."""

    def remember(self, key: bytes, value: Any | None, weight: int = 0) -> None:
        """Keep in memory what can be made again from what is stored; None forgets it.

        It is as good as the state it was made from: an aborted cycle forgets it, another owner
        never sees it. ``weight``: its bytes, roughly. Frozen from then on.
        """

    def set_timer(self, due: int, key: bytes) -> None:
        """Durable: `Processor.timer` is called with ``key`` once ``due`` (ms) has passed."""

    def cancel_timer(self, due: int, key: bytes) -> None: ...

    def timers(self) -> Iterator[tuple[int, bytes]]:
        """All committed timers, earliest first: (due, key)."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Stage an output of the transaction; partition None: murmur2 of the key."""

    def dead_letter(self, record: Record, reason: str, detail: str) -> None:
        """Stage the record for ``agent.dead-letters`` with the contract's headers."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Called once the transaction is committed and the store written (step 5)."""

    def hold(self) -> Hold:
        """Keep the record being processed unfinished (only inside `Processor.process`)."""


class Processor(Protocol):
    """What runs on the runtime. All methods but `drained` are called from the cycle's thread."""

    name: str  # "engine", "worker.tools": group, transactional id and data directory
    sources: tuple[str, ...]  # co-partitioned inputs, `forwarded` included
    forwarded: str | None  # the private topic records travel on to their owner
    changelog: str
    global_topics: tuple[str, ...]  # compacted topics read to their end before anything is live

    @property
    def accepting(self) -> bool:
        """False: records are left where they are. Looked at in every cycle."""

    def encode(self, key: bytes, value: Any) -> bytes:
        """The stored form of a value; called inside the savepoint, so it may raise."""

    def decode(self, key: bytes, raw: bytes) -> Any: ...

    def read(self, record: Record) -> Message | None:
        """Decode; None drops the record. Raises `Undecodable`."""

    def process(self, ctx: Context, message: Message) -> None: ...

    def timer(self, ctx: Context, key: bytes, due: int) -> None:
        """The timer is already deleted in this savepoint."""

    def timer_delay(self, key: bytes, due: int, live_since: int) -> int:
        """ms a due timer of this kind still waits after its partition went live (0: none)."""

    def completed(self, ctx: Context, event: Any) -> None:
        """An event posted to the assignment by work started after a commit."""

    def live(self, ctx: Context) -> None:
        """The partition was restored and is about to take records."""

    def revoked(self, assignment: Assignment) -> None:
        """The partition is being given up: start nothing more for it."""

    def failed(
        self,
        ctx: Context,
        message: Message | None,
        timer: bytes | None,
        error: Exception,
        event: Any = None,
    ) -> None:
        """A call above raised and its savepoint was discarded: quarantine, park, or dead-letter.

        Given is what it was called with: a message, a timer's key, a posted event, or none in `live`.
        """

    def global_record(self, record: Record) -> None:
        """A record of a global topic; value None deletes its key."""
