"""Time as a port: the simulation moves its own clock by hand."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in ms since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds; never goes back. For durations only."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for ``event`` at most so long; True if it is set."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)
