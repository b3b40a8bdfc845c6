"""A connector's answer: to a call, a query or a cancel (lifecycle section 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from perdure.schemas.records import ActionError, ActionResult

from .. import effects
from ..lifecycle import FINAL, SUCCEEDED
from ..planning import compaction, model_loop
from ..policies.budget import priced
from ..policies.retry import may_have_happened, still_ambiguous, wait_seconds
from ..state import Action, Run
from . import models, notices
from .decision import Decision, Lookup, Refusal
from .ending import closing
from .flow import advance
from .moves import fail, request, stand_in
from .settling import ask_again, call_anew, on_unknown, policy_of, query, settled_at

_OPEN_CALL: Final = frozenset({"requested", "started"})
_SETTLING: Final = frozenset({"unknown", "querying", "in_doubt"})


def on_result(run: Run, message: ActionResult, now: int, lookup: Lookup) -> Decision | Refusal:
    """What a result means for its run. Late, double and foreign ones are refused and counted."""
    n = _number(run, message)
    if n is None:
        return Refusal(f"{message.action_id} is no action of run {run.header.run_id}")
    action = run.action(n)
    if message.attempt > action.attempt:
        return Refusal(f"attempt {message.attempt} of {message.action_id} was never requested")
    if action.kind == "builtin" or (action.kind == "notice" and n not in run.header.notices):
        return _late(action)
    decision = Decision.on(run, now, lookup)
    if action.kind == "notice":
        notices.answered(decision, action, message)
        return decision if decision.events else _late(action)
    refused = _HANDLERS[message.status](decision, action, message)
    if refused is not None:
        return _used(decision, action, message) or refused
    advance(decision)
    return decision


def _used(decision: Decision, action: Action, message: ActionResult) -> Decision | None:
    """What an answer has cost that comes too late to be of use; until the run has ended."""
    run = decision.run
    extra = _extra(run, action, message)
    if (
        "usage" not in extra
        or message.attempt in action.counted
        or run.header.status in FINAL
        or decision.events
    ):
        return None
    data = {"n": action.n, "attempt": message.attempt, **extra}
    decision.emit("action_progressed", data, _actor(message))
    return decision


def _number(run: Run, message: ActionResult) -> int | None:
    run_id, _, tail = message.action_id.rpartition("/")
    n = int(tail)
    return n if run_id == run.header.run_id and 1 <= n < run.header.next_action else None


def _extra(run: Run, action: Action, message: ActionResult) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if message.usage is not None:
        extra["usage"] = msgspec.to_builtins(priced(run, action, message.usage))
        extra["counted"] = message.attempt
    if message.worker:
        extra["worker"] = message.worker
    return extra


def _actor(message: ActionResult) -> str:
    return f"worker:{message.worker}" if message.worker else "worker:unknown"


def _late(action: Action) -> Refusal:
    return Refusal(f"action {action.n} is {action.status}")


def _started(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    if message.attempt != action.attempt or action.status != "requested":
        return _late(action)
    due = effects.started_timer(action, decision.now)
    if closing(decision.run, action):
        due = decision.run.header.timers.get(f"act/{action.n}", due)
    decision.emit(
        "action_started",
        {
            "n": action.n,
            "attempt": message.attempt,
            "due": due,
            **_extra(decision.run, action, message),
        },
        _actor(message),
    )
    return None


def _progress(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    if message.attempt != action.attempt or action.status not in _OPEN_CALL:
        return _late(action)
    data: dict[str, Any] = {"n": action.n, "attempt": message.attempt, "progress": message.progress}
    if action.status == "started" and not closing(decision.run, action):
        data["due"] = effects.started_timer(action, decision.now)
    decision.emit("action_progressed", data, _actor(message))
    return None


def _succeeded(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    """Of any attempt of an open action; of a closed failed one it is an effect found."""
    status = action.status
    closed = action.n not in decision.run.header.open
    if closed and status in ("failed", "cancelled", "in_doubt"):
        if action.kind == "model" or action.effect == "read_only":
            return _late(action)
        data = {"n": action.n, "attempt": message.attempt, "result": message.result}
        decision.emit(
            "effect_found", {**data, **_extra(decision.run, action, message)}, _actor(message)
        )
        return None
    if status not in _OPEN_CALL and status not in _SETTLING and status != "backing_off" and closed:
        return _late(action)
    if status in SUCCEEDED or status in (
        "proposed",
        "waiting_approval",
        "approved",
        "rejected",
        "skipped",
    ):
        return _late(action)
    if action.kind == "model":
        take = compaction.summarised if action.purpose == "summary" else model_loop.replied
        extra = _extra(decision.run, action, message)
        take(decision, action, message.result, extra, f"model:{action.target}")
        return None
    kind = "action_adopted" if message.adopted else "action_succeeded"
    decision.emit(
        kind,
        {
            "n": action.n,
            "attempt": message.attempt,
            "result": message.result,
            **compaction.beginning(decision, action, message.result),
            **_extra(decision.run, action, message),
        },
        _actor(message),
    )
    return None


def _failed(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    """Only of the current attempt; in doubt or unknown it settles the action as not done."""
    if message.attempt != action.attempt:
        return _late(action)
    if action.status not in _OPEN_CALL and action.status not in _SETTLING:
        return _late(action)
    if action.n not in decision.run.header.open:
        return _late(action)
    error = _error(message)
    if action.status == "in_doubt" and may_have_happened(action.effect, error):
        return _late(action)  # it says no more than is known
    on_failure(decision, action, error, _extra(decision.run, action, message), _actor(message))
    return None


def _error(message: ActionResult) -> dict[str, Any]:
    error = message.error or ActionError(kind="internal", message="the connector gave no reason")
    made: dict[str, Any] = msgspec.to_builtins(error)
    return made


def on_failure(
    decision: Decision, action: Action, error: dict[str, Any], extra: dict[str, Any], actor: str
) -> None:
    """Retry what may be retried, else close the action or hand it over, by the error's kind."""
    run = decision.run
    if action.kind == "model" and compaction.failed(decision, action, error, extra, actor):
        return
    kind = error["kind"]
    if kind == "unknown" and action.effect != "read_only":
        on_unknown(decision, action, error, extra, actor)
        return
    ended = closing(run, action)
    if (
        kind == "transient"
        and may_have_happened(action.effect, error)
        and (
            effects.effect_now(run, action, decision.now) == "external"
            or (ended and action.has_query)
        )
    ):  # the key has run out: to call again could be a second effect; or the run ends: it is not
        # called again, and only a query can tell whether there is something to undo
        on_unknown(decision, action, {**error, "kind": "unknown"}, extra, actor)
        return
    ambiguous = still_ambiguous(action, error)
    if action.kind == "model" and kind == "model_invalid":
        model_loop.unusable(decision, action, error, extra, actor)
        return
    if not ended:
        policy = policy_of(run, action)
        tries = (
            models.tries(run, action, policy.attempts)
            if action.kind == "model"
            else policy.attempts
        )
        data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": ambiguous}
        if error.get("code") == "BREAKER_OPEN" and stand_in(
            decision, action, {**data, **extra}, actor
        ):
            return  # it does not wait for the breaker
        if _may_pass(run, action, error) and action.attempt < tries:
            wait = wait_seconds(policy, run.action_id(action.n), action.attempt, error)
            due = decision.now + int(wait * 1000)
            decision.emit("retry_scheduled", {**data, "due": due, **extra}, actor)
            return
        if action.kind == "model" and models.failed(decision, action, error, extra, actor):
            return
    if kind in ("transient", "unknown"):
        error = {
            "kind": "unavailable",
            "code": "API_UNAVAILABLE",
            "message": f"{error.get('code', '')} {error.get('message', '')}".strip()
            + f" (after {action.attempt} tries)",
        }
    fail(decision, action.n, error, extra, actor, ambiguous=ambiguous)


def _may_pass(run: Run, action: Action, error: dict[str, Any]) -> bool:
    """Worth trying again: the fault passes by itself, or a breaker will let a call through."""
    kind = error["kind"]
    if action.purpose == "summary":  # else it had been given up
        return True
    if action.kind == "model" and not run.definition.fallback_models:
        return kind in ("transient", "unknown", "unavailable", "model_unavailable")
    return kind in ("transient", "unknown") or (
        error.get("code") == "BREAKER_OPEN" and action.kind != "model"
    )


def _doubted_late(action: Action, message: ActionResult) -> bool:
    """An idempotent call may be made twice in one attempt: a first delivery that was refused says
    nothing of a second, whose outcome nobody knows."""
    return (
        action.kind == "tool"
        and action.status == "failed"
        and action.effect == "idempotent"
        and not action.ambiguous
        and message.attempt == action.attempt
    )


def _unknown(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    if _doubted_late(action, message):
        data = {"n": action.n, "attempt": action.attempt, "error": _error(message)}
        held = action.n in decision.run.header.open
        more = {"doubted": True} if held else {}
        data = {**data, "ambiguous": True, "closed": not held, **more}
        decision.emit("action_failed", data, _actor(message))
        return None
    if message.attempt != action.attempt or action.n not in decision.run.header.open:
        return _late(action)
    if action.status == "querying":
        if _of_the_call(message):
            return _late(action)  # it says no more than is known; the query's answer is to come
        ask_again(decision, action, "unclear")
        return None
    if action.status not in _OPEN_CALL:
        return _late(action)
    error = (
        _error(message)
        if message.error
        else {"kind": "unknown", "code": "unknown", "message": "the outcome is unknown"}
    )
    if action.effect == "read_only":
        on_failure(
            decision,
            action,
            {**error, "kind": "transient"},
            _extra(decision.run, action, message),
            _actor(message),
        )
    else:
        on_unknown(
            decision,
            action,
            {**error, "kind": "unknown"},
            _extra(decision.run, action, message),
            _actor(message),
        )
    return None


def _of_the_call(message: ActionResult) -> bool:
    """An ``unknown`` of the call itself, not of its query: a connector's call has begun once, and a
    worker that lost it says so."""
    lost = message.error is not None and message.error.code == "worker_lost"
    return lost or message.started_at is not None


def _absent(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    """It did not happen, and this attempt never will."""
    if (
        message.attempt != action.attempt
        or action.status not in _SETTLING
        or action.n not in decision.run.header.open
    ):
        return _late(action)
    run = decision.run
    # Before that a request on its way may land yet. What counts is when it was asked: the answer
    # may have lain on its topic for longer than that.
    settled = (action.queried_at or 0) >= settled_at(action)
    if action.status == "in_doubt" and not settled:
        return _late(action)
    ended = closing(run, action)
    once = ended or effects.effect_now(run, action, decision.now) == "external"
    if once and not settled:
        error = {
            "kind": "unknown",
            "code": "absent",
            "message": "not found yet; asked again once it has settled",
        }
        data = {"n": action.n, "attempt": action.attempt, "error": error}
        decision.emit("action_unknown", {**data, "due": max(decision.now, settled_at(action))})
        return None
    if ended:
        data = {"n": action.n, "reason": "it had not happened", "proven": settled}
        decision.emit("action_cancelled", data, _actor(message))
    elif action.attempt >= policy_of(run, action).attempts:  # it never arrives: not for ever
        gone = {
            "kind": "unavailable",
            "code": "API_UNAVAILABLE",
            "message": f"called {action.attempt} times, and it never happened",
        }
        fail(decision, action.n, gone, {}, ambiguous=not settled)
    else:
        request(decision, action.n, proven=settled)
    return None


def _running(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    if message.attempt != action.attempt or action.status != "querying":
        return _late(action)
    settle = action.timeout_seconds if action.settle_seconds is None else action.settle_seconds
    if decision.now >= (action.expires_at or 0) + int(settle * 1000):
        ask_again(decision, action, "running")
        return None
    error = {"kind": "unknown", "code": "running", "message": "the call is still running"}
    due = decision.now + int(action.timeout_seconds * 1000)
    decision.emit(
        "action_unknown", {"n": action.n, "attempt": action.attempt, "error": error, "due": due}
    )
    return None


def _cancelled(decision: Decision, action: Action, message: ActionResult) -> Refusal | None:
    """It never began and never will."""
    if message.attempt != action.attempt or action.n not in decision.run.header.open:
        return _late(action)
    if action.status not in _OPEN_CALL and action.status not in _SETTLING:
        return _late(action)
    if closing(decision.run, action):
        decision.emit(
            "action_cancelled", {"n": action.n, "reason": "it had not begun"}, _actor(message)
        )
    else:
        error = {
            "kind": "transient",
            "code": "CANCELLED",
            "message": "the worker gave the call up before it began",
        }
        on_failure(decision, action, error, _extra(decision.run, action, message), _actor(message))
    return None


def overdue(decision: Decision, action: Action) -> None:
    """An action's timer: a backoff is over, or an answer did not come."""
    status = action.status
    if status == "backing_off" and not models.all_again(decision, action):
        call_anew(decision, action.n)
    elif status == "querying":
        ask_again(decision, action, "unanswered")
    elif status == "unknown":
        query(decision, action.n)
    elif status in _OPEN_CALL:
        error = {"kind": "unknown", "code": "no_answer", "message": "no answer came in time"}
        if closing(decision.run, action) and action.effect == "read_only":
            decision.emit("action_cancelled", {"n": action.n, "reason": "no answer came in time"})
        elif action.effect == "read_only":
            on_failure(decision, action, {**error, "kind": "transient"}, {}, "engine")
        else:
            on_unknown(decision, action, error, {}, "engine")


_HANDLERS: Final[dict[str, Callable[[Decision, Action, ActionResult], Refusal | None]]] = {
    "started": _started,
    "progress": _progress,
    "succeeded": _succeeded,
    "failed": _failed,
    "unknown": _unknown,
    "absent": _absent,
    "running": _running,
    "cancelled": _cancelled,
}
