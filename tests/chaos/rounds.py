"""Rounds of kill -9 at a point, several deployments side by side, each judged from outside.

A killed member is missed by its group for five seconds, in which a machine has nothing to do: so
there are several lanes, each a deployment of its own (engine, worker, topics), and a lane takes the
next round as soon as its last one is judged.
"""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.world import until

from .deployed import COMMANDS, Site, plan_of
from .fake_service import FakeService
from .judge import Person, check_history, check_uncommitted
from .points import TOOLS, Point
from .role import Role

REACHED_SECONDS = 25
OUTCOME_SECONDS = 75


@dataclass(frozen=True, slots=True)
class Round:
    """What was seen from outside."""

    point: Point
    doubts: tuple[str, ...]
    effects: dict[str, int]
    requests: dict[str, int]
    seconds: float


class Lane(threading.Thread):
    """One deployment that is killed again and again."""

    def __init__(self, name: str, site: Site, work: queue.SimpleQueue[tuple[Point, Future[Round]] | None]) -> None:  # fmt: skip
        super().__init__(name=name, daemon=True)
        self.site = site
        self._work = work
        self._person = Person(site)
        self._roles: dict[str, Role] = {}
        self._count = 0

    def run(self) -> None:
        try:
            for name in ("engine", "worker"):
                self._roles[name] = self.site.role(name, crashing=True).start()
            self.site.ready()
            fault: BaseException | None = None
        except BaseException as error:
            fault = error
        while (item := self._work.get()) is not None:
            point, future = item
            if fault is not None:
                future.set_exception(fault)
                continue
            try:
                future.set_result(self._round(point))
            except BaseException as error:
                future.set_exception(AssertionError(f"{point} on {self.site.prefix}: {error}\n{self.site.logs()}"))  # fmt: skip
                self._revive()

    def _round(self, point: Point) -> Round:
        began = time.monotonic()
        self._count += 1
        run_id = f"{point}-{self.name}-{self._count}"  # the fake service is that of all lanes
        role = self._roles[point.role]
        assert role.plan is not None
        self._arm(role, point)
        self.site.submit(plan_of(run_id, *TOOLS, late=point.late))
        self._await_death(role, point.name)
        if point.then is not None:
            role.plan.write_text(json.dumps({"point": point.then, "n": 1, "armed": True}))
            role.start()
            self._await_death(role, point.then)
        role.plan.unlink()
        role.start()
        outcome = self.site.outcome(run_id, OUTCOME_SECONDS, self._person.look)
        assert (outcome["status"], outcome["complete"]) == ("done", True), outcome["text"]
        return self._judged(point, run_id, outcome, began)

    def _arm(self, role: Role, point: Point) -> None:
        assert role.plan is not None
        role.live()  # before that a signal finds nobody to take it
        armed = role.plan.with_suffix(".armed")
        armed.unlink(missing_ok=True)
        role.plan.write_text(json.dumps({"point": point.name, "n": point.n}))
        role.signal(signal.SIGUSR1)
        until(armed.exists, "the role has read its plan", 10)

    def _await_death(self, role: Role, name: str) -> None:
        def dead() -> bool:
            return role.exit_code is not None

        self.site.until(dead, f"{name} is reached", REACHED_SECONDS, self._person.look)
        assert role.exit_code == -9, f"ended with {role.exit_code} instead of being killed"

    def _judged(self, point: Point, run_id: str, outcome: dict, began: float) -> Round:  # type: ignore[type-arg]
        watch, service = self.site.watch, self.site.service
        watch.read_up()
        check_history(watch, run_id)
        effects = {tool: service.count(tool, run_id) for tool in TOOLS}
        requests = {tool: service.requests[tool, run_id] for tool in TOOLS}
        assert effects["look"] >= 1
        for tool in ("put", "keep", "pay", "wire"):
            assert effects[tool] == 1, f"{tool}: {effects[tool]} effects, {requests[tool]} requests"
        for tool in ("put", "keep"):
            assert len(service.keys[tool, run_id]) == 1, f"{tool}: more than one key"
        # As in a run without a crash: every step done once, in order, with its own result.
        assert [(r["tool"], r["status"]) for r in outcome["completed"]] == [(t, "succeeded") for t in TOOLS]  # fmt: skip
        assert outcome["usage"]["steps"] == len(TOOLS)
        doubts = tuple(self._person.doubts(run_id))
        if point.doubts is not None:
            assert set(doubts) == point.doubts, f"asked about: {doubts}; expected {point.doubts}"
        calls = [s.value for s in watch.by_key[COMMANDS, run_id] if s.value["verb"] == "call"]
        if not doubts and not point.late and ".pay" not in point.name and point.role == "engine":
            assert len(calls) == len(TOOLS), f"{len(calls)} commands"
        return Round(point, doubts, effects, requests, time.monotonic() - began)

    def _revive(self) -> None:
        for role in self._roles.values():
            assert role.plan is not None
            role.plan.unlink(missing_ok=True)
            if not role.running():
                role.start()


class Rounds:
    """Lanes with one queue of rounds."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path, lanes: int) -> None:
        self._work: queue.SimpleQueue[tuple[Point, Future[Round]] | None] = queue.SimpleQueue()
        self._service = FakeService()
        self._lanes = [
            Lane(f"lane{n}", Site(bootstrap, f"{prefix}{n}.", directory / str(n), self._service), self._work)
            for n in range(lanes)
        ]  # fmt: skip

    def __enter__(self) -> Self:
        for lane in self._lanes:
            lane.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        while not self._work.empty():  # a session that was broken off
            self._work.get()
        for _ in self._lanes:
            self._work.put(None)
        for lane in self._lanes:
            lane.join(OUTCOME_SECONDS + 2 * REACHED_SECONDS)
            lane.site.close()
        self._service.close()

    def add(self, points: Sequence[Point]) -> list[Future[Round]]:
        made = []
        for point in points:
            future: Future[Round] = Future()
            self._work.put((point, future))
            made.append(future)
        return made

    def check_topics(self) -> None:
        """Once nothing is under way any more."""
        for lane in self._lanes:
            check_uncommitted(lane.site)
