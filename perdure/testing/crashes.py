"""Kills the worker at each point around a user's tool and counts what happened at their service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.connectors.tool import Tool

from .course import Cell, Subject, course
from .dying import Case
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
        victims: Sequence[str] = VICTIMS,
        then: Sequence[str] = THEN,
        late_seconds: float | None = None,
    ) -> Report:
        """Run ``tool`` once undisturbed, then once for each point at which a process can die.

        ``effects`` counts at the fake service how often it happened; ``reset`` empties the
        service before each course. ``victims``: `worker`, `engine` or both. ``then``: the killed
        process starts again (`restart`), another one takes over (`takeover`), or both. If the
        fake's requests go through `network`, each death with the first request still on its way
        is a course of its own: it lands after ``late_seconds`` (default: within the tool's
        ``settle_seconds``, as the tool has promised).
        """
        if not isinstance(tool, Tool):
            raise TestingError(f"{tool!r} is no tool: decorate the function with @tool")
        subject = Subject(
            tool=tool,
            arguments=dict(arguments or {}),
            effects=effects,
            reset=reset,
            network=self.network,
            late_seconds=late_seconds,
        )
        _check("victims", victims, ("worker", "engine"))
        _check("then", then, THEN)
        self.network.used = False
        cells = [course(subject, Case(), 0, self._seed)]
        if self._only is not None:
            cells += self._one(subject, self._only)
        else:
            cells += courses(subject, cases(subject, victims, then), self._seed)
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
            if str(case) != only.rpartition("/")[0] or then not in THEN or n < 0:
                raise ValueError(only)
        except (ValueError, TypeError) as error:
            raise TestingError(f"{only!r} is no point; one is worker/restart/12") from error
        if not n:
            return []  # the undisturbed course is there in any case
        cell = course(subject, case, n, self._seed)
        if not cell.number:
            raise TestingError(f"{only} is not reached with seed {self._seed}")
        return [cell]


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if not given or isinstance(given, str) or set(given) - set(known):
        raise TestingError(f"{what} takes a list of {' and '.join(known)}, not {given!r}")


def cases(
    subject: Subject, victims: Sequence[str] = VICTIMS, then: Sequence[str] = THEN
) -> Iterator[Case]:
    """Those worth trying; `Network.used` must tell of the undisturbed course."""
    for victim in victims:
        for what in then:
            yield Case(victim, what)
            if subject.network.used and subject.tool.spec.effect != "read_only":
                yield Case(victim, what, late=True)


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
