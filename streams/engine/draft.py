"""A savepoint within a savepoint: one of several records that are processed together may raise.

The runtime's savepoint is of one input. A release processes all that was parked in that of its
request; each record has a draft of its own there, which is kept only when its processing returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from perdure.streams.runtime.errors import TooLarge
from perdure.streams.runtime.processor import Assignment, Context, Headers, Hold, Record
from perdure.streams.runtime.savepoint import MAX_RECORD_BYTES, record_bytes


class Draft:
    """The `Context` of one record. What it would change is noted, and done by `keep`."""

    def __init__(self, ctx: Context, encode: Callable[[bytes, Any], bytes]) -> None:
        self.partition = ctx.partition
        self.partitions = ctx.partitions
        self.now = ctx.now
        self.assignment: Assignment = ctx.assignment
        self._ctx = ctx
        self._encode = encode
        self._values: dict[bytes, Any | None] = {}
        self._memos: dict[bytes, Any | None] = {}
        self._noted: list[Callable[[], None]] = []

    def keep(self) -> None:
        """Into the savepoint. Raises before anything is, where a value can't be stored."""
        for key, value in self._values.items():
            if value is not None and len(self._encode(key, value)) > MAX_RECORD_BYTES:
                raise TooLarge(f"the value of {key[:80]!r} does not fit a record")
        for key, value in self._values.items():
            self._ctx.put(key, value)
        for step in self._noted:
            step()

    @property
    def taken_before(self) -> bool:
        return self._ctx.taken_before

    def get(self, key: bytes) -> Any | None:
        return self._values[key] if key in self._values else self._ctx.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        self._values[key] = None

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        first = prefix if start is None else max(prefix, start)
        found = dict(self._ctx.scan(prefix, start))
        found.update(
            (key, value)
            for key, value in self._values.items()
            if key.startswith(prefix) and key >= first
        )
        for key, value in sorted(found.items(), key=itemgetter(0)):
            if value is not None:
                yield key, value

    def recall(self, key: bytes) -> Any | None:
        return self._memos[key] if key in self._memos else self._ctx.recall(key)

    def remember(self, key: bytes, value: Any | None, weight: int = 0) -> None:
        self._memos[key] = value
        self._noted.append(partial(self._ctx.remember, key, value, weight))

    def set_timer(self, due: int, key: bytes) -> None:
        self._noted.append(partial(self._ctx.set_timer, due, key))

    def cancel_timer(self, due: int, key: bytes) -> None:
        self._noted.append(partial(self._ctx.cancel_timer, due, key))

    def timers(self) -> Iterator[tuple[int, bytes]]:
        return self._ctx.timers()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        if record_bytes(key, value, headers) > MAX_RECORD_BYTES:
            raise TooLarge(f"what is to be sent to {topic} does not fit a record")
        self._noted.append(partial(self._ctx.send, topic, key, value, headers, partition))

    def dead_letter(self, record: Record, reason: str, detail: str) -> None:
        self._noted.append(partial(self._ctx.dead_letter, record, reason, detail))

    def after_commit(self, action: Callable[[], None]) -> None:
        self._noted.append(partial(self._ctx.after_commit, action))

    def hold(self) -> Hold:
        return self._ctx.hold()
