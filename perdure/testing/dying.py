"""A simulated world in which one process dies at a chosen point of its way.

A *victim* (the engine or the worker) is killed at the n-th point that it passes while the world is
`watching`. What would be the same death again is not counted: a port asked once more with nothing
changed in between, neither on a log nor outside, or one more record in an open transaction, which
its owner's death aborts as a whole. The killed process starts again, or another one takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from perdure.connectors.models.provider import Provider
from perdure.connectors.tool import Tool

from .executor import Killed
from .processes import Life
from .stepping import Bodies
from .world import World

RESTART_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """Who dies, what comes after it, and whether the first request lands late."""

    victim: str = "worker"
    """``worker`` or ``engine``."""
    then: str = "restart"
    """``restart``: it starts again. ``takeover``: it stays away, another process takes over."""
    late: bool = False
    """Only points with the first request still on its way; it lands late."""

    def __str__(self) -> str:
        return "/".join((self.victim, self.then, *(("late",) if self.late else ())))


class DyingWorld(World):
    """One engine, one worker, one death. Implements `network.Way`: requests go through it."""

    def __init__(
        self,
        tools: Sequence[Tool[..., Any]],
        queues: Sequence[str],
        case: Case,
        number: int,
        late_seconds: float,
        seed: int,
        models: dict[str, Callable[[], Provider]] | None = None,
    ) -> None:
        super().__init__(seed, partitions=1, queues=queues, calm_broker=True)
        self.case = case
        self.number = number
        self.late = late_seconds if case.late else None
        self.sent = 0
        self.on_the_way = 0
        self.watching = False
        """Points count."""
        self.died_at: str | None = None
        self._left = number
        self._known: set[tuple[str, str]] = set()
        self._known_when: tuple[int, ...] = ()
        self._in_transaction: set[tuple[str, str]] = set()
        self._body_points = 0
        self._queues = queues
        self._models = models
        self._bodies = Bodies(self._in_body)
        self._lives: list[Life] = []
        self._tools = [self._bodies.taken_apart(tool) for tool in tools]

    @property
    def world(self) -> World:
        return self

    def add_both(self) -> None:
        """The engine and the worker."""
        self.add_engine("engine-1")
        self._add_worker("worker-1")

    def _add_worker(self, name: str) -> None:
        self.add_worker(name, self._tools, queues=self._queues, models=self._models)

    # --- the death -----------------------------------------------------------------------------

    def _in_body(self, where: str, side: str) -> None:
        if self.running is not None:
            self.point(self.running, where, side)

    def point(self, life: Life, where: str, side: str) -> None:
        super().point(life, where, side)
        if not self.watching or not self.number:
            return
        if "." not in where or where.startswith("tool."):
            self._body_points += 1
        if life.name != f"{self.case.victim}-1":
            return
        if self.case.late and not self.on_the_way:
            return
        if self._again((where, side)):
            return
        self._left -= 1
        if self._left <= 0:
            self.watching = False
            self.died_at = f"{side} {where}" if side in ("before", "after") else f"{where} {side}"
            self.say(f"{life.name} is at: {self.died_at}")
            self._kill(life)

    def _again(self, at: tuple[str, str]) -> bool:
        """It would be the same death as at an earlier point."""
        if at[0] == "producer.begin":
            self._in_transaction = set()
        elif at[0] == "producer.send":
            if at in self._in_transaction:
                return True
            self._in_transaction.add(at)
        when = (self.broker.version, self.sent, self.on_the_way, self._body_points)
        if when != self._known_when:
            self._known_when, self._known = when, set()
        if at in self._known:
            return True
        self._known.add(at)
        return False

    def _kill(self, life: Life) -> None:
        if self.case.then == "restart":
            self.crash(life.name, RESTART_SECONDS)
        else:
            self.crash(life.name, None)
            self.later(0.05, self._replace)
        raise Killed(life.name)

    def _replace(self) -> None:
        if self.case.victim == "engine":
            self.add_engine("engine-2")
        else:
            self._add_worker("worker-2")

    # --- the end -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        super().start(name)
        life = self.processes[name].life
        if life is not None and life not in self._lives:
            self._lives.append(life)
            for name in ("run_in_executor", "sock_connect"):  # also what looks up a host
                setattr(life.executor.loop, name, self._nothing_real)

    def _nothing_real(self, *_: Any) -> NoReturn:
        text = "the tool waits for a thread or for a socket, which simulated time can't do"
        self.odd(text)
        raise RuntimeError(text)

    def end(self) -> None:
        """Everything has been counted: let go of what hangs, whatever it does on its way out."""
        for process in self.processes.values():
            if process.life is not None:
                self._bury(process.life)
        for life in self._lives:
            for task in asyncio.all_tasks(life.executor.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined,unused-ignore]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._bodies.close()
        self.close()
