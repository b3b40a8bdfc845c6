"""What the engine measures: counted once it is committed, never for what was rolled back.

What is there now (waits, quarantined runs) belongs to a partition and goes with it; it is found
again when the partition is taken over. Counters begin at 0 with the process.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from perdure.schemas.records import RunEvent
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.policies.outcome import waiting_for
from perdure.streams.core.state import Run
from perdure.streams.runtime.measures import (
    LONG_SECONDS,
    Counter,
    Family,
    Gauge,
    Histogram,
    Labels,
    Names,
)

Sent = Sequence[tuple[str, str]]
"""Queue and verb of each command of a decision."""
One = tuple[str, Labels, float]
"""What is counted: its name, its labels, how many (or how long, s)."""
Told = tuple[str, tuple[str, ...], list[One]]
"""A run, the kinds of what it waits for, what is counted of it."""


def waits(run: Run) -> tuple[str, ...]:
    """The kinds of all the run waits for; asked at each decision, so the usual answer is quick."""
    header = run.header
    backing_off = any(run.action(n).status == "backing_off" for n in header.open)
    return tuple(wait["kind"] for wait in waiting_for(run)) if header.asks or backing_off else ()


class EngineMeasures:
    """The only owner of these numbers. Told by the cycle's thread, read by any."""

    def __init__(self) -> None:
        self._agents = Names()
        self._targets = Names()
        self._queues = Names(50)
        self.started = Counter("runs_started", "runs begun", ("agent",))
        self.finished = Counter("runs_finished", "runs ended, by status", ("agent", "status"))
        self.steps = Counter("steps", "steps begun", ("agent",))
        self.action = Histogram(
            "action_seconds",
            "an attempt of an action, from its command to its result",
            LONG_SECONDS,
            ("kind", "target"),
        )
        self.verdicts = Counter("verdicts", "answers to decisions and requests", ("accepted",))
        self.commands = Counter("commands", "commands sent", ("queue", "verb"))
        self._waits: dict[int, dict[str, tuple[str, ...]]] = {}
        self._sick: dict[int, dict[str, int]] = {}
        self._counters = {
            "started": self.started,
            "finished": self.finished,
            "steps": self.steps,
            "commands": self.commands,
        }
        self._on: Final[dict[str, Callable[[Run, RunEvent], One | None]]] = {
            "run_started": self._run_started,
            "step_started": self._step_started,
            "run_finished": self._run_finished,
            "action_succeeded": self._answered,
            "action_failed": self._answered,
            "action_unknown": self._answered,
            "retry_scheduled": self._answered,
        }

    @property
    def families(self) -> tuple[Family, ...]:
        return (
            self.started,
            self.finished,
            self.steps,
            self.action,
            self.verdicts,
            self.commands,
            Gauge("waits", "what runs wait for now, by kind", self._kinds, ("kind",)),
            Gauge("quarantined_runs", "runs whose own processing raised", self._quarantined),
            Gauge("parked_records", "records kept for quarantined runs", self._parked),
        )

    # --- told after a commit --------------------------------------------------------------------

    def of(self, decision: Decision, sent: Sent) -> Told:
        """What there is to count of a decision; what a fork copied from another run was counted there.

        The decision itself is not kept until the commit: kept, its thousands of objects outlive the
        collector's first generation, which costs the engine a third of its time.
        """
        run = decision.run
        found: list[One] = []
        for event in decision.events:
            tell = self._on.get(event.type)
            if tell is not None and event.version > decision.copied:
                told = tell(run, event)
                if told is not None:
                    found.append(told)
        found += [("commands", (self._queues.of(queue), verb), 1) for queue, verb in sent]
        return run.header.run_id, waits(run), found

    def decided(self, partition: int, told: Told) -> None:
        """The decision is committed."""
        run_id, kinds, found = told
        for name, labels, n in found:
            if name == "action":
                self.action.observe(n, labels)
            else:
                self._counters[name].add(labels, n)
        self.waiting(partition, run_id, kinds)

    def waiting(self, partition: int, run_id: str, kinds: tuple[str, ...]) -> None:
        """What a run waits for from now on."""
        mine = self._waits.setdefault(partition, {})
        if kinds:
            mine[run_id] = kinds
        else:
            mine.pop(run_id, None)

    def sick(self, partition: int, run_id: str, parked: int | None) -> None:
        """A run is quarantined and holds so many records; None: it is released."""
        mine = self._sick.setdefault(partition, {})
        if parked is None:
            mine.pop(run_id, None)
        else:
            mine[run_id] = parked

    def verdict(self, accepted: bool) -> None:
        self.verdicts.add(("true" if accepted else "false",))

    def gone(self, partition: int) -> None:
        """The partition is another's."""
        self._waits.pop(partition, None)
        self._sick.pop(partition, None)

    # --- events ---------------------------------------------------------------------------------

    def _run_started(self, run: Run, event: RunEvent) -> One:
        return "started", (self._agents.of(event.agent),), 1

    def _step_started(self, run: Run, event: RunEvent) -> One:
        return "steps", (self._agents.of(event.agent),), 1

    def _run_finished(self, run: Run, event: RunEvent) -> One:
        return "finished", (self._agents.of(event.agent), event.data["status"]), 1

    def _answered(self, run: Run, event: RunEvent) -> One | None:
        """Only by whom was called: a person's answer or a stand-in says nothing of a call."""
        data: Any = event.data
        action = run.writes.get(("a", data["n"]))
        if action is None or action.requested_at is None:
            return None
        if not event.actor.startswith(("worker:", "model:")):
            return None
        seconds = (event.at - action.requested_at) / 1000
        return "action", (action.kind, self._targets.of(action.target)), seconds

    # --- what is there now ----------------------------------------------------------------------

    def _kinds(self) -> Mapping[Labels, float]:
        found: Tally[str] = Tally()
        for mine in list(self._waits.values()):
            for kinds in mine.copy().values():
                found.update(kinds)
        return {(kind,): n for kind, n in found.items()}

    def _quarantined(self) -> Mapping[Labels, float]:
        return {(): sum(len(mine) for mine in list(self._sick.values()))}

    def _parked(self) -> Mapping[Labels, float]:
        return {(): sum(sum(mine.copy().values()) for mine in list(self._sick.values()))}
