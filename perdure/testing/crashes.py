"""Kills the worker at each point around a user's tool and counts what happened at their service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.connectors.tool import Tool

from .course import Case, Cell, Subject, course
from .network import Network
from .report import Report

MOST: Final = 5_000
"""Points of one case; a tool that reaches more of them is no test of a call any more."""
VICTIMS: Final = ("worker",)
THEN: Final = ("restart", "takeover")


class TestingError(Exception):
    """The test itself is wrong; the text says what to change."""

    __test__ = False


class Crashes:
    """What the fixture `crashes` gives. ``only`` and ``seed`` repeat one course."""

    def __init__(
        self, *, seed: int = 0, only: str | None = None, repeat: Callable[[str, int], str]
    ) -> None:
        self.network = Network()
        """For a fake whose requests may still be on their way when the worker dies."""
        self._seed = seed
        self._only = only
        self._repeat = repeat

    def __call__(
        self,
        tool: Tool[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        effects: Callable[[], int],
        reset: Callable[[], None],
        tools: Sequence[Tool[..., Any]] = (),
        victims: Sequence[str] = VICTIMS,
        late_seconds: float | None = None,
    ) -> Report:
        """Run ``tool`` once undisturbed, then once for each point at which a process can die.

        ``effects`` counts at the fake service how often it happened; ``reset`` empties the
        service before each course. ``tools``: others that this one names. ``victims``: `worker`,
        `engine` or both. If the fake's requests go through `network`, each death with the first
        request still on its way is a course of its own: it lands after ``late_seconds`` (default:
        within the tool's ``settle_seconds``, as the tool has promised).
        """
        if not isinstance(tool, Tool):
            raise TestingError(f"{tool!r} is no tool: decorate the function with @tool")
        subject = Subject(
            tool=tool,
            arguments=dict(arguments or {}),
            effects=effects,
            reset=reset,
            network=self.network,
            others=[other for other in tools if other is not tool],
            late_seconds=late_seconds,
        )
        self.network.used = False
        cells = [course(subject, Case(), 0, self._seed)]
        if self._only is not None:
            cells += self._one(subject, self._only)
        else:
            cells += courses(subject, cases(subject, victims), self._seed)
        reset()
        return Report(
            tool.name,
            tool.spec.effect,
            subject.queried,
            cells,
            self._seed,
            lambda cell: self._repeat(cell.id, self._seed),
        )

    def _one(self, subject: Subject, only: str) -> list[Cell]:
        try:
            victim, then, *late, number = only.split("/")
            case, n = Case(victim, then, late == ["late"]), int(number)
            if late not in ([], ["late"]) or str(case) != only.rpartition("/")[0] or n < 0:
                raise ValueError(only)
        except (ValueError, TypeError) as error:
            raise TestingError(f"{only!r} is no point; one is worker/restart/12") from error
        return [course(subject, case, n, self._seed)] if n else []


def cases(subject: Subject, victims: Sequence[str] = VICTIMS) -> Iterator[Case]:
    """Those worth trying; `Network.used` must tell of the undisturbed course."""
    unknown = set(victims) - {"worker", "engine"}
    if unknown:
        raise TestingError(f"victims are worker and engine, not {', '.join(sorted(unknown))}")
    for victim in victims:
        for then in THEN:
            yield Case(victim, then)
            if subject.network.used and subject.tool.spec.effect != "read_only":
                yield Case(victim, then, late=True)


def courses(subject: Subject, of: Iterator[Case], seed: int) -> Iterator[Cell]:
    """Each case at its first point, its second, ... until there are no more."""
    for case in of:
        for number in range(1, MOST + 1):
            cell = course(subject, case, number, seed)
            if not cell.number:
                break
            yield cell
        else:
            raise TestingError(
                f"{subject.tool.name} passes more than {MOST} points: give it less to do in a test"
            )
