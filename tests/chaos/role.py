"""The product's roles as processes of their own, for chaos tests to kill and to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kafka.world import until

ROOT = Path(__file__).parents[2]
CRASHING = Path(__file__).with_name("crashing.py")

# A role ends with the *thread* that started it (the kernel's PDEATHSIG): one that lives as long
# as the tests do, so that nothing is left behind when they are killed.
_STARTER = ThreadPoolExecutor(1, "role starter")


class Role:
    """One ``perdure engine`` or ``perdure worker``. ``plan``: through `crashing.py`, with that file."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        plan: Path | None = None,
    ) -> None:
        self.name = arguments[0]
        self.plan = plan
        self.log = log
        self._arguments = list(arguments)
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.starts = 0

    def start(self) -> Role:
        command = [sys.executable]
        command += ["-m", "perdure"] if self.plan is None else [str(CRASHING), str(self.plan)]
        environment = {**self._environment, "PERDURE_SUPERVISOR_PID": str(os.getpid())}
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:

            def start() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    command + self._arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=environment,
                )  # fmt: skip

            self._process = _STARTER.submit(start).result(20)
        self.starts += 1
        self._stopped = False
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def kill(self) -> None:
        """kill -9; also what was stopped, and what is dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def ended(self, seconds: float = 30) -> int:
        """Wait until it ends by itself; the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {seconds} s:\n{self.tail()}"
            ) from None

    def said(self) -> str:
        """What it logged since it was last started."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def tail(self, lines: int = 25) -> str:
        told = (
            self.log.read_text(errors="replace").splitlines()[-lines:] if self.log.exists() else []
        )
        return f"--- {self.log.name}, the last lines\n" + "\n".join(told)

    def live(self, partitions: int = 2, seconds: float = 40) -> None:
        """Wait until its processor has that many partitions (its log says so)."""
        mark = f"{'engine' if self.name == 'engine' else 'worker.tools'}: partition "

        def there() -> bool:
            assert self.running(), f"{self.name} ended with {self.exit_code}:\n{self.tail()}"
            lines = self.said().splitlines()
            return sum(mark in line and " is live at " in line for line in lines) >= partitions

        until(there, f"{self.name} is live", seconds)

    def until_said(self, text: str, seconds: float = 30) -> None:
        def there() -> bool:
            assert self.running(), f"{self.name} ended with {self.exit_code}:\n{self.tail()}"
            return text in self.said()

        until(there, f"{self.name} says {text!r}", seconds)
