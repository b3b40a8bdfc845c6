"""A run's calls with each of their attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.outcome import record
from perdure.streams.core.state import Action, Run

_ENDS: Final = {
    "action_succeeded": "succeeded",
    "action_adopted": "adopted",
    "action_failed": "failed",
    "action_unknown": "unknown",
    "action_cancelled": "cancelled",
    "action_in_doubt": "in_doubt",
    "retry_scheduled": "failed",
    "effect_found": "found",
}


def actions(events: Iterable[RunEvent], run: Run) -> list[dict[str, Any]]:
    """ActionRecords in order of proposal, each with its attempts, its question and what it used."""
    attempts: dict[int, list[dict[str, Any]]] = {}
    used: dict[int, list[float]] = {}
    for event in events:
        data = event.data
        n = data.get("n") if isinstance(data, dict) else None
        if not isinstance(n, int):
            continue
        _attempt(attempts, n, event, data)
        usage = data.get("usage")
        if isinstance(usage, dict):
            sums = used.setdefault(n, [0, 0.0])
            sums[0] += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
            sums[1] += usage.get("cost", 0.0)
    found = []
    for n in range(1, run.header.next_action):
        action = run.action(n)
        tokens, cost = used.get(n, [0, 0.0])
        found.append(
            {
                **msgspec.to_builtins(record(run, action)),
                "kind": "compensation" if action.undoes is not None else action.kind,
                "attempts_list": attempts.get(n, []),
                "approval": _approval(run, action),
                "tokens": tokens,
                "cost": cost,
            }
        )
    return found


def _attempt(
    attempts: dict[int, list[dict[str, Any]]], n: int, event: RunEvent, data: dict[str, Any]
) -> None:
    if event.type == "action_requested":
        attempts.setdefault(n, []).append(
            {
                "attempt": data.get("attempt"),
                "requested_at": event.at,
                "started_at": None,
                "ended_at": None,
                "outcome": None,
                "error": None,
            }
        )
        return
    made = attempts.get(n)
    if not made:
        return
    last = made[-1]
    if event.type == "action_started":
        last["started_at"] = event.at
    elif event.type in _ENDS:
        last["ended_at"] = event.at
        last["outcome"] = _ENDS[event.type]
        last["error"] = data.get("error")


def _approval(run: Run, action: Action) -> dict[str, Any] | None:
    """The question asked for a call, with what people said."""
    found = None if action.approval is None else run.approval(action.approval)
    if found is None:
        return None
    return {
        "approval_id": run.approval_id(found.n),
        "kind": found.kind,
        "title": found.title,
        "open": found.open,
        "closed_by": found.closed_by,
        "decisions": found.decisions,
        "original_arguments": found.original_arguments,
        "requested_at": found.requested_at,
        "expires_at": found.expires_at,
    }
