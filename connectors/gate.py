"""How many calls run at once: so many of one target, so many in all.

A slow tool fills its own share and queues behind itself; the rest stays for the others. All wait
while ``may_begin`` says so: the worker is offline.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

Waiter = Callable[[], bool]
"""Told that it has a place; False: not wanted any more."""


class Gate:
    """Counts places. Thread-safe; waiters are called outside its lock."""

    def __init__(
        self,
        in_all: int,
        per_target: int,
        own: Mapping[str, int] | None = None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._in_all = in_all
        self._per_target = per_target
        self._own = dict(own or {})
        self._may_begin = may_begin
        self._lock = threading.Lock()
        self._total = 0
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, OrderedDict[Waiter, None]] = {}

    def limit(self, target: str) -> int:
        """So many calls of the target run at once at most."""
        return min(self._own.get(target, self._per_target), self._in_all)

    def enter(self, target: str, waiter: Waiter) -> bool:
        """True: the place is taken. False: ``waiter`` is called once there is one."""
        with self._lock:
            inside = self._inside.get(target, 0)
            room = self._total < self._in_all and inside < self.limit(target)
            if room and self._may_begin():
                self._total += 1
                self._inside[target] = inside + 1
                return True
            self._waiting.setdefault(target, OrderedDict())[waiter] = None
            return False

    def give_up(self, target: str, waiter: Waiter) -> bool:
        """It waits no more. False: it has been told of its place, or is about to be."""
        with self._lock:
            waiters = self._waiting.get(target)
            if waiters is None or waiter not in waiters:
                return False
            del waiters[waiter]
            if not waiters:
                del self._waiting[target]
            return True

    def leave(self, target: str) -> None:
        """Give a place back, to the next who waits."""
        with self._lock:
            self._total -= 1
            self._inside[target] -= 1
        self.admit()

    def admit(self) -> None:
        """Give the places there are to those who wait."""
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while True:
            with self._lock:
                chosen = self._next()
                if chosen is None:
                    return
                target, waiter = chosen
                self._total += 1
                self._inside[target] = self._inside.get(target, 0) + 1
            if not waiter():
                with self._lock:
                    self._total -= 1
                    self._inside[target] -= 1

    def _next(self) -> tuple[str, Waiter] | None:
        """The first waiter of the targets in turn that has room."""
        if self._total >= self._in_all:
            return None
        for target, waiters in self._waiting.items():
            if self._inside.get(target, 0) < self.limit(target):
                if not self._may_begin():
                    return None
                waiter, _ = waiters.popitem(last=False)
                del self._waiting[target]
                if waiters:
                    self._waiting[target] = waiters  # now the last in turn
                return target, waiter
        return None

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        with self._lock:
            return sum(len(waiters) for waiters in self._waiting.values())

    @property
    def inside(self) -> int:
        """Calls that run now."""
        return self._total
