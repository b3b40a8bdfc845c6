"""The moves of a run that deciders, the plan and the model loop share.

Each emits the events of one move: request, propose, ask, fail, end, finish.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical
from perdure.schemas.records import ApprovalRule, ToolSpec

from .. import effects, keys
from ..lifecycle import IN_FLIGHT, RUN_TRANSITIONS, SUCCEEDED
from ..planning import summary
from ..planning.window import View
from ..policies import approval as approvals
from ..policies.budget import used_up
from ..state import Action, Approval, Run
from .decision import Decision

RETENTION_MS: Final = 7 * 86_400_000
"""A finished run's records are kept this long."""


def request(decision: Decision, n: int, *, proven: bool = False, shown: View | None = None) -> None:
    """Put the next attempt on its way, unless its queue can't be reached.

    ``proven``: it is known that no attempt so far had its effect. ``shown``: the request of a model's
    call, where it has been made already.
    """
    run = decision.run
    action = run.action(n)
    if run.header.paused:  # kept until the run is resumed: its timer fires then
        error = action.error or {
            "kind": "transient",
            "code": "PAUSED",
            "message": "the run is paused",
        }
        data = {
            "n": n,
            "attempt": action.attempt,
            "error": error,
            "ambiguous": action.ambiguous and not proven,
            "due": decision.now,
        }
        decision.emit("retry_scheduled", data)
        return
    problem = decision.lookup.queue_problem(action.queue)
    if problem is not None:
        error = {"kind": "unavailable", "code": "NO_QUEUE", "message": problem}
        fail(decision, n, error, {}, ambiguous=action.ambiguous and not proven)
        return
    expires = effects.expires_at(run, action, decision.now)
    sent: dict[str, Any] = {
        "n": n,
        "attempt": action.attempt + 1,
        "expires_at": expires,
        "due": effects.call_timer(action, expires),
    }
    if proven:
        sent["proven"] = True
    if action.kind == "model":
        shown = shown or summary.request_of(run, action)
        sent |= {"layer": shown.layer, "estimate": shown.tokens}
    decision.emit("action_requested", sent)


def propose(
    decision: Decision,
    *,
    tool: ToolSpec,
    arguments: Any,
    step: int,
    why: str | None = None,
    step_id: str | None = None,
    message: int | None = None,
    call_id: str | None = None,
    always: bool = False,
) -> None:
    """Propose a tool's call; ask a person or request it at once."""
    run = decision.run
    header = run.header
    agent = run.definition
    n = header.next_action
    # Conditions see the arguments themselves: on a reference to a large value they would be false.
    arguments = decision.lookup.value(arguments)
    rules = approvals.evaluate(run, agent, tool, arguments, always)
    name = declared(tool, arguments)
    twin = None if name is None else _twin(decision, name)
    arguments = decision.lookup.keep(arguments)
    data: dict[str, Any] = {
        "n": n,
        "kind": "tool",
        "step": step,
        "target": tool.name,
        "queue": tool.queue,
        "arguments": arguments,
        "effect": tool.effect,
        "has_query": tool.has_query,
        "key": keys.idempotency_key(header.run_id, name or n, header.nonce),
        "timeout_seconds": tool.timeout_seconds,
        "rules": rules.evaluated,
    }
    optional = {
        "settle_seconds": tool.settle_seconds,
        "why": why,
        "step_id": step_id,
        "message": message,
        "call_id": call_id,
        "twin": twin,
        "keyed": name,
    }
    data.update({name: value for name, value in optional.items() if value is not None})
    if run.start.tools.get(tool.name) != tool:
        data["spec"] = msgspec.to_builtins(tool)
    actor = "policy:plan" if header.planned else f"model:{_model_name(decision)}"
    decision.emit("action_proposed", data, actor)
    if twin is None:
        _request_or_ask(decision, n, rules)
    else:
        put_forward(decision, n)


def declared(tool: ToolSpec, arguments: Any) -> str | None:
    if not tool.key or not isinstance(arguments, dict):
        return None
    return keys.declared(tool.name, canonical({name: arguments.get(name) for name in tool.key}))


def _twin(decision: Decision, name: str) -> int | None:
    """The last call of this run with the same declared key that did not come to nothing.

    The last, so that of three calls at once the third waits for the second, not both for the first.
    """
    run = decision.run
    n = run.keyed(name)
    while n is not None:
        action = run.action(n)
        if n in run.header.open or action.status in SUCCEEDED or action.status == "in_doubt":
            return n
        n = action.twin
    return None


def living_twin(decision: Decision, n: int) -> int | None:
    """Another call of the run that has this one's declared key and has succeeded or is under way."""
    action = decision.run.action(n)
    spec = decision.run.start.tools.get(action.target)
    name = None
    if action.kind == "tool" and spec is not None:
        name = declared(spec, decision.lookup.value(action.arguments))
    first = None if name is None else _twin(decision, name)
    return None if first == n else first


def put_forward(decision: Decision, n: int) -> None:
    """Let a proposed action go on: adopt its twin's result, wait for it, ask, or request."""
    run = decision.run
    action = run.action(n)
    if action.twin is not None:
        first = run.action(action.twin)
        if first.status in SUCCEEDED:
            decision.emit(
                "action_adopted",
                {"n": n, "result": first.result, "of": run.action_id(first.n)},
            )
            return
        if first.n in run.header.open:
            return  # `advance` comes here again once it is closed
    tool = run.spec(action.target)
    arguments = decision.lookup.value(action.arguments)
    _request_or_ask(
        decision,
        n,
        approvals.evaluate(run, run.definition, tool, arguments, _plan_asks(run, action)),
    )


def _plan_asks(run: Run, action: Action) -> bool:
    return any(
        step.id == action.step_id and step.approval == "always" for step in run.start.plan or ()
    )


def _request_or_ask(decision: Decision, n: int, rules: approvals.Rules) -> None:
    if not rules.asks:
        request(decision, n)
        return
    run = decision.run
    action = run.action(n)
    tool = run.spec(action.target)
    question = approvals.open_question(
        run,
        kind="action",
        rule=rules.rule,
        now=decision.now,
        title=approvals.title_of(tool, decision.lookup.value(action.arguments)),
        action=n,
        tool=tool.name,
        arguments=action.arguments,
        effect=tool.effect,
        reason=action.why,
        fired=rules.fired,
    )
    _open(decision, question)


def _open(decision: Decision, question: Approval) -> None:
    decision.emit("approval_requested", {"approval": msgspec.to_builtins(question)})
    decision.opened.append(question.n)


def _model_name(decision: Decision) -> str:
    model = decision.run.definition.model
    return "" if model is None else model.name or model.provider


def ask(
    decision: Decision,
    kind: str,
    title: str,
    *,
    action: Action | None = None,
    question: str | None = None,
    fired: Any = None,
    reason: str | None = None,
    asked_by: int | None = None,
) -> None:
    """Open a question that no condition decides."""
    tool = None if action is None or action.kind != "tool" else action.target
    rule: ApprovalRule = approvals.rule_for(decision.run.definition, kind, tool)
    made = approvals.open_question(
        decision.run,
        kind=kind,
        rule=rule,
        now=decision.now,
        title=title,
        action=None if action is None else action.n,
        tool=None if action is None else action.target,
        arguments=None if action is None else action.arguments,
        effect=None if action is None else action.effect,
        question=question,
        fired=fired,
        reason=reason,
        asked_by=asked_by,
    )
    _open(decision, made)


def fail(
    decision: Decision,
    n: int,
    error: dict[str, Any],
    extra: dict[str, Any],
    actor: str = "engine",
    *,
    ambiguous: bool,
) -> None:
    """An action has failed for good: close it, or hold it open for a person, by the error's kind."""
    run = decision.run
    action = run.action(n)
    kind = error["kind"]
    holds = not closing(run, action) and _goes_to_a_person(decision, action, kind)
    data = {
        "n": n,
        "attempt": action.attempt,
        "error": error,
        "ambiguous": ambiguous,
        "closed": not holds,
        **extra,
    }
    decision.emit("action_failed", data, actor)
    if closing(run, action):
        return
    if holds:
        text = f"{action.target}: {error.get('message') or error.get('code') or kind}"
        ask(
            decision,
            "authority" if kind == "permission" and action.kind == "tool" else "handover",
            approvals.shown(f"{kind} in {text}", 200),
            action=run.action(n),
            question=_question(kind),
            fired={"error": error},
        )
    elif run.header.planned:
        end(
            decision,
            "failed",
            f"step {action.step_id} ({action.target}) failed: {error.get('message') or error.get('code') or kind}",
            error=None,
        )


def _question(kind: str) -> str:
    return {
        "unavailable": "The service can't be reached. Retry, answer for it, or cancel the run?",
        "permission": "The call was refused. Approve to make it again in your name, or reject.",
        "content_filter": "The provider refused to answer. Retry, tell the agent something, or cancel the run?",
    }.get(kind, "The call failed. Retry, answer for it, or cancel the run?")


def closing(run: Run, action: Action) -> bool:
    """The run ends, so this action is only let come to its end; an undoing is what the end is for."""
    return run.header.ending is not None and action.kind != "compensation"


def _goes_to_a_person(decision: Decision, action: Action, kind: str) -> bool:
    if action.kind in ("model", "compensation"):
        return action.purpose != summary.PURPOSE
    if kind == "unavailable":
        return True
    return decision.run.header.planned and kind in ("invalid_arguments", "permission")


def end(
    decision: Decision,
    to: str,
    reason: str,
    *,
    actor: str = "engine",
    error: dict[str, Any] | None = None,
    compensate: bool | None = None,
) -> None:
    """The first phase of an end: stop what is not requested, cancel what is in flight.

    ``compensate``: undo what was done; left out, a failure and a cancel do as the agent says.
    """
    run = decision.run
    in_flight = []
    idle = []
    for action in run.open_actions():
        if action.kind == "compensation":
            continue
        if action.status in IN_FLIGHT:
            soon = effects.started_timer(action, decision.now)
            known = run.header.timers.get(f"act/{action.n}", soon)
            in_flight.append([action.n, min(soon, known)])
        else:
            idle.append(action)
    data: dict[str, Any] = {"to": to, "reason": reason, "in_flight": in_flight}
    if error is not None:
        data["error"] = error
    if compensate is None:
        compensate = to != "done" and run.definition.on_failure == "compensate"
    if compensate:
        data["compensate"] = True
    decision.emit("ending_started", data, actor)
    for n in run.header.notices:
        if run.action(n).status == "backing_off":
            decision.emit("action_cancelled", {"n": n, "reason": reason})
    for action in idle:
        if action.status == "in_doubt":
            decision.emit("action_in_doubt", {"n": action.n, "closed": True})
        elif action.status == "failed":
            decision.emit(
                "action_failed",
                {
                    "n": action.n,
                    "attempt": action.attempt,
                    "error": action.error,
                    "ambiguous": action.ambiguous,
                    "closed": True,
                },
            )
        else:
            decision.emit("action_cancelled", {"n": action.n, "reason": reason})


def finish(decision: Decision, status: str) -> None:
    """The last event of a run; a status the table can't reach directly passes through running."""
    header = decision.run.header
    if status not in RUN_TRANSITIONS[header.status]:
        decision.emit("status_changed", {"from": header.status, "to": "running"})
    decision.emit("run_finished", {"status": status, "purge_at": decision.now + RETENTION_MS})


def over_budget(decision: Decision) -> bool:
    """True: the budget leaves no room for another step; a person is asked, or the run stops."""
    run = decision.run
    header = run.header
    used = used_up(run, decision.now)
    if used is None:
        return False
    asked = any(
        approval is not None and approval.kind == "budget"
        for approval in map(run.approval, header.asks)
    )
    if asked:
        return True
    if run.definition.budget.then == "stop":
        end(decision, "done", f"the budget is used up: {used}", actor="policy:budget")
    elif not header.open:
        title = f"Budget of run {header.run_id} is used up: {used}"
        ask(decision, "budget", title, question="Extend it, stop here, or cancel the run?")
    return True
