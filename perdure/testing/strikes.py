"""What can be done to a process that passes a point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Crash:
    """kill -9; the supervisor starts the process again after so many seconds."""

    restart_after: float = 0.5


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP in the middle of the call, SIGCONT after so many seconds. Short ones are what a
    scheduler does to any process."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Yield:
    """The thread that passes stands still for so long while the process's other threads go on; then,
    if ``crash``, kill -9."""

    seconds: float = 0.01
    crash: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """The call raises this instead (what the port may raise)."""

    error: Callable[[], Exception]


@dataclass(frozen=True, slots=True)
class Outage:
    """The broker is down from this moment on for so many seconds."""

    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class LateCommit:
    """kill -9 with the commit on the wire: it arrives after so many seconds."""

    seconds: float = 1.0
    restart_after: float = 0.5


Strike = Crash | Stop | Yield | Fail | Outage | LateCommit


@dataclass(slots=True)
class Armed:
    """A strike that waits for its point; of ``process`` None any process will do."""

    what: Strike
    process: str | None
    left: int
