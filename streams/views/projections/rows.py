"""A run in one line: what lists, totals and rates are made of.

Nothing is counted twice: the line holds the version it stands for, and what a run did in each
minute, so that events that come again change nothing. It is drawn from the core's own state, not
from rules of its own; a run whose beginning is not there (the topic's retention took it, or a
newer version wrote an event that this one does not know) is drawn from the events' envelopes alone
and says so (``gap``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical
from perdure.schemas.records import Outcome, RunEvent
from perdure.streams.core.apply import begin, evolve
from perdure.streams.core.policies.outcome import usage, waiting_for
from perdure.streams.core.state import Run

MINUTE_MS: Final = 60_000
MINUTES_KEPT: Final = 60
TITLE: Final = 200

STARTED, FINISHED, FAILED, STEPS, TOKENS, COST = range(6)
"""Places in the list of what happened in one minute."""


class Row(msgspec.Struct, kw_only=True):
    """One run. The fields up to ``finished_at`` are public; the rest is the projection's own."""

    run_id: str
    agent: str
    user_id: str
    session_id: str
    tenant: str
    status: str = "running"
    paused: bool = False
    title: str = ""
    current_step: str = ""
    steps_done: int = 0
    steps_total: int | None = None
    waiting_for: list[dict[str, Any]] = msgspec.field(default_factory=list)
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    errors: int = 0
    version: int = 0
    started_at: int = 0
    updated_at: int = 0
    finished_at: int | None = None
    gap: bool = False
    first: str = ""
    """Hash of the run's first event; empty where its beginning is not there."""
    chunks: int = 0
    """In so many records of the table of events its events stand."""
    minutes: dict[int, list[float]] = msgspec.field(default_factory=dict)
    """Minute since the epoch -> [started, finished, failed, steps, tokens, cost], the last hour's."""
    calls: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Tool -> [calls made, failed ones, when the last one ended or 0, 1 if that one failed]."""


def text_of(value: Any, limit: int = TITLE) -> str:
    """A value as one line of text; an object's members one after the other, for people to read."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    else:
        text = "" if value is None else _plain(value)
    return " ".join(text[: 4 * limit].split())[:limit]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value).decode()


def empty(event: RunEvent) -> Row:
    return Row(
        run_id=event.run_id,
        agent=event.agent,
        user_id=event.user_id,
        session_id=event.session_id,
        tenant=event.tenant,
        started_at=event.at,
    )


def advance(
    row: Row | None, run: Run | None, events: Iterable[RunEvent]
) -> tuple[Row | None, Run | None, list[RunEvent]]:
    """The line and the state after a run's events, and those of them that were new.

    ``run`` is the state at the line's version; it is taken along, not kept. Where it is None though
    the line has a version, or the events can't follow it, the line goes on with a gap.
    """
    new: list[RunEvent] = []
    for event in events:
        if row is None:
            row = empty(event)
        if event.version <= row.version:
            continue
        run = _step(row, run, event)
        new.append(event)
    if row is not None and new:
        if run is not None:
            _draw(row, run)
        _forget_minutes(row)
    return row, run, new


def _step(row: Row, run: Run | None, event: RunEvent) -> Run | None:
    before = (0, 0, 0.0) if run is None else _used(run)
    if event.version != row.version + 1:
        row.gap = True
    if not row.gap:
        try:
            if run is None:
                run = begin(event, lambda key: None)
            else:
                evolve(run, event)
        except Exception:  # a history that the core can't follow is shown as far as it can be
            row.gap, run = True, None
    else:
        run = None
    if run is None:
        row.gap = True
        _envelope(row, event)
        if event.type != "run_started":
            before = (0, 0, 0.0)
    if event.type == "run_started":
        row.started_at = event.at
    if event.version == 1:
        row.first = event.hash
    row.version = event.version
    row.updated_at = event.at
    _count(row, run, event, before)
    return run


def _envelope(row: Row, event: RunEvent) -> None:
    """What an event says by itself, where there is no state to ask."""
    data = event.data if isinstance(event.data, dict) else {}
    if event.type == "run_started":
        row.title = text_of(data.get("input"))
    elif event.type == "status_changed":
        row.status = str(data.get("to", row.status))
        row.finished_at = None
    elif event.type == "run_finished":
        row.status = str(data.get("status", row.status))
        row.finished_at = event.at
        row.current_step = ""
    elif event.type == "step_started":
        row.current_step = str(data.get("title") or "")
    elif event.type in ("run_paused", "run_resumed"):
        row.paused = event.type == "run_paused"
    row.waiting_for = []


def _used(run: Run) -> tuple[int, int, float]:
    header = run.header
    return header.step, header.input_tokens + header.output_tokens, header.cost


def _count(row: Row, run: Run | None, event: RunEvent, before: tuple[int, int, float]) -> None:
    counts = [0.0] * 6
    counts[STARTED] = float(event.type == "run_started")
    if event.type == "run_finished":
        counts[FINISHED] = 1.0
        failed = isinstance(event.data, dict) and event.data.get("status") == "failed"
        counts[FAILED] = float(failed)
    if run is not None:
        after = _used(run)
        counts[STEPS] = float(max(after[0] - before[0], 0))
        counts[TOKENS] = float(after[1] - before[1])
        counts[COST] = after[2] - before[2]
        _count_call(row, run, event)
    if any(counts):
        minute = event.at // MINUTE_MS
        known = row.minutes.get(minute)
        row.minutes[minute] = (
            counts if known is None else [a + b for a, b in zip(known, counts, strict=True)]
        )


_FAILED: Final = frozenset({"action_failed", "action_unknown", "retry_scheduled"})
_WENT_WELL: Final = frozenset({"action_succeeded", "action_adopted", "effect_found"})


def _count_call(row: Row, run: Run, event: RunEvent) -> None:
    """What a tool's attempt came to."""
    failed = event.type in _FAILED
    if event.type != "action_requested" and not failed and event.type not in _WENT_WELL:
        return
    action = run.action(event.data["n"])
    if action.kind in ("model", "builtin"):
        return
    counts = row.calls.setdefault(action.target, [0, 0, 0, 0])
    if event.type == "action_requested":
        counts[0] += 1
        return
    counts[1] += failed
    counts[2], counts[3] = event.at, int(failed)


def _forget_minutes(row: Row) -> None:
    oldest = row.updated_at // MINUTE_MS - MINUTES_KEPT
    for minute in [minute for minute in row.minutes if minute < oldest]:
        del row.minutes[minute]


def _draw(row: Row, run: Run) -> None:
    """The line of a state."""
    header = run.header
    row.status = header.status
    row.paused = header.paused
    row.title = row.title or text_of(run.start.input)
    row.current_step = header.current_step
    row.steps_done = header.steps_done
    row.steps_total = header.steps_total
    row.waiting_for = waiting_for(run)
    row.usage = usage(run)
    row.errors = len(header.errors)
    row.finished_at = header.finished_at
    row.started_at = header.created_at


def refused(outcome: Outcome) -> Row:
    """The line of a task that never became a run: all there is of it is its outcome."""
    return Row(
        run_id=outcome.run_id,
        agent=outcome.agent,
        user_id=outcome.user_id,
        session_id=outcome.session_id,
        tenant=outcome.tenant,
        status=outcome.status,
        title=text_of(outcome.text),
        usage={"steps": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0},
        errors=len(outcome.errors) if isinstance(outcome.errors, list) else 0,
        started_at=outcome.finished_at,
        updated_at=outcome.finished_at,
        finished_at=outcome.finished_at,
    )


_OWN: Final = ("chunks", "minutes", "gap", "first", "calls")


def public(row: Row, *, complete: bool | None, quarantined: bool) -> dict[str, Any]:
    """The line as the API gives it. ``complete``: the outcome's word, None until there is one."""
    shown: dict[str, Any] = msgspec.to_builtins(row)
    for name in _OWN:
        del shown[name]
    usage_of = {"steps": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0}
    shown["usage"] = {**usage_of, **shown["usage"]}
    return {**shown, "complete": complete, "quarantined": quarantined, "incomplete": row.gap}
