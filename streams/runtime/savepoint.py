"""One input's changes: merged into the cycle when the processor returned, else forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .dead_letters import dead_letter
from .errors import TooLarge
from .offsets import HeldRecord
from .overlay import DELETED, MISSING
from .processor import Assignment, Headers, Hold, Record
from .store import INTERNAL
from .timers import PREFIX as TIMERS
from .timers import parse_timer, timer_key

if TYPE_CHECKING:
    from .assignment import OwnedPartition
    from .work import Work

MAX_RECORD_BYTES = 1_000_000
_TIMER_SET = b"\x01"  # not empty: clients differ on whether an empty value is a deletion

Output = tuple[str, bytes | None, bytes | None, Headers, "int | None"]


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += len(name) + (len(content) if content else 0)
    return size


class Savepoint:
    """The `Context` of one input."""

    __slots__ = (
        "_actions",
        "_buried",
        "_encode",
        "_holds",
        "_memos",
        "_outputs",
        "_own",
        "_record",
        "_size",
        "_timer",
        "_timers",
        "_values",
        "assignment",
        "now",
        "partition",
        "partitions",
    )

    def __init__(
        self, own: OwnedPartition, encode: Callable[[bytes, Any], bytes], record: Record | None
    ) -> None:
        self.assignment: Assignment = own
        self.partition = own.partition
        self.partitions = own.partitions
        self.now = own.now
        self._own = own
        self._encode = encode
        self._record = record
        self._values: dict[bytes, Any] = {}
        self._memos: dict[bytes, tuple[Any, int]] | None = None
        self._timers: dict[bytes, bytes | None] | None = None
        self._timer: int | None = None
        self._outputs: list[Output] = []
        self._actions: list[Callable[[], None]] = []
        self._holds: list[HeldRecord] = []
        self._buried: list[str] | None = None
        self._size = 0

    @property
    def taken_before(self) -> bool:
        own = self._own
        topic, offset = own.taking
        return self._record is not None and offset < own.taken_until.get(topic, 0)

    def get(self, key: bytes) -> Any | None:
        value = self._values.get(key, MISSING)
        if value is MISSING:
            return self._own.state.get(key)
        return None if value is DELETED else value

    def put(self, key: bytes, value: Any) -> None:
        if key.startswith((INTERNAL, TIMERS)):
            raise ValueError(f"the key {key!r} is the runtime's own")
        self._values[key] = DELETED if value is None else value

    def delete(self, key: bytes) -> None:
        self.put(key, None)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        return self._own.state.scan(prefix, start, self._values)

    def recall(self, key: bytes) -> Any | None:
        memo = None if self._memos is None else self._memos.get(key)
        return self._own.state.recall(key) if memo is None else memo[0]

    def remember(self, key: bytes, value: Any | None, weight: int = 0) -> None:
        if self._memos is None:
            self._memos = {}
        self._memos[key] = (value, weight)

    def set_timer(self, due: int, key: bytes) -> None:
        self._stage_timer(timer_key(due, key), _TIMER_SET)
        if self._timer is None or due < self._timer:
            self._timer = max(due, 0)

    def cancel_timer(self, due: int, key: bytes) -> None:
        self._stage_timer(timer_key(due, key), None)

    def timers(self) -> Iterator[tuple[int, bytes]]:
        for stored, _ in self._own.state.store.scan(TIMERS, TIMERS):
            yield parse_timer(stored)

    def _stage_timer(self, key: bytes, raw: bytes | None) -> None:
        if self._timers is None:
            self._timers = {}
        self._timers[key] = raw

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        size = record_bytes(key, value, headers)
        if size > MAX_RECORD_BYTES:
            raise TooLarge(f"a record for {topic} has {size:,} bytes; {MAX_RECORD_BYTES:,} fit")
        self._size += size
        self._outputs.append((topic, key, value, headers, partition))

    def send_as_it_came(self, output: Output) -> None:
        """A forwarded record or dead letter: the inbound limit counts, not ours."""
        self._size += record_bytes(output[1], output[2], output[3])
        self._outputs.append(output)

    def dead_letter(self, record: Record, reason: str, detail: str) -> None:
        self.send_as_it_came(dead_letter(record, reason, detail))
        self._buried = [*(self._buried or ()), reason]

    def after_commit(self, action: Callable[[], None]) -> None:
        self._actions.append(action)

    def hold(self) -> Hold:
        if self._record is None:
            raise RuntimeError("hold() is for the record in process(): there is none here")
        # The position on the input, not that of a forwarded record's origin.
        topic, offset = self._own.taking
        held = HeldRecord(topic, offset, self._own.finished)
        self._holds.append(held)
        return held

    def merge(self, work: Work) -> None:
        """Encodes first: what can't be stored raises here, and nothing has been merged."""
        own = self._own
        raw: dict[bytes, bytes | None] = {}
        size = self._size
        encode = self._encode
        for key, value in self._values.items():
            if value is DELETED:
                raw[key] = None
                size += len(key)
                continue
            encoded = raw[key] = encode(key, value)
            weight = len(key) + len(encoded)
            if weight > MAX_RECORD_BYTES:
                raise TooLarge(
                    f"the value of {key[:80]!r} has {weight:,} bytes; {MAX_RECORD_BYTES:,} fit"
                )
            size += weight
        overlay = own.state.overlay
        if self._timers is not None:
            timers = self._timers
            raw.update(timers)
            self._values.update({k: DELETED if v is None else v for k, v in timers.items()})
            if self._timer is not None and (
                overlay.earliest_timer is None or self._timer < overlay.earliest_timer
            ):
                overlay.earliest_timer = self._timer
        if raw:
            overlay.merge(self._values, raw)
        if self._memos is not None:
            overlay.memos.update(self._memos)
        for held in self._holds:
            own.offsets[held.topic].hold(held)
        if raw or self._outputs:
            work.staged[own] = None
        work.outputs += self._outputs
        work.actions += self._actions
        work.size += size
        for reason in self._buried or ():
            work.buried[reason] = work.buried.get(reason, 0) + 1
