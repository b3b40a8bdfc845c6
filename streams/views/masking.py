"""What people see of a run: its state and events, with what a tool marks as sensitive covered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from perdure.schemas.records import RunEvent, ToolSpec
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.planning.rendering import render
from perdure.streams.core.policies.outcome import run_state
from perdure.streams.core.state import Run

COVER: Final = "***"


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
