"""Topics: partitions of records and markers, and what of them a reader may see.

Theory of operation. An entry is a record or a transaction's marker; both take an offset. A record
of a transaction is OPEN until the marker of its partition is written, then COMMITTED or ABORTED.
`Log.stable` is the last stable offset: the first record of the oldest open transaction, or the
end. Compaction and `delete_before` make holes; offsets are never given out twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from operator import attrgetter

from perdure.streams.runtime.partitioner import murmur2
from perdure.streams.runtime.processor import Headers, Record

from .errors import Refused, TooLargeForTopic

OPEN, COMMITTED, ABORTED, MARKER = range(4)

OVERHEAD = 70
"""Bytes a record batch of one takes on top of key, value and headers."""

_offset = attrgetter("offset")


class Entry:
    __slots__ = ("offset", "record", "state")

    def __init__(self, offset: int, record: Record | None, state: int) -> None:
        self.offset = offset
        self.record = record
        self.state = state


class Log:
    """One partition."""

    __slots__ = ("deleted", "end", "entries", "open", "partition", "start", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.open: dict[Hashable, int] = {}  # transaction: its first offset here; oldest first
        self.deleted = False

    @property
    def stable(self) -> int:
        for first in self.open.values():
            return first
        return self.end

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        transaction: Hashable = None,
    ) -> Entry:
        offset = self.end
        self.end = offset + 1
        record = Record(self.topic, self.partition, offset, timestamp, key, value, headers)
        state = COMMITTED
        if transaction is not None:
            state = OPEN
            if transaction not in self.open:
                self.open[transaction] = offset
        entry = Entry(offset, record, state)
        self.entries.append(entry)
        return entry

    def mark(self, transaction: Hashable, entries: Sequence[Entry], state: int) -> None:
        """The transaction's marker: its records here are committed or aborted from now on."""
        for entry in entries:
            entry.state = state
        self.open.pop(transaction, None)
        self.entries.append(Entry(self.end, None, MARKER))
        self.end += 1

    def index(self, offset: int) -> int:
        """Of the first entry at or above ``offset``."""
        entries = self.entries
        if not entries:
            return 0
        first = entries[0].offset
        if entries[-1].offset - first == len(entries) - 1:  # no holes
            return min(max(offset - first, 0), len(entries))
        return bisect_left(entries, offset, key=_offset)

    def committed_from(self, at: int, limit: int, found: list[Record]) -> int:
        """Add at most ``limit`` readable records; return the position after them. What nobody
        may read is passed with the record before it, or up to the last stable offset."""
        entries, stable = self.entries, self.stable
        i, n = self.index(at), len(entries)
        while i < n:
            entry = entries[i]
            if entry.offset >= stable:
                break
            if entry.state == COMMITTED:
                if limit <= 0:
                    return entry.offset
                limit -= 1
                assert entry.record is not None
                found.append(entry.record)
            i += 1
        return stable

    def delete_before(self, offset: int) -> None:
        self.entries = self.entries[self.index(offset) :]
        self.start = max(self.start, offset)

    def compact(self, *, tombstones: bool, markers: bool) -> None:
        """The newest value of each key stays; above the last stable offset all does."""
        stable = self.stable
        last: dict[bytes | None, int] = {}
        for entry in self.entries:
            if entry.offset < stable and entry.state == COMMITTED and entry.record is not None:
                last[entry.record.key] = entry.offset
        kept = []
        for entry in self.entries:
            if entry.offset >= stable:
                kept.append(entry)
            elif entry.state == MARKER:
                if not markers:
                    kept.append(entry)
            elif entry.state == COMMITTED and entry.record is not None:
                newest = last[entry.record.key] == entry.offset
                if newest and not (tombstones and entry.record.value is None):
                    kept.append(entry)
        self.entries = kept


class Topic:
    __slots__ = ("append_time", "compact", "id", "logs", "max_bytes", "name")

    def __init__(
        self,
        name: str,
        topic_id: str,
        partitions: int,
        *,
        compact: bool,
        append_time: bool,
        max_bytes: int,
    ) -> None:
        self.name = name
        self.id = topic_id
        self.compact = compact
        self.append_time = append_time
        self.max_bytes = max_bytes
        self.logs = [Log(name, p) for p in range(partitions)]

    def owner(self, key: bytes) -> int:
        return (murmur2(key) & 0x7FFFFFFF) % len(self.logs)

    def check(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Raises `Refused`."""
        if key is None and self.compact:
            raise Refused(f"{self.name}: a compacted topic takes no record without a key")
        if size(key, value, headers) > self.max_bytes:
            raise TooLargeForTopic(f"{self.name}: the record is larger than {self.max_bytes} bytes")


def size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    total = OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        total += len(name) + (len(content) if content else 0) + 4
    return total
