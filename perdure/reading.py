"""Runs as the topics tell them: what the commands show where no view runs.

`history` and `Overview` read agent.events, `live` the engine's changelog; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from perdure.schemas import topics
from perdure.schemas.records import RunEvent, ToolSpec
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.planning.rendering import render
from perdure.streams.core.policies.outcome import run_state
from perdure.streams.core.state import Run

from .topics_reader import Raw, Scanner

COVER: Final = "***"

# --- events -----------------------------------------------------------------------------------

_event = msgspec.json.Decoder(RunEvent)


def event_of(raw: Raw) -> RunEvent | None:
    """The event of a record of agent.events, or None where it is none."""
    try:
        return _event.decode(raw.value or b"")
    except (msgspec.DecodeError, RecursionError):
        return None


def history(scanner: Scanner, run_id: str) -> Iterator[tuple[Raw, RunEvent | None]]:
    """The records of agent.events that stand under a run's key, and the event that each is.

    Raises `NoTopic`, `Unreachable`.
    """
    wanted = run_id.encode()
    for raw in scanner.scan([topics.EVENTS], run_id=run_id):
        if raw is not None and raw.key == wanted:
            yield raw, event_of(raw)


class Summary(msgspec.Struct, kw_only=True):
    """A run in one line."""

    run_id: str
    agent: str
    user_id: str
    session_id: str
    tenant: str
    status: str = "running"
    paused: bool = False
    version: int = 0
    step: int = 0
    actions: int = 0
    last: str = ""
    ending: str | None = None
    started_at: int = 0
    updated_at: int = 0
    finished_at: int | None = None
    waiting_for: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def take(self, event: RunEvent) -> None:
        """What one more event says. Events that came before are ignored."""
        if event.version <= self.version:
            return
        self.version = event.version
        self.updated_at = event.at
        change = _CHANGES.get(event.type)
        if change is not None:
            try:
                change(self, event.data)
            except (KeyError, TypeError, AttributeError):
                self.last = f"event {event.version} is not sound"
        if event.type == "run_started":
            self.started_at = event.at
        elif event.type == "run_finished":
            self.finished_at = event.at


def _finished(summary: Summary, data: dict[str, Any]) -> None:
    summary.status = data["status"]
    summary.waiting_for = []


def _status(summary: Summary, data: dict[str, Any]) -> None:
    summary.status = data["to"]


def _proposed(summary: Summary, data: dict[str, Any]) -> None:
    summary.actions = data["n"]
    summary.last = data["target"]


def _asked(summary: Summary, data: dict[str, Any]) -> None:
    asked = data["approval"]
    summary.waiting_for.append(
        {
            "kind": asked["kind"],
            "approval_id": f"{summary.run_id}/a{asked['n']}",
            "title": asked.get("title", ""),
            "until": asked.get("expires_at"),
        }
    )


def _step(summary: Summary, data: dict[str, Any]) -> None:
    summary.step = data["step"]


def _ending(summary: Summary, data: dict[str, Any]) -> None:
    summary.ending = data["reason"]
    summary.waiting_for = []


def _closed(summary: Summary, data: dict[str, Any]) -> None:
    if data.get("closes", True):
        gone = f"{summary.run_id}/a{data['n']}"
        summary.waiting_for = [w for w in summary.waiting_for if w["approval_id"] != gone]


def _paused(summary: Summary, data: dict[str, Any]) -> None:
    summary.paused = True


def _resumed(summary: Summary, data: dict[str, Any]) -> None:
    summary.paused = False


_CHANGES: Final = {
    "step_started": _step,
    "action_proposed": _proposed,
    "status_changed": _status,
    "approval_requested": _asked,
    "approval_decided": _closed,
    "approval_expired": _closed,
    "ending_started": _ending,
    "run_paused": _paused,
    "run_resumed": _resumed,
    "run_finished": _finished,
}


class Overview:
    """Every run of agent.events in one line each. Owns only what it has read."""

    def __init__(self) -> None:
        self.runs: dict[str, Summary] = {}

    def take(self, event: RunEvent) -> Summary:
        summary = self.runs.get(event.run_id)
        if summary is None:
            summary = self.runs[event.run_id] = Summary(
                run_id=event.run_id,
                agent=event.agent,
                user_id=event.user_id,
                session_id=event.session_id,
                tenant=event.tenant,
            )
        summary.take(event)
        return summary

    def settle(self, open_questions: Iterable[str]) -> None:
        """Drop questions that the pending topic no longer holds (a result may close one)."""
        known = set(open_questions)
        for summary in self.runs.values():
            summary.waiting_for = [w for w in summary.waiting_for if w["approval_id"] in known]


# --- state ------------------------------------------------------------------------------------


def covered(value: Any, names: frozenset[str]) -> Any:
    """The value with what stands under a sensitive name covered."""
    if not names:
        return value
    if isinstance(value, dict):
        return {
            key: COVER if key in names else covered(inner, names) for key, inner in value.items()
        }
    return [covered(inner, names) for inner in value] if isinstance(value, list) else value


def sensitive(tools: Mapping[str, ToolSpec], tool: str | None) -> frozenset[str]:
    """The names that a tool marks as sensitive."""
    spec = tools.get(tool or "")
    return frozenset(spec.sensitive) if spec is not None else frozenset()


def state_of(run: Run, *, quarantined: bool = False, uncover: bool = False) -> dict[str, Any]:
    """RunState (contract section 5) as plain JSON; sensitive values covered unless ``uncover``."""
    messages = [render(run, run.message(n)) for n in range(run.header.messages)]
    state = run_state(run, messages)
    state["quarantined"] = quarantined
    if uncover:
        return state
    tools = run.start.tools
    for action in state["actions"]:
        names = sensitive(tools, action["tool"])
        action["arguments"] = covered(action["arguments"], names)
        action["result"] = covered(action["result"], names)
    if state["key_state"]:
        marked = (name for spec in tools.values() for name in spec.sensitive)
        state["key_state"] = covered(state["key_state"], frozenset(marked))
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["arguments"] = covered(call["arguments"], sensitive(tools, call["name"]))
    return state


_ONE_ACTION: Final = ("arguments", "result", "progress")


def covered_event(event: RunEvent, run: Run) -> RunEvent:
    """The event with what its action's tool marks as sensitive covered; ``run`` holds the action."""
    tools = run.start.tools
    data = event.data
    if not isinstance(data, dict) or not any(spec.sensitive for spec in tools.values()):
        return event
    if event.type == "model_replied":
        calls = [
            {
                **call,
                "arguments": covered(call.get("arguments"), sensitive(tools, call.get("name"))),
            }
            for call in data.get("calls") or ()
        ]
        return msgspec.structs.replace(event, data={**data, "calls": calls})
    if event.type == "approval_requested":
        asked = data["approval"]
        names = sensitive(tools, asked.get("tool"))
        return msgspec.structs.replace(event, data={"approval": covered(asked, names)})
    if event.type == "key_state_changed":
        marked = frozenset(name for spec in tools.values() for name in spec.sensitive)
        value = covered({data["name"]: data["value"]}, marked)[data["name"]]
        return msgspec.structs.replace(event, data={**data, "value": value})
    n = data.get("n")
    if event.type == "approval_decided":
        found = run.approval(n) if isinstance(n, int) else None
        n = None if found is None else found.action
    if not isinstance(n, int):
        return event
    names = sensitive(tools, run.action(n).target)
    shown = {
        key: covered(value, names) if key in _ONE_ACTION else value for key, value in data.items()
    }
    return msgspec.structs.replace(event, data=shown)


def is_over(run: Run) -> bool:
    return run.header.status in FINAL


# --- the engine's changelog -------------------------------------------------------------------


def live(scanner: Scanner, run_id: str) -> dict[bytes, bytes]:
    """What the engine holds of a run now: the store's keys and values, from its changelog.

    Raises `NoTopic`, `Unreachable`.
    """
    wanted = run_id.encode()
    longer = wanted + b"/"
    found: dict[bytes, bytes] = {}
    for raw in scanner.scan([topics.changelog(topics.ENGINE)], run_id=run_id):
        if raw is None or raw.key is None or raw.key[1:2] != b"/":
            continue
        rest = raw.key[2:]
        if rest != wanted and not rest.startswith(longer):
            continue
        if raw.value is None:
            found.pop(raw.key, None)
        else:
            found[raw.key] = raw.value
    return found
