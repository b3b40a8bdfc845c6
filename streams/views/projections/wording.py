"""Each event in one readable line: the one source of the words for the page, the API and the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.schemas.canonical import canonical
from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown

Data = dict[str, Any]
Name = Callable[[Any], str | None]
"""The n of an action -> how it is called where the line is read; None where nobody knows."""


def title(event: RunEvent, name: Name) -> str:
    """One line, with nothing in it that could move a cursor or hide. Never raises."""
    data: Data = event.data if isinstance(event.data, dict) else {}
    make = TITLES.get(event.type)
    try:
        if make is not None:
            return make(data, lambda n: name(n) or shown(data.get("target") or "a call", 60))
    except (KeyError, TypeError, AttributeError, IndexError):
        pass  # an event that holds other things than its type says is told by its type
    return shown(event.type.replace("_", " "), 60)


Words = Callable[[Any], str]


def _value(value: Any, limit: int = 160) -> str:
    if value is None:
        return ""
    return shown(value if isinstance(value, str) else canonical(value).decode(), limit)


def _with(value: Any) -> str:
    return f": {_value(value)}" if value is not None else ""


def _error(data: Data) -> str:
    error = data.get("error") or {}
    words = (error.get("code") or error.get("kind") or "", error.get("message") or "")
    return shown(": ".join(str(word) for word in words if word), 160)


def _plain(word: Any) -> str:
    return shown(str(word).replace("_", " "), 60)


def _replied(data: Data, name: Words) -> str:
    calls = [shown(call["name"], 60) for call in data["calls"]]
    if calls:
        return "The model calls " + ", ".join(calls)
    if data.get("note"):  # why its reply can't be used; the next call begins with it
        return "Told to the model: " + _value(data["note"])
    return "The model says: " + _value(data["content"] or "nothing")


def _started(data: Data, name: Words) -> str:
    given = _value(data.get("input"))
    steps = len(data.get("plan") or ())
    if not given and steps:
        given = f"a plan of {steps} {'step' if steps == 1 else 'steps'}"
    return f"Started with {given}" if given else "Started"


def _planned(data: Data, name: Words) -> str:
    items = ", ".join(f"{shown(i['title'], 40)} {_plain(i['status'])}" for i in data["plan"][:10])
    return f"To-do list of {len(data['plan'])}" + (f": {items}" if items else "")


def _proposed(data: Data, name: Words) -> str:
    if data["kind"] == "model":
        return f"Asking the model {shown(data['target'], 60)}"
    asks = any(rule.get("asks") for rule in data.get("rules") or ())
    marks = [str(data.get("effect") or ""), "a person is asked first" if asks else ""]
    more = ", ".join(mark for mark in marks if mark)
    line = f"{name(data['n'])} {_value(data.get('arguments'), 100)}".rstrip()
    return f"{line} [{more}]" if more else line


def _requested(data: Data, name: Words) -> str:
    attempt = data.get("attempt") or 1
    return f"{name(data['n'])} sent" + (f", attempt {attempt}" if attempt > 1 else "")


def _succeeded(data: Data, name: Words) -> str:
    who = name(data["n"])
    degraded = data.get("degraded")
    if degraded:
        age = round(degraded["age_seconds"])
        older = f"its result of {age} s ago stands in ({shown(degraded['from'], 100)})"
        return f"{who} can't be reached ({_error(data)}): {older}"
    return f"{who} succeeded{_with(data.get('result'))}"


def _failed(data: Data, name: Words) -> str:
    told = f"{name(data['n'])} failed: {_error(data)}"
    if data.get("replaced"):
        return f"{told}; its fallback takes over"
    return f"{told}; another model takes over" if data.get("next_model") is not None else told


def _skipped(data: Data, name: Words) -> str:
    return f"Step {shown(data['step_id'], 60)} not reached{_with(data.get('reason'))}"


def _branch(data: Data, name: Words) -> str:
    condition = data.get("when")
    what = "its condition" if condition is None else _value(condition, 100)
    return f"Step {shown(data['step_id'], 60)} skipped: {what} is false"


def _asked(data: Data, name: Words) -> str:
    asked = data["approval"]
    what = shown(asked.get("title") or "", 160)
    return f"Question a{asked['n']} ({_plain(asked['kind'])}): {what}"


def _decided(data: Data, name: Words) -> str:
    proof = data.get("verified")
    proved = f" (proved by {_plain(proof)})" if proof and proof != "none" else " (name not proved)"
    who = shown(data["approver"], 60)
    others = ""
    if "asks" in data:
        asked = [shown(name, 60) for name in data["asks"]["approvers"][:5]]
        others = f"; now asked: {', '.join(asked) or 'others'}"
    return f"{who} decided a{data['n']}: {_plain(data['decision'])}{_with(data.get('reason') or None)}{proved}{others}"


def _ending(data: Data, name: Words) -> str:
    words = {"done": "Stopping", "failed": "Failing", "cancelled": "Cancelling"}
    return f"{words.get(data['to'], 'Ending')}: {shown(data['reason'], 160)}"


def _fact(data: Data, name: Words) -> str:
    if data["value"] is None:
        return f"Key fact {shown(data['name'], 60)} removed"
    return f"Key fact {shown(data['name'], 60)}: {_value(data['value'], 100)}"


def _summarised(data: Data, name: Words) -> str:
    return f"Messages {data['from'] + 1} to {data['to']} summarised{_with(data.get('summary'))}"


def _step(data: Data, name: Words) -> str:
    return f"Step {data['step']}: {shown(data.get('title') or '', 100)}".rstrip(": ")


TITLES: Final[dict[str, Callable[[Data, Words], str]]] = {
    "run_started": _started,
    "step_started": _step,
    "model_replied": _replied,
    "plan_updated": _planned,
    "branch_taken": lambda d, n: f"Step {shown(d['step_id'], 60)}: its condition holds",
    "branch_skipped": _branch,
    "action_proposed": _proposed,
    "action_requested": _requested,
    "action_started": lambda d, n: f"{n(d['n'])} has begun",
    "action_progressed": lambda d, n: (
        f"{n(d['n'])} saved its progress"
        if "progress" in d
        else f"{n(d['n'])} answered late: it counts"
    ),
    "action_succeeded": _succeeded,
    "action_failed": _failed,
    "action_unknown": lambda d, n: f"{n(d['n'])} may or may not have happened: {_error(d)}",
    "action_adopted": lambda d, n: (
        f"{n(d['n'])} had happened already: found by its query{_with(d.get('result'))}"
    ),
    "action_cancelled": lambda d, n: f"{n(d['n'])} cancelled{_with(d.get('reason'))}",
    "action_skipped": _skipped,
    "action_queried": lambda d, n: f"Asking whether {n(d['n'])} happened",
    "action_in_doubt": lambda d, n: f"{n(d['n'])} is in doubt",
    "effect_found": lambda d, n: f"{n(d['n'])} had happened after all{_with(d.get('result'))}",
    "retry_scheduled": lambda d, n: f"{n(d['n'])} is tried again later: {_error(d)}",
    "approval_requested": _asked,
    "approval_decided": _decided,
    "approval_expired": lambda d, n: f"Question a{d['n']} expired: {_plain(d['decision'])}",
    "approver_notified": lambda d, n: f"People were told of a{d['n']}",
    "status_changed": lambda d, n: f"Now {_plain(d['to'])}",
    "ending_started": _ending,
    "budget_changed": lambda d, n: f"Budget is now {_value(d['budget'])}",
    "message_received": lambda d, n: f"Message: {_value(d['content'])}",
    "context_summarised": _summarised,
    "key_state_changed": _fact,
    "compensation_started": lambda d, n: f"Undoing {n(d['n'])}",
    "compensation_finished": lambda d, n: f"{n(d['n'])}: {_plain(d['status'])}",
    "run_paused": lambda d, n: "Paused",
    "run_resumed": lambda d, n: "Resumed",
    "run_finished": lambda d, n: f"Finished: {_plain(d['status'])}",
}
"""Total over the event types, which a test says."""
