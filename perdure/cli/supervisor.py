"""``perdure up``: the embedded Kafka and every role, each a process of its own, kept alive."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.settings import Settings

from . import parent
from .console import say

LONGEST_WAIT_SECONDS: Final = 2.0
"""A role that keeps dying is started again at most this much later, and never given up."""
STABLE_SECONDS: Final = 10.0
"""A role that lived so long starts again at once when it dies."""
READY_SECONDS: Final = 60.0


@dataclass
class Role:
    """One child process: what it is started with, and how it has been doing."""

    name: str
    arguments: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    deaths: int = 0
    again_at: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    awaited: bool = True
    """Whether the deployment is ready only when this role is."""

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def start(self) -> None:
        """A new process; it dies with us."""
        environment = {**os.environ, **self.environment, parent.VARIABLE: str(os.getpid())}
        command = [
            sys.executable,
            "-m",
            "perdure",
            *self.arguments,
            "--metrics-port",
            str(self.port),
        ]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.started_at = time.monotonic()

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Supervisor:
    """Starts roles, starts dead ones again and says so, stops them in order."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.roles: list[Role] = []
        self._stopping = False

    def add(
        self,
        name: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        awaited: bool = True,
    ) -> Role:
        """A role under this deployment's settings, started at once."""
        made = self.settings
        common = [
            "--bootstrap-servers",
            made.bootstrap_servers or "",
            "--data-dir",
            str(made.data_dir.absolute()),
        ]
        common += ["--topic-prefix", made.topic_prefix, "--instance-id", self._identity(name)]
        common += ["--partitions", str(made.partitions), "--log-level", made.log_level]
        common += ["--log-format", made.log_format]
        passed = {"PERDURE_DRAIN_SECONDS": str(made.drain_seconds), **(environment or {})}
        role = Role(
            name, [name, *common, *arguments], free_port(), environment=passed, awaited=awaited
        )
        role.start()
        self.roles.append(role)
        return role

    def _identity(self, name: str) -> str:
        before = sum(role.name == name for role in self.roles)
        return (
            self.settings.instance_id if not before else f"{self.settings.instance_id}-{before + 1}"
        )

    def pids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for role in self.roles:
            if role.pid is not None:
                found.setdefault(role.name, []).append(role.pid)
        return found

    def look(self) -> None:
        """Notice dead roles and start them again."""
        now = time.monotonic()
        for role in self.roles:
            if role.process is None:
                if now >= role.again_at:
                    role.port = free_port()  # somebody else may have taken the old one
                    role.start()
                    say(f"perdure up: {role.name} is started again (pid {role.pid})")
                continue
            code = role.process.poll()
            if code is None:
                continue
            role.deaths = 0 if now - role.started_at > STABLE_SECONDS else role.deaths + 1
            wait = (
                0.0 if role.deaths < 2 else min(0.25 * 2 ** (role.deaths - 2), LONGEST_WAIT_SECONDS)
            )
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            say(
                f"perdure up: {role.name} (pid {role.process.pid}) {how}; it starts again"
                + (f" in {wait:g} s" if wait else "")
            )
            role.process = None
            role.again_at = now + wait

    def wait_ready(self, check: Callable[[], None], timeout: float = READY_SECONDS) -> bool:
        """Until every role takes work; False after ``timeout`` s. ``check`` may raise."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            check()
            self.look()
            waited = [role for role in self.roles if role.awaited]
            if all(role.process is not None and role.ready() for role in waited):
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        """SIGTERM to all, so that they end together; SIGKILL to what has not within the drain."""
        if self._stopping:
            return
        self._stopping = True
        living = [
            role for role in self.roles if role.process is not None and role.process.poll() is None
        ]
        for role in living:
            assert role.process is not None
            role.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.settings.drain_seconds + 10
        for role in living:
            assert role.process is not None
            try:
                role.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                say(f"perdure up: {role.name} did not stop in time and is killed")
                role.process.kill()
                role.process.wait()


def note(path: Path, what: dict[str, Any]) -> None:
    """Write ``up.json`` so that other commands find this deployment."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(what))
    beside.replace(path)


def strike(path: Path, what: dict[str, Any]) -> None:
    """Take a note away again, unless another deployment has written its own since."""
    with suppress(OSError, ValueError):
        if json.loads(path.read_text()) == what:
            path.unlink()
