"""The body of ``perdure runs``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.reading import Overview, Scanner, Summary, event_of
from perdure.schemas import topics
from perdure.schemas.records import Status
from perdure.settings import Settings
from perdure.tables import questions

from .console import USAGE, leave, line, say
from .terminal import ago, safe, table

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
    """List, and with ``follow`` go on with every change that is listed."""
    wanted.check()
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    overview = Overview()
    listed = False
    shown: dict[str, tuple[Any, ...]] = {}
    changed: dict[str, Summary] = {}
    for raw in scanner.scan([topics.EVENTS], follow=follow):
        if raw is not None:
            event = event_of(raw)
            if event is not None:
                changed[event.run_id] = overview.take(event)
            continue
        if not listed:
            listed = True
            overview.settle(questions(scanner))
            _list(overview, wanted, as_json)
            shown = {run.run_id: _face(run) for run in overview.runs.values()}
        else:
            for run in changed.values():
                if wanted.fits(run) and shown.get(run.run_id) != _face(run):
                    _change(run, as_json)
                shown[run.run_id] = _face(run)
        changed.clear()


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


def _change(run: Summary, as_json: bool) -> None:
    if as_json:
        line(msgspec.to_builtins(run))
    else:
        print(f"{safe(run.run_id, 200)}  {_state(run)}  {_doing(run)}".rstrip(), flush=True)
