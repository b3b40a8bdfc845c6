"""One course of one call through the simulated world, with one death at a chosen point.

Theory of operation. A world with one engine and one worker runs one task whose plan is one call
of the tool. Every call of a port, every await of the tool's body and every request it sends is a
point. A *victim* (the engine or the worker) is killed at the n-th point that it passes after the
task was submitted. What would be the same death again is not counted: a port asked once more with
nothing changed in between, neither on a log nor outside, or one more record in an open transaction,
which its owner's death aborts as a whole. The killed process starts again, or another one takes
over. Questions are answered as a person would who knows nothing: an action is
approved, everything else is given up after a while. Then the run's outcome is held against what
the fake service counts.

The same subject, case and seed give the same course, always, if the tool draws no chance itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from perdure.connectors.tool import Tool
from perdure.schemas import topics
from perdure.schemas.records import AgentSpec

from .executor import Killed
from .network import Network
from .processes import Life
from .stepping import Bodies
from .world import World

AGENT: Final = "tested"
RESTART_SECONDS: Final = 0.5
LATE_SHARE: Final = 0.8
"""Of the settle time: when a late request lands if nothing else is said. The tool has promised
that it does by then."""
LONGEST: Final = 48 * 3600.0
"""Simulated seconds within which a run must end."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is tested. ``effects`` counts at the fake service, ``reset`` empties it."""

    tool: Tool[..., Any]
    arguments: dict[str, Any]
    effects: Callable[[], int]
    reset: Callable[[], None]
    network: Network
    late_seconds: float | None = None
    """How long a late request is on its way."""

    @property
    def late(self) -> float:
        return LATE_SHARE * self.settle if self.late_seconds is None else self.late_seconds

    @property
    def settle(self) -> float:
        spec = self.tool.spec
        return spec.timeout_seconds if spec.settle_seconds is None else spec.settle_seconds

    @property
    def queried(self) -> bool:
        return self.tool.query_function is not None


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


@dataclass(frozen=True, slots=True)
class Cell:
    """What one course gave."""

    case: Case
    number: int
    """Of the point, from 1; 0: nobody was killed."""
    point: str
    effects: int
    """That the service counts, after everything has come to rest."""
    status: str
    """What the outcome says of the call: `completed`, `not_completed`, `in_doubt`; `stuck` if the
    run did not end."""
    detail: str = ""
    """The error or the question that goes with it."""
    oddities: tuple[str, ...] = ()
    trace: tuple[str, ...] = field(default=(), repr=False)

    @property
    def id(self) -> str:
        """Names the course: `perdure.testing` takes it back to repeat it alone."""
        return f"{self.case}/{self.number}"


def course(subject: Subject, case: Case, number: int, seed: int = 0) -> Cell:
    """Kill ``case.victim`` at its ``number``-th point (0: nobody)."""
    subject.reset()
    world = _World(subject, case, number, seed)
    with _quiet():
        try:
            return world.cell()
        finally:
            world.end()


class _World(World):
    """One engine, one worker, one task. Implements `network.Way`."""

    def __init__(self, subject: Subject, case: Case, number: int, seed: int) -> None:
        queues = [subject.tool.spec.queue]
        super().__init__(seed, partitions=1, queues=queues, calm_broker=True)
        self.late = subject.late if case.late else None
        self.sent = 0
        self.on_the_way = 0
        self.died_at: str | None = None
        self._subject = subject
        self._case = case
        self._left = number
        self._number = number
        self._watching = False
        self._known: set[tuple[str, str]] = set()
        self._known_when: tuple[int, ...] = ()
        self._in_transaction: set[tuple[str, str]] = set()
        self._body_points = 0
        self._queues = queues
        self._outcome: Any = None
        self._questions: dict[str, Any] = {}
        self._bodies = Bodies(self._in_body)
        self._lives: list[Life] = []
        self._tools = [self._bodies.taken_apart(subject.tool)]
        self.on_tick.append(self._look)
        self.run_id = "run"

    @property
    def world(self) -> World:
        return self

    # --- the course ----------------------------------------------------------------------------

    def cell(self) -> Cell:
        """From its beginning to its end."""
        self._subject.network.goes_through(self)
        try:
            self._start()
            self._to_its_end()
        finally:
            self._subject.network.goes_through(None)
        status, detail = self._told()
        return Cell(
            self._case,
            self._number if self.died_at is not None else 0,
            self.died_at or "nobody is killed",
            self._subject.effects(),
            status,
            detail,
            tuple(self.oddities),
            tuple(self.trace),
        )

    def _start(self) -> None:
        subject = self._subject
        self.add_engine("engine-1")
        self.add_worker("worker-1", self._tools, queues=self._queues)
        name = subject.tool.name
        self.apply(AgentSpec(name=AGENT, tools=[name], on_failure="stop"))
        self.run_until(lambda: len(self.records(topics.CATALOG)) >= 2, 60.0)
        self.run_for(0.5)  # every partition is live
        self._watching = self._number > 0
        self.submit(
            self.run_id,
            agent=AGENT,
            user_id="user",
            plan=[{"id": "call", "tool": name, "arguments": subject.arguments}],
        )

    def _to_its_end(self) -> None:
        settle = max(self._subject.settle, self._subject.late)
        settle += self._subject.tool.spec.timeout_seconds + 30.0
        answered: set[str] = set()
        until = self.time.us + int(LONGEST * 1_000_000)

        def asked() -> list[str]:
            return [name for name in self._questions if name not in answered]

        while self._outcome is None and self.time.us < until:
            self.run_until(lambda: self._outcome is not None or bool(asked()), 3600.0)
            for name in asked():
                question = self._questions[name]
                if question["kind"] != "action":
                    # It may settle itself: give it the time it has been promised.
                    self.run_until(lambda: self._outcome is not None, settle)
                answered.add(name)
                if name in self._questions:
                    self._decide(question)
        self.run_for(settle)  # what comes late must not come twice

    def _decide(self, question: dict[str, Any]) -> None:
        word = "approve" if question["kind"] == "action" else "cancel_run"
        approver = (question.get("approvers") or ["tester"])[0]
        decision = {
            "approval_id": question["approval_id"], "run_id": self.run_id,
            "decision": word, "approver": approver,
        }  # fmt: skip
        self.say(f"{approver} answers {question['kind']} with {word}")
        self.produce(topics.APPROVALS, decision, self.run_id)

    def _look(self) -> None:
        if self._outcome is None:
            self._questions = self.questions()
            self._outcome = self.outcome(self.run_id)

    def _told(self) -> tuple[str, str]:
        """What the outcome says of the call."""
        self._outcome = outcome = self.outcome(self.run_id)
        if outcome is None:
            asks = ", ".join(question["kind"] for question in self._questions.values())
            return "stuck", f"it waits for {asks or 'nothing that can be seen'}"
        for status in ("completed", "not_completed", "in_doubt"):
            for record in outcome[status]:
                if record["tool"] == self._subject.tool.name:
                    error = record.get("error") or {}
                    return status, " ".join(
                        str(error[part]) for part in ("kind", "code", "message") if error.get(part)
                    )
        errors = outcome.get("errors") or [{}]
        return "not_completed", f"the call was never made: {errors[0].get('message', '')}"

    # --- the death -----------------------------------------------------------------------------

    def _in_body(self, where: str, side: str) -> None:
        if self.running is not None:
            self.point(self.running, where, side)

    def point(self, life: Life, where: str, side: str) -> None:
        super().point(life, where, side)
        if "." not in where or where.startswith("tool."):
            self._body_points += 1
        if not self._watching or life.name != f"{self._case.victim}-1":
            return
        if self._case.late and not self.on_the_way:
            return
        if self._again((where, side)):
            return
        self._left -= 1
        if self._left <= 0:
            self._watching = False
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
        if self._case.then == "restart":
            self.crash(life.name, RESTART_SECONDS)
        else:
            self.crash(life.name, None)
            self.later(0.05, self._replace)
        raise Killed(life.name)

    def _replace(self) -> None:
        if self._case.victim == "engine":
            self.add_engine("engine-2")
        else:
            self.add_worker("worker-2", self._tools, queues=self._queues)

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


@contextmanager
def _quiet() -> Iterator[None]:
    """What the product logs about deaths that were made on purpose is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
