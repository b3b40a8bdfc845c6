"""Requests to a run: cancel, pause, resume, message, extend, retry (contract section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from perdure.schemas.records import ControlRequest

from ..lifecycle import FINAL
from ..planning import window
from ..policies.budget import extended, used_up
from ..state import Action, Run
from .decision import Decision, Lookup, Refusal
from .ending import end, finish
from .flow import advance
from .inputs import Control
from .settling import call_anew, doubt


def on_control(run: Run, message: Control, now: int, lookup: Lookup) -> Decision | Refusal:
    """Do what is asked, or say why not."""
    request = message.request
    header = run.header
    if request.expected_version is not None and request.expected_version != header.version:
        return Refusal(f"the run has version {header.version}, not {request.expected_version}")
    if header.status in FINAL and request.command not in _AFTER.get(header.status, ()):
        return Refusal(f"the run is {header.status}")
    handler = _HANDLERS.get(request.command)
    if handler is None:
        return Refusal(f"{request.command} is not supported by this version")
    decision = Decision.on(run, now, lookup)
    decision.request, decision.request_id = request.command, message.request_id
    refused = handler(decision, request, f"user:{request.by or 'unknown'}")
    if refused is not None:
        return refused
    decision.verdict = request.command
    advance(decision)
    return decision


def _cancel(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    header = decision.run.header
    ending = header.ending
    if ending is not None and ending.to != "failed":
        return Refusal(f"the run is already ending ({ending.to})")
    reason = request.reason or "cancelled on request"
    if header.status == "compensating":  # it goes on, and ends as cancelled
        end(decision, "cancelled", reason, actor=actor, compensate=True)
        return None
    ended = header.status in FINAL
    if ended and request.compensate:
        decision.emit("status_changed", {"from": "failed", "to": "running"}, actor)
    end(decision, "cancelled", reason, actor=actor, compensate=request.compensate)
    if header.status in FINAL:  # nothing of it is in flight
        finish(decision, "cancelled")
    return None


def _pause(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if decision.run.header.paused:
        return Refusal("the run is already paused")
    decision.emit("run_paused", {"reason": request.reason}, actor)
    return None


def _resume(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if not decision.run.header.paused:
        return Refusal("the run is not paused")
    decision.emit("run_resumed", {"reason": request.reason}, actor)
    return None


def _message(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    header = decision.run.header
    if request.content is None:
        return Refusal("message needs content")
    if header.planned:
        return Refusal("the run follows a plan: nobody reads messages")
    if header.ending is not None:
        return Refusal(f"the run is ending ({header.ending.to})")
    broken = window.too_large(decision.run, request.content, "content")
    if broken is not None:
        return Refusal(broken)
    decision.emit("message_received", {"content": request.content, "by": actor}, actor)
    return None


def _extend(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    if request.budget is None:
        return Refusal("extend needs a budget")
    if decision.run.header.ending is not None:
        return Refusal("the run is ending")
    more = extended(decision.run.header.budget, request.budget)
    decision.emit("budget_changed", {"budget": msgspec.to_builtins(more)}, actor)
    if used_up(decision.run, decision.now) is None:
        _answered(decision, request, actor)
    return None


def _answered(decision: Decision, request: ControlRequest, actor: str) -> None:
    """What an open question asked for has been given another way: it would wait, and expire."""
    for n in list(decision.run.header.asks):
        asked = decision.run.approval(n)
        if asked is not None and asked.kind == "budget":
            said = {"decision": "extend", "approver": request.by or "unknown", "verified": None}
            given = {} if request.reason is None else {"reason": request.reason}
            decision.emit("approval_decided", {"n": n, **said, **given, "closes": True}, actor)


def _retry(decision: Decision, request: ControlRequest, actor: str) -> Refusal | None:
    """A failed run goes on at what failed. What succeeded is never called again."""
    run = decision.run
    header = run.header
    if header.status != "failed":
        return Refusal(f"the run is {header.status}: only a failed one can be tried again")
    if header.deadline_at is not None and header.deadline_at <= decision.now:
        return Refusal("the run's deadline has passed: submit a new task, or fork it")
    actions = [run.action(n) for n in range(1, header.next_action)]
    if any(action.status in _UNDONE for action in actions):
        return Refusal("something was compensated: it would have to be done again")
    failed = _failed(run, actions)
    failed += [  # given up while it may have happened: the same call, with the same key
        action.n
        for action in actions
        if action.kind == "tool" and action.status == "cancelled" and action.ambiguous
    ]
    doubtful = [action.n for action in actions if action.status == "in_doubt"]
    if not failed and not doubtful:
        return Refusal("no call of it failed, so there is nothing to try again: submit a new task")
    data = {"from": "failed", "to": "running", "reason": request.reason}
    decision.emit("status_changed", {**data, "retry": {"actions": failed + doubtful}}, actor)
    for n in failed:
        call_anew(decision, n)
    for n in doubtful:
        doubt(decision, n)
    return None


def _failed(run: Run, actions: list[Action]) -> list[int]:
    """Of a plan every failed step's call; of a model loop its last call, if that failed."""
    if run.header.planned:
        steps = [step for step in run.header.plan.values() if step["status"] == "failed"]
        return [step["n"] for step in steps if step.get("n") is not None]
    return [action.n for action in actions[-1:] if action.status == "failed"]


_UNDONE: Final = frozenset({"compensating", "compensated", "compensation_failed"})
_AFTER: Final[dict[str, frozenset[str]]] = {"failed": frozenset({"retry", "cancel"})}
"""What a run that has ended still takes."""

_HANDLERS: Final[dict[str, Callable[[Decision, ControlRequest, str], Refusal | None]]] = {
    "cancel": _cancel,
    "pause": _pause,
    "resume": _resume,
    "message": _message,
    "extend": _extend,
    "retry": _retry,
}
