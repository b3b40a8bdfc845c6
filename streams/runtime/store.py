"""The store's port: one partition's state, a cache of its changelog and never ahead of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

INTERNAL = b"\x00"
"""Keys that begin so are the runtime's own; processors never see or use them."""
OFFSETS_KEY = INTERNAL + b"offsets"
"""The input offsets of the last transaction; travels on the changelog."""
REBUILDING_KEY = INTERNAL + b"rebuilding"
"""On the changelog while its state is made anew: a partition that has it can't be taken."""
META_KEY = INTERNAL + b"meta"
"""Local only: where in which changelog this store stands."""


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """Which truth the store is a copy of."""

    offset: int  # the next changelog offset to read
    topic_id: str  # of the changelog: a topic made anew under the same name is another truth
    written_at: int  # ms: past half of delete.retention.ms deletions may be missed


class Store(Protocol):
    """Raw bytes by key, in byte order. Used by one thread."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Pairs under ``prefix`` from ``start`` on, as they were when the scan began."""

    def write(self, changes: Mapping[bytes, bytes | None], meta: StoreMeta) -> None:
        """All of it or nothing, also when the process dies; None deletes."""

    def meta(self) -> StoreMeta | None: ...

    def close(self) -> None: ...


class Stores(Protocol):
    """Opens partitions' stores. Raises `StoreBusy`, `StoreCorrupt`, `StoreFailed`."""

    def open(self, partition: int) -> Store: ...

    def wipe(self, partition: int) -> None:
        """Remove the store; the partition's must be closed."""


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key beyond all keys with ``prefix``; None: there is no bound."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return None
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
