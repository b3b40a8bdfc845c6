"""Compensation: what was done is undone, last first (lifecycle section 5).

It begins once an ending has nothing left in flight. Each undoing is an action like any other, one
at a time: it has a key, retries and an effect of its own, asks nobody (approving the action
approved its undoing), and one that fails for good goes to a person while the run stays
compensating. The stack is not kept: it is the completed actions that can be undone, by when they
were completed, so an effect that is found late is on it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from perdure.schemas.records import ToolSpec

from .. import cel, keys
from ..arguments import argument_error, properties
from ..lifecycle import SUCCEEDED
from ..planning import plan
from ..state import Action, Run
from .decision import Decision
from .moves import fail, request


def go_on(decision: Decision) -> bool:
    """Undo the next one. False: nothing is left, the run may end."""
    run = decision.run
    header = run.header
    if header.undoing:
        if header.undoing in header.open:
            return True
        undoing = run.action(header.undoing)
        if undoing.status == "cancelled" and undoing.undoes is not None:
            _undo(decision, run.action(undoing.undoes))
            return True
        _finished(decision, undoing)
    action = _last_done(run)
    if action is None:
        return False
    _undo(decision, action)
    return True


def begin_again(decision: Decision, undoing: Action) -> bool:
    """An undoing that a person has tried again and that was never sent: nobody served its tool, or its
    arguments could not be made. Another takes its place, made of what is there now."""
    if undoing.kind != "compensation" or undoing.attempt:
        return False
    told = "never sent: it is made anew"
    decision.emit("action_cancelled", {"n": undoing.n, "reason": told}, "policy:compensation")
    return True


def _last_done(run: Run) -> Action | None:
    """The completed action of this run's own that was completed last and can be undone."""
    found: Action | None = None
    for n in range(1, run.header.next_action):
        action = run.action(n)
        if (
            action.kind == "tool"
            and run.owns(action)
            and action.status == "succeeded"
            and (action.twin is None or action.attempt)  # an adopted result is undone once
            and _undoing_tool(run, action) is not None
            and (found is None or (action.finished_at or 0, n) >= (found.finished_at or 0, found.n))
        ):
            found = action
    return found


def _undoing_tool(run: Run, action: Action) -> str | None:
    step = _step(run, action)
    if step is not None and step.compensate is not None:
        return str(step.compensate.tool)
    spec = run.start.tools.get(action.target)
    return None if spec is None else spec.compensate


def _step(run: Run, action: Action) -> Any:
    if action.step_id is None:
        return None
    spec = run.start.tools.get(action.target)
    if action.stands_for is not None and spec is not None and spec.compensate:
        return None  # another tool has done it, and knows how to undo it
    return next(step for step in run.start.plan or () if step.id == action.step_id)


def _undo(decision: Decision, action: Action) -> None:
    if not decision.run.header.paused:
        _begin(decision, action)


def _begin(decision: Decision, action: Action) -> None:
    run = decision.run
    header = run.header
    name = _undoing_tool(run, action)
    assert name is not None
    tool = decision.lookup.tool(name) or run.start.tools.get(name)
    spec = tool or ToolSpec(name=name, effect="external")
    problem = None if tool is not None else ("NO_SUCH_TOOL", f"no worker announces {name}")
    arguments: dict[str, Any] = {}
    try:
        arguments = _arguments(decision, action, spec)
        broken = None if tool is None else argument_error(spec, arguments)
        problem = problem or (None if broken is None else ("invalid_arguments", broken))
    except cel.ExpressionError as error:
        problem = problem or ("PLAN_EXPRESSION", str(error))
    if header.status != "compensating":
        if header.status != "running":
            decision.emit("status_changed", {"from": header.status, "to": "running"})
        decision.emit("status_changed", {"from": "running", "to": "compensating"})
    n = header.next_action
    data: dict[str, Any] = {
        "n": n,
        "kind": "compensation",
        "step": action.step,
        "target": spec.name,
        "queue": spec.queue,
        "arguments": decision.lookup.keep(arguments),
        "effect": spec.effect,
        "has_query": spec.has_query,
        "key": keys.idempotency_key(header.run_id, n, header.nonce),
        "timeout_seconds": spec.timeout_seconds,
        "undoes": action.n,
        "rules": [],
    }
    if spec.settle_seconds is not None:
        data["settle_seconds"] = spec.settle_seconds
    if tool is not None and run.start.tools.get(name) != tool:
        data["spec"] = msgspec.to_builtins(tool)
    decision.emit("action_proposed", data, "policy:compensation")
    decision.emit("compensation_started", {"n": action.n, "action": n}, "policy:compensation")
    if problem is None:
        request(decision, n)
    else:
        kind = "unavailable" if problem[0] == "NO_SUCH_TOOL" else "invalid_arguments"
        why = {"kind": kind, "code": problem[0], "message": problem[1]}
        fail(decision, n, why, {}, ambiguous=False)


def _arguments(decision: Decision, action: Action, spec: ToolSpec) -> dict[str, Any]:
    """A plan's step says them; else those of the action's own, and its result, that fit."""
    run = decision.run
    step = _step(run, action)
    if step is not None and step.compensate is not None:
        given = decision.lookup.value(step.compensate.arguments)
        return cel.arguments(given, plan.variables(decision))
    own = decision.lookup.value(action.arguments) or {}
    wanted = properties(spec.parameters)
    found = {name: own[name] for name in wanted if name in own}
    if "result" in wanted and "result" not in own:
        found["result"] = decision.lookup.value(action.result)
    return found


def _finished(decision: Decision, undoing: Action) -> None:
    """It is closed: what it undoes is undone, or is said not to be."""
    done = undoing.status in SUCCEEDED
    data: dict[str, Any] = {
        "n": undoing.undoes,
        "action": undoing.n,
        "status": "compensated" if done else "compensation_failed",
    }
    if not done and undoing.error is not None:
        data["error"] = undoing.error
    decision.emit("compensation_finished", data, "policy:compensation")
