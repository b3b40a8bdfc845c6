"""A process's disk: survives the process, and can be lost, stale, corrupt or failing.

Has the crash semantics of the real store: a batch is there as a whole or not at all, and a kill
comes before it or after it. `Disk` owns the images; `SimStores` is what one process sees of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from perdure.streams.runtime.errors import StoreCorrupt, StoreFailed
from perdure.streams.runtime.memory import MemoryStore
from perdure.streams.runtime.store import StoreMeta

Point = Callable[[str, str], None]
"""Told of each call, "before" and "after"; may raise."""
_KEEP_EVERY: Final = 12
"""An older image is kept every so many writes, for a disk that comes back stale."""


class Disk:
    """Images by processor and partition."""

    def __init__(self) -> None:
        self.images: dict[tuple[str, int], MemoryStore] = {}
        self._older: dict[tuple[str, int], MemoryStore] = {}
        self._writes = 0
        self.corrupt: set[tuple[str, int]] = set()
        self.failing = False

    def written(self, where: tuple[str, int], image: MemoryStore) -> None:
        self._writes += 1
        if self._writes % _KEEP_EVERY == 1:
            self._older[where] = copied(image)

    def lose(self) -> None:
        """An empty disk."""
        self.images.clear()
        self._older.clear()
        self.corrupt.clear()

    def go_stale(self) -> None:
        """A disk restored from an older copy."""
        for where, older in self._older.items():
            self.images[where] = copied(older)

    def go_corrupt(self) -> None:
        """Every image there is can't be read any more."""
        self.corrupt.update(self.images)


def copied(image: MemoryStore) -> MemoryStore:
    """Another image with the same content."""
    meta = image.meta()
    made = MemoryStore()
    if meta is not None:
        made.write(dict(image.scan(b"")), meta)
    return made


class SimStores:
    """Implements the runtime's `Stores` for one processor of one process."""

    def __init__(self, disk: Disk, processor: str, point: Point) -> None:
        self._disk = disk
        self._processor = processor
        self._point = point

    def open(self, partition: int) -> SimStore:
        self._point("store.open", "before")
        where = (self._processor, partition)
        if self._disk.failing:
            raise StoreFailed("the disk fails")
        if where in self._disk.corrupt:
            raise StoreCorrupt("a checksum does not match")
        image = self._disk.images.setdefault(where, MemoryStore())
        return SimStore(self._disk, where, image, self._point)

    def wipe(self, partition: int) -> None:
        self._point("store.wipe", "before")
        self._disk.images.pop((self._processor, partition), None)
        self._disk.corrupt.discard((self._processor, partition))
        self._point("store.wipe", "after")


class SimStore:
    """Implements the runtime's `Store`."""

    def __init__(
        self, disk: Disk, where: tuple[str, int], image: MemoryStore, point: Point
    ) -> None:
        self._disk = disk
        self._where = where
        self._image = image
        self._point = point

    def _check(self) -> None:
        if self._disk.failing:
            raise StoreFailed("the disk fails")
        if self._where in self._disk.corrupt:
            raise StoreCorrupt("a checksum does not match")

    def get(self, key: bytes) -> bytes | None:
        self._check()
        return self._image.get(key)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        return self._image.scan(prefix, start)

    def write(self, changes: Mapping[bytes, bytes | None], meta: StoreMeta) -> None:
        self._point("store.write", "before")
        self._check()
        self._image.write(changes, meta)
        self._disk.written(self._where, self._image)
        self._point("store.write", "after")

    def meta(self) -> StoreMeta | None:
        self._check()
        return self._image.meta()

    def close(self) -> None:
        """Nothing to let go."""
