"""One course of one call through the simulated world, with one death at a chosen point.

Theory of operation. A world with one engine and one worker runs one task whose plan is one call
of the tool. Every call of a port, every await of the tool's body and every request it sends is a
point; the engine or the worker is killed at the n-th that it passes after the task was submitted
(see ``dying.py``). Questions are answered as a person would who knows nothing: an action is
approved, everything else is given up after a while. Then the run's outcome is held against what
the fake service counts.

The same subject, case and seed give the same course, always, if the tool draws no chance itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.connectors.tool import Tool
from perdure.schemas import topics
from perdure.schemas.records import AgentSpec

from .dying import Case, DyingWorld
from .network import Network
from .quiet import quiet

AGENT: Final = "tested"
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
    with quiet():
        try:
            return world.cell()
        finally:
            world.end()


class _World(DyingWorld):
    """One engine, one worker, one task."""

    def __init__(self, subject: Subject, case: Case, number: int, seed: int) -> None:
        queues = [subject.tool.spec.queue]
        super().__init__([subject.tool], queues, case, number, subject.late, seed)
        self._subject = subject
        self._outcome: Any = None
        self._questions: dict[str, Any] = {}
        self.on_tick.append(self._look)
        self.run_id = "run"

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
            self.case,
            self.number if self.died_at is not None else 0,
            self.died_at or "nobody is killed",
            self._subject.effects(),
            status,
            detail,
            tuple(self.oddities),
            tuple(self.trace),
        )

    def _start(self) -> None:
        subject = self._subject
        self.add_both()
        name = subject.tool.name
        self.apply(AgentSpec(name=AGENT, tools=[name], on_failure="stop"))
        self.run_until(lambda: len(self.records(topics.CATALOG)) >= 2, 60.0)
        self.run_for(0.5)  # every partition is live
        self.watching = True
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
