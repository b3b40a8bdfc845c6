"""One process per identity: the data directory's lock, taken before the first Kafka call.

An flock, so a killed process leaves nothing to clean up: the file stays, the lock does not.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import DirectoryLocked


class DirectoryLock:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "lock"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise DirectoryLocked(
                f"{directory} is in use by process {holder}; give this process another instance_id "
                "or data directory, or stop the other one"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._file)
