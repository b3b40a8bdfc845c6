"""Runs seeds and tells what they found and what they exercised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .faults import SPOTS
from .history import ACTION, RUN, Seen
from .quiet import quiet
from .scenario import Scenario

Make = Callable[[int], Scenario]


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed gave. ``wrong``: what broke, the first first."""

    seed: int
    wrong: list[str]
    trace: list[str]
    fingerprint: str
    events: int
    simulated_seconds: float
    runs: int

    @property
    def ok(self) -> bool:
        return not self.wrong


@dataclass
class Coverage:
    """What a set of seeds exercised."""

    seeds: int = 0
    runs: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    struck: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    seen: Seen = field(default_factory=Seen)
    effects: int = 0
    forks: Counter[str] = field(default_factory=Counter)
    """How many were taken, and how many refused."""

    def add(self, scenario: Scenario) -> None:
        self.seeds += 1
        judge, world = scenario.judge, scenario.world
        self.runs += len(judge.runs)
        self.ended.update(run.status for run in judge.runs.values())
        self.struck.update(world.struck)
        self.reached.update(world.reached)
        self.seen.add(judge.seen)
        self.effects += len(scenario.outside.effects)
        asked = [name for name in scenario.forks.must if name in scenario.asked.tasks]
        self.forks.update("taken" if name in judge.runs else "refused" for name in asked)

    def merge(self, other: Coverage) -> None:
        self.seeds += other.seeds
        self.runs += other.runs
        self.effects += other.effects
        self.forks.update(other.forks)
        self.ended.update(other.ended)
        self.struck.update(other.struck)
        self.reached.update(other.reached)
        self.seen.add(other.seen)

    # --- what is missing -----------------------------------------------------------------------

    def crashed_at(self) -> set[str]:
        """Ports' calls in which a process was killed."""
        return {where for what, where, _ in self.struck if what == "Crash"}

    def never_crashed_at(self) -> list[str]:
        return sorted(SPOTS.keys() - self.crashed_at())

    def action_moves_missing(self) -> list[str]:
        """Cells of the table of actions that no run went through."""
        cells = {(a, b) for a, row in ACTION.items() for b in row}
        return sorted(f"{a} -> {b}" for a, b in cells - self.seen.action_moves.keys())

    def run_moves_missing(self) -> list[str]:
        cells = {(a, b) for a, row in RUN.items() for b in row}
        return sorted(f"{a} -> {b}" for a, b in cells - self.seen.run_moves.keys())

    def summary(self) -> dict[str, Any]:
        """As one JSON document."""
        strikes: Counter[str] = Counter()
        for (what, _, _), times in self.struck.items():
            strikes[what.lower()] += times
        return {
            "seeds": self.seeds,
            "runs": self.runs,
            "ended": dict(self.ended),
            "effects": self.effects,
            "forks": dict(self.forks),
            "strikes": dict(strikes),
            "crash_points": len({s[1:] for s in self.struck if s[0] == "Crash"}),
            "never_crashed_at": self.never_crashed_at(),
            "event_types": len(self.seen.events),
            "action_transitions": len(self.seen.action_moves),
            "action_transitions_missing": self.action_moves_missing(),
            "run_transitions_missing": self.run_moves_missing(),
            "questions": dict(self.seen.questions),
            "stood_in": dict(self.seen.stood_in),
        }


def simulate(seed: int, coverage: Coverage | None = None, make: Make = Scenario) -> Result:
    """One seed, from its beginning to its judgement."""
    with quiet():
        scenario = make(seed)
        try:
            wrong = scenario.run()
        except Exception as error:  # whatever breaks the simulation itself must name its seed too
            wrong = [f"the simulation broke: {type(error).__name__}: {error}"]
            scenario.world.close()
    world = scenario.world
    if coverage is not None:
        coverage.add(scenario)
    return Result(
        seed,
        list(wrong),
        list(world.trace),
        world.fingerprint(),
        world.events_run,
        world.time.us / 1_000_000,
        len(scenario.judge.runs),
    )
