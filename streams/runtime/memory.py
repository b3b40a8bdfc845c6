"""The store in memory: for tests, the simulation, and processors with next to no state."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from .store import StoreMeta


class MemoryStore:
    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._meta: StoreMeta | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        first = prefix if start is None or start < prefix else start
        found = []
        for i in range(bisect_left(self._keys, first), len(self._keys)):
            key = self._keys[i]
            if not key.startswith(prefix):
                break
            found.append((key, self._values[key]))
        return iter(found)

    def write(self, changes: Mapping[bytes, bytes | None], meta: StoreMeta) -> None:
        for key, value in changes.items():
            known = key in self._values
            if value is not None:
                self._values[key] = value
                if not known:
                    insort(self._keys, key)
            elif known:
                del self._values[key]
                del self._keys[bisect_left(self._keys, key)]
        self._meta = meta

    def meta(self) -> StoreMeta | None:
        return self._meta

    def close(self) -> None:
        """Nothing to let go; what was written stays for the next `MemoryStores.open`."""


class MemoryStores:
    """Keeps the stores by partition, as a disk would."""

    def __init__(self) -> None:
        self._stores: dict[int, MemoryStore] = {}

    def open(self, partition: int) -> MemoryStore:
        return self._stores.setdefault(partition, MemoryStore())

    def wipe(self, partition: int) -> None:
        self._stores.pop(partition, None)
