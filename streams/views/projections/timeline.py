"""A run's events as entries that a person reads in ten seconds: a line, a tone, bounded detail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.schemas.canonical import canonical
from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown
from perdure.streams.core.state import Run

from .exact import cut

Data = dict[str, Any]
Name = Callable[[Any], str]


def entry(event: RunEvent, run: Run | None, step: int) -> dict[str, Any]:
    """One event as the API's Entry. ``run`` tells the names of actions; ``step`` is the run's then."""
    data: Data = event.data if isinstance(event.data, dict) else {}

    def name(n: Any) -> str:
        action = run.get(("a", n)) if run is not None and isinstance(n, int) else None
        return "a call" if action is None else shown(action.target, 60)

    make = _TITLES.get(event.type)
    try:
        title = event.type.replace("_", " ") if make is None else make(data, name)
    except (KeyError, TypeError, AttributeError):
        title = event.type.replace("_", " ")
    return {
        "version": event.version,
        "at": event.at,
        "type": event.type,
        "actor": event.actor,
        "step": step,
        "action_id": _action_id(event, data),
        "title": title,
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


def _value(value: Any, limit: int = 100) -> str:
    if value is None:
        return ""
    return shown(value if isinstance(value, str) else canonical(value).decode(), limit)


def _error(data: Data) -> str:
    error = data.get("error") or {}
    words = (error.get("code") or error.get("kind") or "", error.get("message") or "")
    return shown(": ".join(word for word in words if word), 160)


def _replied(data: Data, name: Name) -> str:
    calls = [shown(call["name"], 60) for call in data["calls"]]
    if calls:
        return "The model calls " + ", ".join(calls)
    return "The model says: " + _value(data.get("note") or data["content"] or "nothing", 160)


def _proposed(data: Data, name: Name) -> str:
    if data["kind"] == "model":
        return f"Asking the model {shown(data['target'], 60)}"
    asks = (
        " (a person is asked first)" if any(r.get("asks") for r in data.get("rules") or ()) else ""
    )
    return f"{shown(data['target'], 60)} {_value(data.get('arguments'))}".rstrip() + asks


def _requested(data: Data, name: Name) -> str:
    attempt = data.get("attempt") or 1
    return f"{name(data['n'])} sent" + (f", attempt {attempt}" if attempt > 1 else "")


def _succeeded(data: Data, name: Name) -> str:
    result = _value(data.get("result"))
    stale = " from an older result" if data.get("degraded") else ""
    return f"{name(data['n'])} succeeded{stale}" + (f": {result}" if result else "")


def _asked(data: Data, name: Name) -> str:
    asked = data["approval"]
    return f"Asked ({asked['kind'].replace('_', ' ')}): {shown(asked.get('title') or '', 160)}"


def _decided(data: Data, name: Name) -> str:
    reason = f": {_value(data['reason'])}" if data.get("reason") else ""
    word = str(data["decision"]).replace("_", " ")
    return f"{shown(data['approver'], 60)} decided a{data['n']}: {word}{reason}"


def _ending(data: Data, name: Name) -> str:
    words = {"done": "Stopping", "failed": "Failing", "cancelled": "Cancelling"}
    return f"{words.get(data['to'], 'Ending')}: {shown(data['reason'], 160)}"


def _fact(data: Data, name: Name) -> str:
    if data["value"] is None:
        return f"Key fact {shown(data['name'], 60)} removed"
    return f"Key fact {shown(data['name'], 60)}: {_value(data['value'])}"


_TITLES: Final[dict[str, Callable[[Data, Name], str]]] = {
    "run_started": lambda d, n: f"Started with {_value(d.get('input'), 160)}",
    "step_started": lambda d, n: f"Step {d['step']}: {shown(d.get('title') or '', 100)}".rstrip(
        ": "
    ),
    "model_replied": _replied,
    "plan_updated": lambda d, n: f"To-do list of {len(d['plan'])}",
    "branch_taken": lambda d, n: f"Step {shown(d['step_id'], 60)}: its condition holds",
    "branch_skipped": lambda d, n: (
        f"Step {shown(d['step_id'], 60)} skipped: its condition is false"
    ),
    "action_proposed": _proposed,
    "action_requested": _requested,
    "action_started": lambda d, n: f"{n(d['n'])} has begun",
    "action_progressed": lambda d, n: f"{n(d['n'])} saved its progress",
    "action_succeeded": _succeeded,
    "action_failed": lambda d, n: f"{n(d['n'])} failed: {_error(d)}",
    "action_unknown": lambda d, n: f"{n(d['n'])} may or may not have happened: {_error(d)}",
    "action_adopted": lambda d, n: f"{n(d['n'])} had happened already: {_value(d.get('result'))}",
    "action_cancelled": lambda d, n: f"{n(d['n'])} cancelled",
    "action_skipped": lambda d, n: f"Step {shown(d['step_id'], 60)} not reached",
    "action_queried": lambda d, n: f"Asking whether {n(d['n'])} happened",
    "action_in_doubt": lambda d, n: f"{n(d['n'])} is in doubt",
    "effect_found": lambda d, n: f"{n(d['n'])} had happened after all",
    "retry_scheduled": lambda d, n: f"{n(d['n'])} is tried again later: {_error(d)}",
    "approval_requested": _asked,
    "approval_decided": _decided,
    "approval_expired": lambda d, n: (
        f"Question a{d['n']} expired: {d['decision'].replace('_', ' ')}"
    ),
    "approver_notified": lambda d, n: f"People were told of a{d['n']}",
    "status_changed": lambda d, n: f"Now {str(d['to']).replace('_', ' ')}",
    "ending_started": _ending,
    "budget_changed": lambda d, n: f"Budget is now {_value(d['budget'])}",
    "message_received": lambda d, n: f"Message: {_value(d['content'], 160)}",
    "context_summarised": lambda d, n: f"Messages up to {d['to']} summarised",
    "key_state_changed": _fact,
    "compensation_started": lambda d, n: f"Undoing {n(d['n'])}",
    "compensation_finished": lambda d, n: f"{n(d['n'])}: {str(d['status']).replace('_', ' ')}",
    "run_paused": lambda d, n: "Paused",
    "run_resumed": lambda d, n: "Resumed",
    "run_finished": lambda d, n: f"Finished: {d['status']}",
}
