"""A partition's state as its inputs see it: savepoint -> cycle's overlay -> cache -> store.

`Overlay` owns what the current cycle has staged; it is written to the store only after the
transaction (step 4) and simply dropped when there is none. The cache holds committed values
only, so dropping the overlay is all there is to undo.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .store import INTERNAL, Store, after_prefix


class _Mark:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


DELETED: Any = _Mark("DELETED")
MISSING: Any = _Mark("MISSING")
_ABSENT_WEIGHT = 100
_MEMO = INTERNAL + b"memo/"  # derived values share the cache; no stored key begins so


class Cache:
    """Decoded committed values, least recently used dropped first; absence is cached too."""

    __slots__ = ("_bytes", "_limit", "_values")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._values: dict[bytes, tuple[Any, int]] = {}

    def get(self, key: bytes) -> Any:
        """MISSING if not cached; None if known to be absent."""
        entry = self._values.pop(key, None)
        if entry is None:
            return MISSING
        self._values[key] = entry
        return entry[0]

    def put(self, key: bytes, value: Any, weight: int) -> None:
        weight += _ABSENT_WEIGHT + len(key)
        old = self._values.pop(key, None)
        if old is not None:
            self._bytes -= old[1]
        self._values[key] = (value, weight)
        self._bytes += weight
        while self._bytes > self._limit and len(self._values) > 1:
            oldest = next(iter(self._values))
            self._bytes -= self._values.pop(oldest)[1]


class Overlay:
    """What one cycle staged for one partition. Encoded when merged, inside the savepoint."""

    __slots__ = ("_sorted", "earliest_timer", "memos", "raw", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.memos: dict[bytes, tuple[Any, int]] = {}  # derived values, with their weights
        self.raw: dict[bytes, bytes | None] = {}
        self.earliest_timer: int | None = None
        self._sorted: list[bytes] | None = None  # made by the first scan

    def merge(self, values: Mapping[bytes, Any], raw: Mapping[bytes, bytes | None]) -> None:
        if self._sorted is not None:
            for key in values:
                if key not in self.values:
                    insort(self._sorted, key)
        self.values.update(values)
        self.raw.update(raw)

    def keys_under(self, prefix: bytes, start: bytes) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self.values)
        bound = after_prefix(prefix)
        first = bisect_left(self._sorted, start)
        last = len(self._sorted) if bound is None else bisect_left(self._sorted, bound)
        return self._sorted[first:last]


class PartitionState:
    """Reads through the layers below a savepoint."""

    __slots__ = ("_cache", "_decode", "overlay", "store")

    def __init__(
        self, store: Store, decode: Callable[[bytes, bytes], Any], cache_bytes: int
    ) -> None:
        self.store = store
        self.overlay = Overlay()
        self._cache = Cache(cache_bytes)
        self._decode = decode

    def get(self, key: bytes) -> Any:
        value = self.overlay.values.get(key, MISSING)
        if value is not MISSING:
            return None if value is DELETED else value
        value = self._cache.get(key)
        if value is MISSING:
            raw = self.store.get(key)
            value = None if raw is None else self._decode(key, raw)
            self._cache.put(key, value, 0 if raw is None else len(raw))
        return value

    def scan(
        self, prefix: bytes, start: bytes | None, staged: Mapping[bytes, Any]
    ) -> Iterator[tuple[bytes, Any]]:
        """``staged``: the savepoint's own changes, over the overlay's."""
        first = prefix if start is None or start < prefix else start
        changed = self.overlay.keys_under(prefix, first)
        own = [k for k in staged if k >= first and k.startswith(prefix)]
        if own:
            changed = sorted({*changed, *own})
        values = [staged[k] if k in staged else self.overlay.values[k] for k in changed]
        return self._merged(self.store.scan(prefix, first), changed, values)

    def _merged(
        self, stored: Iterator[tuple[bytes, bytes]], changed: list[bytes], values: list[Any]
    ) -> Iterator[tuple[bytes, Any]]:
        i, n = 0, len(changed)
        for key, raw in stored:
            if key.startswith(INTERNAL):
                continue
            while i < n and changed[i] < key:
                if values[i] is not DELETED:
                    yield changed[i], values[i]
                i += 1
            if i < n and changed[i] == key:
                if values[i] is not DELETED:
                    yield key, values[i]
                i += 1
                continue
            value = self._cache.get(key)
            if value is MISSING:
                value = self._decode(key, raw)
                self._cache.put(key, value, len(raw))
            yield key, value
        for j in range(i, n):
            if values[j] is not DELETED:
                yield changed[j], values[j]

    def committed(self) -> None:
        """The overlay has been written to the store: its values are the committed ones now."""
        raw = self.overlay.raw
        for key, value in self.overlay.values.items():
            encoded = raw.get(key)
            self._cache.put(
                key, None if value is DELETED else value, 0 if encoded is None else len(encoded)
            )
        for key, (value, weight) in self.overlay.memos.items():
            self._cache.put(_MEMO + key, value, weight)
        self.overlay = Overlay()

    def recall(self, key: bytes) -> Any | None:
        memo = self.overlay.memos.get(key)
        if memo is not None:
            return memo[0]
        value = self._cache.get(_MEMO + key)
        return None if value is MISSING else value

    def drop_overlay(self) -> None:
        self.overlay = Overlay()
