"""The body of ``perdure runs``."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.reading import Overview, Scanner, Summary, event_of
from perdure.schemas import topics
from perdure.schemas.records import RunEvent, Status
from perdure.settings import Settings
from perdure.tables import questions

from .console import USAGE, leave, line, say
from .stories import AT_ONCE, Stories
from .terminal import ago, emit, safe, table, time_of_day

STATUSES = Status.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are listed."""

    status: str | None
    agent: str | None
    user: str | None
    limit: int

    def check(self) -> None:
        if self.status is not None and self.status not in STATUSES:
            leave(USAGE, f"--status takes {', '.join(STATUSES)}, not {safe(self.status, 40)}")

    def fits(self, run: Summary) -> bool:
        return (
            self.status in (None, run.status)
            and self.agent in (None, run.agent)
            and self.user in (None, run.user_id)
        )


def runs(made: Settings, wanted: Wanted, *, follow: bool, as_json: bool) -> None:
    """List, and with ``follow`` go on: with what happens in the runs, or as JSON with each that changes."""
    wanted.check()
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    overview = Overview()
    going_on: _Told | _Changes | None = None
    for raw in scanner.scan([topics.EVENTS], follow=follow):
        if raw is not None:
            event = event_of(raw)
            if event is not None:
                run = overview.take(event)
                if going_on is not None:
                    going_on.take(event, run)
        elif going_on is None:
            overview.settle(questions(scanner))
            _list(overview, wanted, as_json)
            if follow:
                going_on = (
                    _Changes(wanted, overview) if as_json else _Told(wanted, overview, scanner)
                )
        else:
            going_on.pause()


class _Told:
    """What happens in the runs that fit, in the words of `perdure show`."""

    def __init__(self, wanted: Wanted, overview: Overview, scanner: Scanner) -> None:
        self._wanted = wanted
        self._stories = Stories(scanner)
        under_way = [run for run in overview.runs.values() if run.finished_at is None]
        newest = heapq.nlargest(AT_ONCE, under_way, key=lambda run: run.updated_at)
        self._stories.read({run.run_id: run.version for run in newest})
        self._width = min(max((len(run.run_id) for run in newest), default=0), 40)

    def take(self, event: RunEvent, run: Summary) -> None:
        told = self._stories.tell(event)
        if told is not None and self._wanted.fits(run):
            who, what = (safe(each, limit) for each, limit in zip(told, (40, 1_000), strict=True))
            self._width = max(self._width, min(len(run.run_id), 40))
            name = safe(run.run_id, 200)
            emit(f"{time_of_day(event.at)}  {name:<{self._width}}  {who:<16} {what}")

    def pause(self) -> None:
        pass


class _Changes:
    """Each run that fits and has changed, whole; what came together is one change."""

    def __init__(self, wanted: Wanted, overview: Overview) -> None:
        self._wanted = wanted
        self._shown = {run.run_id: _face(run) for run in overview.runs.values()}
        self._changed: dict[str, Summary] = {}

    def take(self, event: RunEvent, run: Summary) -> None:
        self._changed[event.run_id] = run

    def pause(self) -> None:
        for run in self._changed.values():
            if self._wanted.fits(run) and self._shown.get(run.run_id) != _face(run):
                line(msgspec.to_builtins(run))
            self._shown[run.run_id] = _face(run)
        self._changed.clear()


def _face(run: Summary) -> tuple[Any, ...]:
    """What makes a change worth a line."""
    return run.status, run.paused, run.ending, tuple(w["approval_id"] for w in run.waiting_for)


def _doing(run: Summary) -> str:
    if run.finished_at is not None:
        return safe(run.ending or "", 60)
    if run.waiting_for:
        return f"waits: {safe(run.waiting_for[0]['title'], 60)}"
    if run.ending is not None:
        return f"ending: {safe(run.ending, 60)}"
    return safe(run.last, 60)


def _state(run: Summary) -> str:
    return f"{run.status}, paused" if run.paused else run.status


def _list(overview: Overview, wanted: Wanted, as_json: bool) -> None:
    fitting = sorted(
        filter(wanted.fits, overview.runs.values()), key=lambda run: run.started_at, reverse=True
    )
    chosen = fitting[: wanted.limit]
    if as_json:
        for run in chosen:
            line(msgspec.to_builtins(run))
        return
    if not fitting:
        say("no such runs" if overview.runs else "no runs yet: `perdure submit` starts one")
        return
    table(
        ("run", "agent", "status", "changed", "doing"),
        [
            (
                safe(run.run_id, 200),
                safe(run.agent, 60),
                _state(run),
                ago(run.updated_at),
                _doing(run),
            )
            for run in chosen
        ],
    )
    if len(fitting) > len(chosen):
        say(f"{len(fitting) - len(chosen)} more: --limit {len(fitting)} shows all")
