"""Appliers of what a run knows beside its messages: summary, key facts, to-do list."""

from __future__ import annotations

from typing import Any

import msgspec
from perdure.schemas.records import RunEvent

from ..state import Run


def _write(run: Run, **values: Any) -> None:
    run.writes["n", 0] = msgspec.structs.replace(run.notes, **values)
    run.header.noted = True


def context_summarised(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    """The messages stay; the next requests show the summary in their place."""
    _write(run, summary=data["summary"])
    run.header.covered = data["to"]


def key_state_changed(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    name, value = data["name"], data["value"]
    facts = {key: kept for key, kept in run.notes.facts.items() if key != name}
    _write(run, facts=facts if value is None else {**facts, name: value})


def plan_updated(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    """A model's to-do list is its progress; without items the turns are, as before."""
    items = data["plan"]
    _write(run, plan=items)
    header = run.header
    header.steps_total = len(items) or None
    over = sum(item["status"] in ("done", "skipped") for item in items)
    header.steps_done = over if items else header.step
    now = (item["title"] for item in items if item["status"] == "in_progress")
    header.current_step = next(now, "")
