"""A run's events as entries that a person reads in ten seconds: a line, a tone, bounded detail."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown
from perdure.streams.core.state import Run

from .exact import cut
from .wording import Data, title


def entry(event: RunEvent, run: Run | None, step: int) -> dict[str, Any]:
    """One event as the API's Entry. ``run`` tells the names of actions; ``step`` is the run's then."""
    data: Data = event.data if isinstance(event.data, dict) else {}

    def name(n: Any) -> str | None:
        action = run.get(("a", n)) if run is not None and isinstance(n, int) else None
        return None if action is None else shown(action.target, 60)

    return {
        "version": event.version,
        "at": event.at,
        "type": event.type,
        "actor": event.actor,
        "step": step,
        "action_id": _action_id(event, data),
        "title": title(event, name),
        "tone": tone(event.type, data),
        "data": cut(data),
    }


def _action_id(event: RunEvent, data: Data) -> str | None:
    n = data.get("n")
    about_a_call = event.type.startswith("action_") or event.type in _OF_CALLS
    if about_a_call and isinstance(n, int):
        return f"{event.run_id}/{n}"
    return None


_OF_CALLS: Final = frozenset(
    {"retry_scheduled", "effect_found", "compensation_started", "compensation_finished"}
)


def tone(kind: str, data: Data) -> str:
    """How an entry is to be read: plain, good, bad, wait, person or model."""
    if kind == "run_finished":
        return "good" if data.get("status") == "done" else "bad"
    if kind == "approval_decided":
        return "person"
    return _TONES.get(kind, "plain")


_TONES: Final = {
    "model_replied": "model",
    "plan_updated": "model",
    "context_summarised": "model",
    "key_state_changed": "model",
    "action_succeeded": "good",
    "action_adopted": "good",
    "effect_found": "good",
    "compensation_finished": "good",
    "action_failed": "bad",
    "action_unknown": "bad",
    "action_in_doubt": "bad",
    "action_cancelled": "bad",
    "ending_started": "bad",
    "approval_expired": "bad",
    "retry_scheduled": "wait",
    "approval_requested": "wait",
    "approver_notified": "person",
    "message_received": "person",
    "run_paused": "person",
    "run_resumed": "person",
    "budget_changed": "person",
}
