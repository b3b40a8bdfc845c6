"""The broker's data directory: who holds it, which cluster lies in it, whether it can be used.

What lies in it::

    owner.lock     held by the owner from before anything else until it ends
    broker.lock    held by keeper and broker, until both are gone (see keeper.py)
    cluster.json   the Kafka version and cluster id the data belongs to; the last port and pid
    logs/          Kafka's own: records and cluster metadata
    broker.log     what Kafka says, rotated at 5 MB; broker.out: what Java says
    server.properties, log4j2.properties    written anew at each start
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.streams.cluster.errors import DataDirUnusable, DiskFull, ForeignData, InUse

OWNER_SECONDS = 1
"""An owner killed a moment ago holds its lock until the kernel is done with it."""
TAKEOVER_SECONDS = 15
"""How long a start waits for the broker of an owner that has just died."""
LEAST_FREE_BYTES = 100_000_000
POLL_SECONDS = 0.02


class DataDir:
    """One directory. The only one that writes `cluster.json` and holds `owner.lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def file(self, name: str) -> Path:
        return self.path / name

    def take(self) -> None:
        """Makes this process the owner. Raises `InUse`, `DataDirUnusable` or `DiskFull`."""
        if self._lock is not None:
            return
        lock = self._open("owner.lock")
        if not _locked(lock, OWNER_SECONDS):
            found = os.pread(lock, 20, 0)
            os.close(lock)
            holder = int(found) if found.isdigit() else None
            raise InUse(
                f"{self.path} is in use by another process"
                f"{f' (pid {holder})' if holder else ''}: "
                "stop that one, or give this one another --data-dir",
                holder,
            )
        self._lock = lock
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE_BYTES:
            raise self.full(f"{free // 1_000_000} MB are left")

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def await_previous_broker(self, progress: Callable[[str], None]) -> None:
        """The owner before us may have been killed a moment ago; its broker is on its way out."""
        lock = self._open("broker.lock")
        try:
            if _locked(lock, 0):
                return
            pid = self.facts().get("pid")
            progress(f"waiting for the previous broker (pid {pid}) to end")
            if not _locked(lock, TAKEOVER_SECONDS):
                raise InUse(
                    f"the broker of an earlier process still runs on {self.path} (pid {pid}) "
                    f"and does not end: end it with `kill -9 {pid}`",
                    pid,
                )
        finally:
            os.close(lock)

    def is_new(self, kafka: str) -> bool:
        """Whether there is no cluster in it yet. Raises `ForeignData` for one not ours to open."""
        known, cluster_id = self.facts(), self._cluster_id()
        if cluster_id is None and not known:
            return True
        if cluster_id is None or (known and known.get("cluster_id") != cluster_id):
            raise ForeignData(
                f"{self.file('logs')} holds cluster {cluster_id or '(none)'}, but {self.path} "
                f"belongs to {known.get('cluster_id')}: put the right directory back, or start "
                "with an empty --data-dir"
            )
        if _version(known.get("kafka", "0")) > _version(kafka):
            raise ForeignData(
                f"{self.path} was written by Kafka {known['kafka']}, this is {kafka}, which can't "
                "read it: upgrade perdure, or start with another --data-dir"
            )
        self.note(kafka=kafka, cluster_id=cluster_id)
        return False

    def facts(self) -> dict[str, Any]:
        try:
            found = json.loads(self.file("cluster.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, **facts: object) -> None:
        self.write(".cluster.json", json.dumps(self.facts() | facts))
        os.replace(self.file(".cluster.json"), self.file("cluster.json"))

    def write(self, name: str, text: str) -> None:
        try:
            self.file(name).write_text(text)
        except OSError as error:
            raise self._unusable(error) from error

    def full(self, what: str) -> DiskFull:
        return DiskFull(
            f"the disk of {self.path} is full ({what}): free some space, or choose another "
            "--data-dir"
        )

    def _open(self, name: str) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return os.open(self.file(name), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> DataDirUnusable | DiskFull:
        if error.errno == errno.ENOSPC:
            return self.full("nothing can be written")
        return DataDirUnusable(
            f"can't use {self.path} as data directory: {error.strerror}; give a directory "
            "that can be written with --data-dir"
        )

    def _cluster_id(self) -> str | None:
        """As Kafka noted it."""
        try:
            lines = self.file("logs").joinpath("meta.properties").read_text().splitlines()
        except OSError:
            return None
        ids = (line.partition("=")[2] for line in lines if line.startswith("cluster.id="))
        return next(ids, None)


def _locked(file: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(POLL_SECONDS)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
