"""What people see of a run: its state and events, with what a tool marks as sensitive covered.

Where a run's state can't be made, it is not known which tool a value is of: then more is covered,
never less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from perdure.schemas.records import RunEvent, ToolSpec
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.planning.rendering import render
from perdure.streams.core.policies.outcome import run_state
from perdure.streams.core.state import Run

COVER: Final = "***"
NamesOf = Callable[[str | None], frozenset[str]]
"""The names that a tool marks as sensitive."""


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


def covered_question(asked: dict[str, Any], names_of: NamesOf) -> dict[str, Any]:
    """A question as plain JSON: its own values by its tool, each call done before by that call's."""
    names = names_of(asked.get("tool"))
    past = covered_history(asked.get("history"), names_of)
    return {**covered({**asked, "history": None}, names), "history": past}


def covered_history(past: Any, names_of: NamesOf) -> Any:
    """What a question says of the calls before it."""
    if not isinstance(past, dict):
        return past
    return {
        **past,
        "completed": [
            {**done, "arguments": covered(done.get("arguments"), names_of(done.get("tool")))}
            for done in past.get("completed") or ()
        ],
    }


def covered_blind(event: RunEvent, names: frozenset[str] | None) -> RunEvent:
    """The event of a run without a state. ``names``: all that any of its tools may mark as
    sensitive; None: nobody knows, so no value of a call is shown."""
    data = event.data
    if names is None:
        data = covered(data, _OF_CALLS)
    return msgspec.structs.replace(event, data=covered(data, names or frozenset()))


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
_OF_CALLS: Final = frozenset(
    {*_ONE_ACTION, "original_arguments", "calls", "plan", "approval", "value", "answer", "content"}
)


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
        asked = covered_question(data["approval"], lambda tool: sensitive(tools, tool))
        return msgspec.structs.replace(event, data={**data, "approval": asked})
    if event.type == "run_started" and isinstance(data.get("plan"), list):
        plan = [
            {**step, "arguments": covered(step["arguments"], sensitive(tools, step.get("tool")))}
            if isinstance(step, dict) and "arguments" in step
            else step
            for step in data["plan"]
        ]
        return msgspec.structs.replace(event, data={**data, "plan": plan})
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
        key: covered(value, names) if key in (*_ONE_ACTION, "asks") else value
        for key, value in data.items()
    }
    return msgspec.structs.replace(event, data=shown)


def is_over(run: Run) -> bool:
    return run.header.status in FINAL
