"""How far a long scan is, told on stderr: whoever waits sees that something happens."""

from __future__ import annotations

import time
from collections.abc import Callable

from .console import say

_EVERY_SECONDS = 2.0
_LOOK = 1_000
"""Events between two looks at the clock."""


class Progress:
    """Counts what was read. Says nothing of a scan that ends within two seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.read = 0
        self._clock = clock
        self._due = clock() + _EVERY_SECONDS

    def step(self) -> None:
        self.read += 1
        if self.read % _LOOK == 0 and self._clock() >= self._due:
            self._due = self._clock() + _EVERY_SECONDS
            say(f"... {self.read} events read")
