"""A run as a timeline that a person reads in ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perdure.schemas.canonical import canonical
from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown


def lines(events: Iterable[RunEvent]) -> list[tuple[int, int, str, str]]:
    """(version, ms since the start, who, what) of every event that says something."""
    found: list[tuple[int, int, str, str]] = []
    names: dict[int, str] = {}
    start: int | None = None
    for event in events:
        start = event.at if start is None else start
        if event.type == "action_proposed":
            names[event.data["n"]] = event.data["target"]
        make = _TEXTS.get(event.type)
        text = None if make is None else make(event.data, names)
        if text:
            found.append((event.version, event.at - start, event.actor, text))
    return found


def print_timeline(console: Console, events: list[RunEvent]) -> None:
    """The timeline as a table."""
    if not events:
        return
    first = events[0]
    table = Table(title=escape(f"Run {first.run_id} (agent {first.agent}, user {first.user_id})"))
    table.add_column("v", justify="right")
    table.add_column("after", justify="right")
    table.add_column("who")
    table.add_column("what", overflow="fold")
    for version, after, actor, text in lines(events):
        table.add_row(str(version), f"{after / 1000:.3f} s", escape(shown(actor, 40)), escape(text))
    console.print(table)


def _value(value: Any, limit: int = 100) -> str:
    return shown(value if isinstance(value, str) else canonical(value).decode(), limit)


def _error(data: dict[str, Any]) -> str:
    error = data.get("error") or {}
    return shown(
        f"{error.get('kind', '')} {error.get('code', '')} {error.get('message', '')}".strip(), 120
    )


def _name(data: dict[str, Any], names: dict[int, str]) -> str:
    return f"{names.get(data['n'], '?')} ({data['n']})"


def _replied(data: dict[str, Any], names: dict[int, str]) -> str:
    if data["calls"]:
        return "model: calls " + ", ".join(shown(call["name"], 60) for call in data["calls"])
    return "model: " + _value(data.get("note") or data["content"] or "")


def _proposed(data: dict[str, Any], names: dict[int, str]) -> str | None:
    if data["kind"] == "model":
        return None
    if data["kind"] == "builtin" and data["target"] in _SELF_TOLD:
        return None
    asks = any(rule["asks"] for rule in data.get("rules", ()))
    return f"{_name(data, names)} {_value(data.get('arguments'))} [{data['effect']}{', asks' if asks else ''}]"


_SELF_TOLD: Final = frozenset({"pin", "update_plan"})
"""Built-in calls that an event of their own tells of."""


def _succeeded(data: dict[str, Any], names: dict[int, str]) -> str | None:
    if data.get("attempt") is None and names.get(data["n"]) in _SELF_TOLD:
        return None
    if "result" not in data:  # a model's: its reply is told by itself
        return None
    result = data["result"]
    if "degraded" in data:
        age = round(data["degraded"]["age_seconds"])
        older = f"its result of {age} s ago stands in ({data['degraded']['from']})"
        return f"{_name(data, names)} can't be reached ({_error(data)}): {older}"
    return f"{_name(data, names)} succeeded" + ("" if result is None else f": {_value(result)}")


def _failed(data: dict[str, Any], names: dict[int, str]) -> str:
    told = f"{_name(data, names)} failed: {_error(data)}"
    if data.get("replaced"):
        return f"{told}; its fallback takes over"
    return f"{told}; another model takes over" if data.get("next_model") is not None else told


def _decided(data: dict[str, Any], names: dict[int, str]) -> str:
    reason = f": {_value(data['reason'])}" if data.get("reason") else ""
    return f"question a{data['n']}: {data['decision']}{reason} (proved by {data['verified']})"


def _pinned(data: dict[str, Any], names: dict[int, str]) -> str:
    if data["value"] is None:
        return f"key fact {shown(data['name'], 60)} removed"
    return f"key fact {shown(data['name'], 60)}: {_value(data['value'])}"


def _planned(data: dict[str, Any], names: dict[int, str]) -> str:
    items = ", ".join(f"{shown(i['title'], 40)} {i['status']}" for i in data["plan"][:10])
    return f"to-do list of {len(data['plan'])}: {items}"


_TEXTS: Final[dict[str, Callable[[dict[str, Any], dict[int, str]], str | None]]] = {
    "run_started": lambda d, n: f"started with {_value(d.get('input'))}",
    "model_replied": _replied,
    "context_summarised": lambda d, n: (
        f"messages {d['from'] + 1} to {d['to']} summarised: {_value(d['summary'])}"
    ),
    "key_state_changed": _pinned,
    "plan_updated": _planned,
    "branch_skipped": lambda d, n: f"step {d['step_id']} skipped: {_value(d['when'])} is false",
    "action_skipped": lambda d, n: f"step {d['step_id']} not reached: {d['reason']}",
    "action_proposed": _proposed,
    "action_requested": lambda d, n: (
        f"{_name(d, n)} attempt {d['attempt']}" if d["attempt"] > 1 else None
    ),
    "action_succeeded": _succeeded,
    "action_adopted": lambda d, n: (
        f"{_name(d, n)} had happened: found by its query: {_value(d.get('result'))}"
    ),
    "effect_found": lambda d, n: f"{_name(d, n)} had happened after all: {_value(d.get('result'))}",
    "action_failed": _failed,
    "retry_scheduled": lambda d, n: f"{_name(d, n)} tried again later: {_error(d)}",
    "action_unknown": lambda d, n: f"{_name(d, n)} may or may not have happened: {_error(d)}",
    "action_queried": lambda d, n: f"{_name(d, n)}: asking whether it happened",
    "action_in_doubt": lambda d, n: f"{_name(d, n)} is in doubt",
    "action_cancelled": lambda d, n: f"{_name(d, n)} cancelled: {shown(d['reason'])}",
    "approval_requested": lambda d, n: (
        f"question a{d['approval']['n']} ({d['approval']['kind']}): {shown(d['approval']['title'])}"
    ),
    "approval_decided": _decided,
    "approval_expired": lambda d, n: f"question a{d['n']} expired: {d['decision']}",
    "ending_started": lambda d, n: f"ending ({d['to']}): {shown(d['reason'])}",
    "budget_changed": lambda d, n: f"budget is now {_value(d['budget'])}",
    "message_received": lambda d, n: f"message: {_value(d['content'])}",
    "run_paused": lambda d, n: "paused",
    "run_resumed": lambda d, n: "resumed",
    "run_finished": lambda d, n: f"finished: {d['status']}",
}
