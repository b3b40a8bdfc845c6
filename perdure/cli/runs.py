"""The body of ``perdure runs``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.reading import Overview, Raw, Scanner, Summary, event_of
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
        return self.status in (None, run.status) and self.may_fit(run)

    def may_fit(self, run: Summary) -> bool:
        """Whether it fits now or in another status."""
        return self.agent in (None, run.agent) and self.user in (None, run.user_id)


def runs(made: Settings, wanted: Wanted, *, follow: bool, as_json: bool) -> None:
    """List, and with ``follow`` go on: with what happens in the runs, or as JSON with each that changes."""
    wanted.check()
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    overview = Overview()
    ends: dict[int, int] = defaultdict(int)
    going_on: _Told | _Changes | None = None
    for raw in scanner.scan([topics.EVENTS], follow=follow):
        if raw is not None:
            ends[raw.partition] = raw.offset + 1
            event = event_of(raw)
            if event is not None:
                run = overview.take(event)
                if going_on is not None:
                    going_on.take(raw, event, run)
        elif going_on is None:
            overview.settle(questions(scanner))
            _list(overview, wanted, as_json)
            if follow and as_json:
                going_on = _Changes(wanted, overview)
            elif follow:
                going_on = _Told(wanted, overview, Stories(scanner), ends)
        else:
            going_on.pause()


class _Told:
    """What happens in the runs that fit, in the words of `perdure show`."""

    def __init__(
        self, wanted: Wanted, overview: Overview, stories: Stories, ends: Mapping[int, int]
    ) -> None:
        self._wanted = wanted
        self._stories = stories
        self._width = 0
        self._held: dict[str, tuple[int, list[str]]] = {}
        under_way = [
            run for run in overview.runs.values() if wanted.may_fit(run) and run.finished_at is None
        ]
        under_way.sort(key=lambda run: run.updated_at, reverse=True)
        stories.read([run.run_id for run in under_way[:AT_ONCE]], ends)
        stories.leave_out(run.run_id for run in under_way[AT_ONCE:])

    def take(self, raw: Raw, event: RunEvent, run: Summary) -> None:
        """Tell it if the run fits, and with it what the same decision brought before."""
        if not self._wanted.may_fit(run):
            return
        told = self._stories.tell(raw, event)
        at, lines = self._held.pop(run.run_id, (event.at, []))
        lines = lines if at == event.at else []
        if told is not None:
            lines.append(self._line(event, told))
        if self._wanted.fits(run):
            for text in lines:
                emit(text)
        elif lines:
            self._held[run.run_id] = event.at, lines

    def _line(self, event: RunEvent, told: tuple[str, str]) -> str:
        who, what = (safe(each, limit) for each, limit in zip(told, (40, 1_000), strict=True))
        self._width = max(self._width, min(len(event.run_id), 40))
        name = safe(event.run_id, 200)
        return f"{time_of_day(event.at)}  {name:<{self._width}}  {who:<16} {what}".rstrip()

    def pause(self) -> None:
        self._held.clear()


class _Changes:
    """Each run that fits and has changed, whole; what came together is one change."""

    def __init__(self, wanted: Wanted, overview: Overview) -> None:
        self._wanted = wanted
        self._shown = {run.run_id: _face(run) for run in overview.runs.values()}
        self._changed: dict[str, Summary] = {}

    def take(self, raw: Raw, event: RunEvent, run: Summary) -> None:
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
