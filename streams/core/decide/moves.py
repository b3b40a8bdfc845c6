"""The moves of one call that deciders, the plan and the model loop share: request, propose, fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from perdure.schemas.canonical import canonical
from perdure.schemas.records import ToolSpec

from .. import effects, keys
from ..arguments import argument_error, properties
from ..lifecycle import SUCCEEDED
from ..planning import summary
from ..planning.window import View
from ..policies import approval as approvals
from ..policies import trouble
from ..policies.retry import waits_for_its_key
from ..state import Action, Run
from . import asking
from .decision import Decision
from .ending import closing, end
from .models import failed, gives_way, name_of


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
        if gives_way(run, action) and failed(decision, action, error, {}, "engine"):
            return
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
        run.drafted = (n, run.header.messages, shown)
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
    stands_for: int | None = None,
) -> None:
    """Propose a tool's call; ask a person or request it at once.

    ``stands_for``: the failed call whose place it takes.
    """
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
        "stands_for": stands_for,
    }
    data.update({name: value for name, value in optional.items() if value is not None})
    if run.start.tools.get(tool.name) != tool:
        data["spec"] = msgspec.to_builtins(tool)
    actor = "policy:plan" if header.planned else f"model:{model_name(run)}"
    times = 1
    if message is not None and stands_for is None:
        times = trouble.times_proposed(run, tool.name, arguments, step)
        data["times"] = times
        if times >= max(agent.handover_after, 2):
            data["circling"] = True
    decision.emit("action_proposed", data, actor)
    if twin is None and "circling" not in data:
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
    return next(_living(decision.run, name), None)


def _living(run: Run, name: str) -> Iterator[int]:
    """The calls with a declared key that are under way or came to something, the last one first;
    a fallback's call in the place of the one it stands for."""
    n = run.keyed(name)
    while n is not None:
        action = run.action(n)
        now = _in_its_place(run, action)
        if now.n in run.header.open or now.status in SUCCEEDED or now.status == "in_doubt":
            yield now.n
        n = action.twin


def _in_its_place(run: Run, action: Action) -> Action:
    return action if action.replaced_by is None else run.action(action.replaced_by)


def _waits_for(run: Run, action: Action, n: int) -> bool:
    """It has not been made, as it waits for that one, or for another that does."""
    while action.twin is not None and not action.attempt:
        if action.twin == n:
            return True
        action = run.action(action.twin)
    return False


def living_twin(decision: Decision, n: int) -> int | None:
    """Another call of the run that has this one's declared key and has succeeded or is under way."""
    action = decision.run.action(n)
    spec = decision.run.start.tools.get(action.target)
    name = None
    if action.kind == "tool" and spec is not None:
        name = declared(spec, decision.lookup.value(action.arguments))
    if name is None:
        return None
    run = decision.run
    for m in _living(run, name):
        other = run.action(m)
        # One that waits for its key itself holds nobody up: else two would wait for each other.
        if m != n and not waits_for_its_key(other) and not _waits_for(run, other, n):
            return m
    return None


def put_forward(decision: Decision, n: int) -> None:
    """Let a proposed action go on: adopt its twin's result, wait for it, ask, or request."""
    run = decision.run
    action = run.action(n)
    if action.circling and run.header.repeated:  # nobody has looked at it yet
        _ask_whether(decision, action)
        return
    if action.twin is not None:
        first = _in_its_place(run, run.action(action.twin))
        if first.status in SUCCEEDED:
            decision.emit(
                "action_adopted",
                {"n": n, "result": first.result, "of": run.action_id(first.n)},
            )
            return
        if first.n in run.header.open:
            return  # `advance` comes here again once it is closed
    _request_or_ask(decision, n, rules_of(run, action, decision.lookup.value(action.arguments)))


def _ask_whether(decision: Decision, action: Action) -> None:
    """Whether a call that goes round in circles is to be made at all: once for all like it."""
    run = decision.run
    asked = map(run.approval, run.header.asks)
    if any(a is not None and a.kind == "handover" and a.tool == action.target for a in asked):
        return
    times = run.header.repeated
    title = f"{action.target} is called {times} times in a row with the same arguments"
    asking.ask(
        decision,
        "handover",
        approvals.shown(title, 200),
        action=action,
        question="It goes round in circles. Retry to make the call, tell the agent something, or cancel the run?",
        fired={"in_a_row": times},
    )


def rules_of(run: Run, action: Action, arguments: Any) -> approvals.Rules:
    """What the rules say of a call with these arguments."""
    tool = run.spec(action.target)
    return approvals.evaluate(run, run.definition, tool, arguments, _plan_asks(run, action))


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
    asking.put(decision, question)


def model_name(run: Run) -> str:
    """The model in use."""
    return "" if run.definition.model is None else name_of(run.model(run.header.model))


def fail(
    decision: Decision,
    n: int,
    error: dict[str, Any],
    extra: dict[str, Any],
    actor: str = "engine",
    *,
    ambiguous: bool,
) -> None:
    """An action has failed for good: another call or an older result takes its place, else it is
    closed, or held open for a person, by the error's kind."""
    run = decision.run
    action = run.action(n)
    kind = error["kind"]
    ends = closing(run, action)
    data = {"n": n, "attempt": action.attempt, "error": error, "ambiguous": ambiguous}
    times = 0 if ends else trouble.times_failed(run, action, error)
    if times:
        data["times"] = times
    often = times if times >= run.definition.handover_after else 0
    if not ends and stand_in(decision, action, {**data, **extra}, actor, often):
        return
    holds = not ends and (often > 0 or _goes_to_a_person(decision, action, kind))
    decision.emit("action_failed", {**data, "closed": not holds, **extra}, actor)
    if ends:
        return
    if holds:
        text = f"{action.target}: {error.get('message') or error.get('code') or kind}"
        fired = {"error": error} | ({"in_a_row": often} if often else {})
        authority = kind == "permission" and action.kind == "tool" and not often
        asking.ask(
            decision,
            "authority" if authority else "handover",
            approvals.shown(f"{kind} in {text}", 200),
            action=run.action(n),
            question=_question(run, action, error, often),
            fired=fired,
        )
    elif run.header.planned:
        end(
            decision,
            "failed",
            f"step {action.step_id} ({action.target}) failed: {error.get('message') or error.get('code') or kind}",
            error=None,
        )


def stand_in(
    decision: Decision, action: Action, data: dict[str, Any], actor: str, often: int = 0
) -> bool:
    """The tool's fallback, else its last good result, takes the place of a call that failed.

    ``data``: what `action_failed` would say; ``often``: so many times in a row with one error.
    """
    run = decision.run
    unavailable = data["error"]["kind"] == "unavailable"
    spec = run.start.tools.get(action.target)
    if action.kind != "tool" or spec is None or not (unavailable or often):
        return False
    other = _fallback(decision, action, spec, data["ambiguous"])
    age = decision.now - int((spec.stale_ok_seconds or 0) * 1000)
    older = trouble.last_good(run, action, age) if unavailable and spec.stale_ok_seconds else None
    if other is None and older is None:
        return False
    if run.header.paused:  # nothing new is proposed: it is seen to when the run is resumed
        decision.emit("retry_scheduled", {**data, "due": decision.now}, actor)
    elif other is not None:
        decision.emit("action_failed", {**data, "closed": True, "replaced": True}, actor)
        tool, arguments = other
        asked = None if action.message is None else run.message(action.message).call_id
        propose(
            decision,
            tool=tool,
            arguments=arguments,
            step=action.step,
            why=action.why,
            step_id=action.step_id,
            message=action.message,
            call_id=asked,
            always=_plan_asks(run, action),
            stands_for=action.n,
        )
    elif older is not None:
        seconds = (decision.now - (older.finished_at or 0)) / 1000
        degraded = {"from": run.action_id(older.n), "age_seconds": seconds}
        made = {"n": action.n, "result": older.result, "degraded": degraded, "error": data["error"]}
        usage = {"usage": data["usage"]} if "usage" in data else {}
        decision.emit("action_succeeded", {**made, **usage}, "policy:stale")
    return True


def _fallback(
    decision: Decision, action: Action, spec: ToolSpec, ambiguous: bool
) -> tuple[ToolSpec, Any] | None:
    """The tool named to take over, and those of the arguments that it has parameters for."""
    name = spec.fallback
    if name is None or name == action.target or action.stands_for is not None:
        return None
    if action.effect == "idempotent" or (ambiguous and action.effect != "read_only"):
        # It may have happened, or yet happen: of an idempotent call a second delivery may be on
        # its way, which no ledger bars. Then another tool must not do it too.
        return None
    other = decision.lookup.tool(name) or decision.run.start.tools.get(name)
    if other is None:
        return None
    given = decision.lookup.value(action.arguments) or {}
    known = properties(other.parameters)
    arguments = {name: value for name, value in given.items() if name in known}
    return None if argument_error(other, arguments) is not None else (other, arguments)


def _question(run: Run, action: Action, error: dict[str, Any], often: int) -> str:
    if action.undoes is not None:
        of = run.action(action.undoes)
        return (
            f"{of.target} ({run.action_id(of.n)}) is not undone. Retry, answer once you have undone "
            "it yourself, or cancel_run to leave it as it is: the outcome then says so."
        )
    if often:
        told = "The call failed" if often == 1 else f"The same error {often} times in a row"
        return f"{told}. Retry, tell the agent something, or cancel the run?"
    kind = error["kind"]
    if kind == "permission" and action.kind == "model":
        kind = "permission of a model"
    return {
        "permission of a model": "The model's service refuses the key. Retry once it is right, tell the agent something, or cancel the run?",
        "unavailable": "The service can't be reached. Retry, answer for it, or cancel the run?",
        "permission": "The call was refused. Approve to make it again in your name, or reject.",
        "content_filter": "The provider refused to answer. Retry, tell the agent something, or cancel the run?",
    }.get(kind, "The call failed. Retry, answer for it, or cancel the run?")


def _goes_to_a_person(decision: Decision, action: Action, kind: str) -> bool:
    if action.kind in ("model", "compensation"):
        return action.purpose != summary.PURPOSE
    if kind == "unavailable":
        return True
    return decision.run.header.planned and kind in ("invalid_arguments", "permission")
