"""A task starts a run, or is refused with a reason that a person understands."""

from __future__ import annotations

import difflib
from typing import Any, Final

import msgspec
from perdure.schemas.records import AgentSpec, PlanStep, Task, ToolSpec

from ..arguments import argument_error
from ..planning import plan, window
from ..policies.budget import lowered
from ..state import Header
from .decision import Decision, Lookup, Refusal, fitting
from .flow import advance
from .inputs import StartTask

MAX_STARTED_BYTES: Final = 900_000
"""Of ``run_started``: what we write stays under 1,000,000 bytes."""
_encode = msgspec.json.Encoder().encode


def wants(task: Task, lookup: Lookup) -> str | None:
    """What of the catalog is still missing for this task (worth waiting for), or None."""
    agent = lookup.agent(task.agent)
    if agent is None:
        return f"agent {task.agent} is unknown"
    missing = [name for name in agent.tools if lookup.tool(name) is None]
    return f"tool {missing[0]} of agent {task.agent} is announced by no worker" if missing else None


def start(message: StartTask, base: Any, now: int, lookup: Lookup) -> Decision | Refusal:
    """The first events of a run."""
    task = message.task
    agent = lookup.agent(task.agent)
    if agent is None:
        return Refusal(
            f"agent: {task.agent} is unknown{_near(task.agent, lookup)}: apply it with `perdure apply`"
        )
    broken = _earlier_turns(task)
    if broken is not None:
        return Refusal(broken)
    if task.plan is None and agent.model is None:
        return Refusal(f"agent {agent.name} has no model, so a task for it needs a plan")
    tools: dict[str, ToolSpec] = {}
    for name in agent.tools:
        tool = lookup.tool(name)
        if tool is None:
            return Refusal(
                f"tool {name} of agent {agent.name} is announced by no worker: start one with `perdure worker --tools FILE`"
            )
        tools[name] = tool
    if task.plan is not None:
        found = plan.problem(task.plan, agent) or _plan_arguments(task, tools)
        if found is not None:
            return Refusal(found)
    data = {
        "definition": definition(agent),
        "tools": {name: msgspec.to_builtins(tool) for name, tool in tools.items()},
        "input": task.input,
        "plan": None if task.plan is None else _fitting_plan(task.plan, lookup),
        "messages": None if task.messages is None else _fitting_turns(task.messages, lookup),
        "budget": msgspec.to_builtins(lowered(agent.budget, task.budget)),
        "deadline_at": task.deadline_at,
        "nonce": message.nonce,
        "digest": message.digest,
        "origin": message.origin,
    }
    size = len(_encode(data))
    if size > MAX_STARTED_BYTES:
        return Refusal(
            f"the task and its agent's definition are {size} bytes of JSON with large values taken "
            f"out; at most {MAX_STARTED_BYTES} fit into a run's first event"
        )
    header = Header(
        run_id=message.run_id,
        agent=task.agent,
        user_id=task.user_id,
        session_id=task.session_id or message.run_id,
        tenant=task.tenant,
        metadata=task.metadata,
    )
    decision = Decision.starting(header, base, now, lookup, data)
    if task.plan is None:
        broken = window.too_large(decision.run, task.input, "input")
        if broken is not None:
            return Refusal(broken)
    advance(decision)
    return decision


def definition(agent: AgentSpec) -> dict[str, Any]:
    """The agent as `run_started` keeps it."""
    made: dict[str, Any] = msgspec.to_builtins(agent)
    return made


def _fitting_plan(steps: list[PlanStep], lookup: Lookup) -> list[dict[str, Any]]:
    plan: list[dict[str, Any]] = [msgspec.to_builtins(step) for step in steps]
    undoing = [step["compensate"] for step in plan if step.get("compensate")]
    holders = [part for part in (*plan, *undoing) if part.get("arguments")]
    for part, arguments in zip(
        holders, fitting(lookup, [part["arguments"] for part in holders]), strict=True
    ):
        part["arguments"] = arguments
    return plan


def _fitting_turns(turns: list[dict[str, Any]], lookup: Lookup) -> list[dict[str, Any]]:
    contents = fitting(lookup, [turn.get("content") for turn in turns])
    return [{**turn, "content": content} for turn, content in zip(turns, contents, strict=True)]


def _earlier_turns(task: Task) -> str | None:
    """Tool calls of another conversation can't be paired with results here: they come as text."""
    for index, turn in enumerate(task.messages or ()):
        if turn.get("role", "user") not in ("user", "assistant"):
            return f"messages[{index}].role: must be user or assistant"
        content = turn.get("content")
        if content is None or (turn.get("role") == "assistant" and not isinstance(content, str)):
            return f"messages[{index}].content: must be {'a text' if turn.get('role') == 'assistant' else 'there'}"
    return None


def _plan_arguments(task: Task, tools: dict[str, ToolSpec]) -> str | None:
    """Arguments without expressions can be checked before anything runs."""
    for index, step in enumerate(task.plan or ()):
        if step.arguments.keys() == {"$"} or any(
            "$" in str(value) and isinstance(value, dict | list)
            for value in step.arguments.values()
        ):
            continue
        found = argument_error(tools[step.tool], step.arguments)
        if found is not None:
            return f"plan[{index}] ({step.id}): arguments: {found}"
    return None


def _near(name: str, lookup: Lookup) -> str:
    found = difflib.get_close_matches(name, lookup.agent_names(), 1)
    return f" (did you mean {found[0]}?)" if found else ""
