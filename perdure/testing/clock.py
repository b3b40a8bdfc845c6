"""Simulated time: one true time, moved only by the scheduler, and a clock for each process.

A process's wall clock has a skew that may jump; its monotonic clock never does. True time is in
whole microseconds, so that adding it up in another order gives the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

EPOCH_MS: Final = 1_800_000_000_000
"""What a wall clock without skew shows when the simulation begins."""


class TrueTime:
    """The only owner of the time."""

    def __init__(self) -> None:
        self.us = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.us // 1000

    def monotonic(self) -> float:
        return self.us / 1_000_000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        raise RuntimeError("only a process may wait")


class ProcessClock:
    """Implements the runtime's `Clock`. ``waiting`` lets the world go on meanwhile."""

    def __init__(
        self, time: TrueTime, waiting: Callable[[threading.Event, float], bool], skew_ms: int = 0
    ) -> None:
        self._time = time
        self._waiting = waiting
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._time.us // 1000 + self.skew_ms

    def monotonic(self) -> float:
        return self._time.us / 1_000_000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return self._waiting(event, seconds)
