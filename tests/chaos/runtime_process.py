"""Processes for chaos tests to kill and to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.kafka.world import World


class Process:
    """A script of tests/kafka as a process of its own."""

    def __init__(self, script: str, instance: str, world: World, directory: Path) -> None:
        self._arguments = [sys.executable, str(Path(__file__).parents[1] / "kafka" / script)]
        self._arguments += [world.bootstrap, world.prefix, instance, str(directory)]
        self._log = directory / f"{instance}.log"
        self.start()

    def start(self) -> None:
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stderr=log)

    def kill(self) -> None:
        """Also what was stopped."""
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(20)

    def joined(self) -> bool:
        """Since it was last started."""
        return b"assigned" in self._log.read_bytes()[self._log_start :]

    def signal(self, which: signal.Signals) -> None:
        self._process.send_signal(which)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def running(self) -> bool:
        return self._process.poll() is None
