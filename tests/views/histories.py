"""Histories to project: those that earlier versions wrote, under any run id and at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from perdure.schemas import codec
from perdure.schemas.records import RunEvent
from perdure.streams.core.events import hash_of

GOLDEN = Path(__file__).parents[1] / "core" / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def golden(
    name: str, run_id: str | None = None, at: int | None = None, **envelope: str
) -> list[RunEvent]:
    """A recorded history; as ``run_id``'s and starting at ``at`` (ms) where these are given."""
    plain: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())["events"]
    events = [msgspec.convert(event, RunEvent) for event in plain]
    moved = 0 if at is None else at - events[0].at
    before = ""
    for event in events:
        event.run_id = run_id or event.run_id
        event.at += moved
        for field, value in envelope.items():
            setattr(event, field, value)
        event.previous_hash = before
        event.hash = before = hash_of(event)
    return events


def raw(events: list[RunEvent]) -> list[bytes | None]:
    return [codec.encode(event) for event in events]
