"""Calls that wait for a place: how long.

None waits past its command's time, and none for threads that may never end: a place is not all that
a waiting call holds. Its record is unfinished, and after a thousand of those a partition stands still
for every tool.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable

from .call import QUEUED, Call
from .errors import Failure, expired
from .executor import Executor
from .gate import Gate, Waiter

LOOK_SECONDS = 1.0
"""Those that wait are looked at so often; sooner where one's time is over sooner."""


class Waiting:
    """Looks after those who wait at the gate. ``hung`` says why one would wait in vain; ``refuse`` is
    told, on the loop, of each call that waits no more, and has no place and will get none."""

    def __init__(
        self,
        gate: Gate,
        executor: Executor,
        clock: Callable[[], int],
        hung: Callable[[Call], Failure | None],
        refuse: Callable[[Call, Failure], None],
    ) -> None:
        self._gate = gate
        self._executor = executor
        self._clock = clock
        self._hung = hung
        self._refuse = refuse
        self._lock = threading.Lock()
        self._calls: dict[Waiter, Call] = {}
        self._watched = False

    def enter(self, call: Call, placed: Callable[[Call], bool]) -> bool:
        """True: it has its place. False: ``placed`` is told once it has, or ``refuse`` is."""
        waiter = functools.partial(placed, call)
        if self._gate.enter(call.command.target, waiter):
            return True
        with self._lock:
            self._calls[waiter] = call
            watched, self._watched = self._watched, True
        if not watched:
            self._executor.spawn(self._watch)
        return False

    async def _watch(self) -> None:
        while True:
            seconds = self._look()
            with self._lock:
                if not self._calls:
                    self._watched = False
                    return
            await asyncio.sleep(seconds)

    def _look(self) -> float:
        """Seconds until the next look."""
        now, left = self._clock(), LOOK_SECONDS * 1000
        with self._lock:
            waiting = list(self._calls.items())
        for waiter, call in waiting:
            why = None
            if call.phase == QUEUED and not call.dropped:
                late = call.command.expires_at - now
                why = self._hung(call) if late > 0 else expired()
                if why is None:
                    left = min(left, late)
                    continue
            with self._lock:
                del self._calls[waiter]
            if why is not None and self._gate.give_up(call.command.target, waiter):
                self._refuse(call, why)
        return max(left / 1000, 0.001)
