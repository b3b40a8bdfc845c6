"""A connector's answer: to a call, a query or a cancel (lifecycle section 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from perdure.schemas.records import ActionError, ActionResult, RetryPolicy

from .. import effects
from ..lifecycle import SUCCEEDED
from ..planning import compaction, model_loop
from ..policies.retry import may_have_happened, outage_wait_seconds, still_ambiguous, wait_seconds
from ..state import Action, Run
from . import notices
from .decision import Decision, Lookup, Refusal
from .flow import advance
from .moves import ask, closing, fail, living_twin, request

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
        return refused
    advance(decision)
    return decision


def _number(run: Run, message: ActionResult) -> int | None:
    run_id, _, tail = message.action_id.rpartition("/")
    n = int(tail)
    return n if run_id == run.header.run_id and 1 <= n < run.header.next_action else None


def _extra(message: ActionResult) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if message.usage is not None:
        extra["usage"] = msgspec.to_builtins(message.usage)
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
        {"n": action.n, "attempt": message.attempt, "due": due, **_extra(message)},
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
        decision.emit("effect_found", {**data, **_extra(message)}, _actor(message))
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
        take(decision, action, message.result, _extra(message), f"model:{action.target}")
        return None
    kind = "action_adopted" if message.adopted else "action_succeeded"
    decision.emit(
        kind,
        {
            "n": action.n,
            "attempt": message.attempt,
            "result": message.result,
            **compaction.beginning(decision, action, message.result),
            **_extra(message),
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
    on_failure(decision, action, error, _extra(message), _actor(message))
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
    if (
        kind == "transient"
        and may_have_happened(action.effect, error)
        and effects.effect_now(run, action, decision.now) == "external"
    ):  # the key has run out: to call again could be a second effect
        on_unknown(decision, action, {**error, "kind": "unknown"}, extra, actor)
        return
    ambiguous = still_ambiguous(action, error)
    if action.kind == "model" and kind == "model_invalid":
        model_loop.unusable(decision, action, error, extra, actor)
        return
    again = kind in ("transient", "unknown") or (
        action.kind == "model" and kind in ("model_unavailable", "unavailable")
    )
    if again and not closing(run, action):
        policy = _policy(run, action)
        wait: float | None = None
        if action.attempt < policy.attempts:
            wait = wait_seconds(policy, run.action_id(action.n), action.attempt, error)
        elif action.kind == "model":  # a model that is down holds the run, it does not fail it
            wait = outage_wait_seconds(run.action_id(action.n), action.attempt, policy.attempts)
        if wait is not None:
            decision.emit(
                "retry_scheduled",
                {
                    "n": action.n,
                    "attempt": action.attempt,
                    "error": error,
                    "ambiguous": ambiguous,
                    "due": decision.now + int(wait * 1000),
                    **extra,
                },
                actor,
            )
            return
    if kind in ("transient", "unknown"):
        error = {
            "kind": "unavailable",
            "code": "API_UNAVAILABLE",
            "message": f"{error.get('code', '')} {error.get('message', '')}".strip()
            + f" (after {action.attempt} tries)",
        }
    fail(decision, action.n, error, extra, actor, ambiguous=ambiguous)


def _policy(run: Run, action: Action) -> RetryPolicy:
    spec = None if action.kind == "model" else run.start.tools.get(action.target)
    return (spec.retry if spec else None) or run.definition.retry


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
    if action.n not in decision.run.header.open and _doubted_late(action, message):
        data = {"n": action.n, "attempt": action.attempt, "error": _error(message)}
        decision.emit("action_failed", {**data, "ambiguous": True, "closed": True}, _actor(message))
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
            decision, action, {**error, "kind": "transient"}, _extra(message), _actor(message)
        )
    else:
        on_unknown(decision, action, {**error, "kind": "unknown"}, _extra(message), _actor(message))
    return None


def _of_the_call(message: ActionResult) -> bool:
    """An ``unknown`` of the call itself, not of its query: a connector's call has begun once, and a
    worker that lost it says so."""
    lost = message.error is not None and message.error.code == "worker_lost"
    return lost or message.started_at is not None


def on_unknown(
    decision: Decision, action: Action, error: dict[str, Any], extra: dict[str, Any], actor: str
) -> None:
    """It may or may not have happened: settle it by its effect (contract section 6)."""
    run = decision.run
    decision.emit(
        "action_unknown", {"n": action.n, "attempt": action.attempt, "error": error, **extra}, actor
    )
    how = effects.settles_by(run, action, decision.now)
    if how == "query":
        query(decision, action.n)
    elif closing(run, action) or how == "ask":
        doubt(decision, action.n)
    else:
        call_again(decision, run.action(action.n), error)


def query(decision: Decision, n: int) -> None:
    """Ask the outside whether the current attempt happened."""
    action = decision.run.action(n)
    decision.emit(
        "action_queried",
        {
            "n": n,
            "attempt": action.attempt,
            "due": decision.now + int(action.timeout_seconds * 1000) + effects.GRACE_MS,
        },
    )


def doubt(decision: Decision, n: int) -> None:
    """Nothing can be asked: a person must say. While ending, the outcome says that it is in doubt."""
    run = decision.run
    action = run.action(n)
    ends = closing(run, action)
    decision.emit("action_in_doubt", {"n": n, "closed": ends})
    if not ends:
        action = run.action(n)
        ask(
            decision,
            "in_doubt",
            f"{action.target} may or may not have happened: look, then say which",
            action=action,
            question="Did it happen? mark_done with its result, mark_not_done to call it again, or cancel the run.",
            fired={"error": action.error},
        )


def call_again(decision: Decision, action: Action, error: dict[str, Any]) -> None:
    """A new attempt after a wait; a call that may repeat freely has its tries counted."""
    run = decision.run
    policy = _policy(run, action)
    if action.attempt >= policy.attempts and action.effect != "external":
        gone = {
            "kind": "unavailable",
            "code": "API_UNAVAILABLE",
            "message": f"{error.get('message', '')} (after {action.attempt} tries)",
        }
        fail(decision, action.n, gone, {}, ambiguous=action.ambiguous)
        return
    wait = wait_seconds(policy, run.action_id(action.n), action.attempt, error)
    decision.emit(
        "retry_scheduled",
        {
            "n": action.n,
            "attempt": action.attempt,
            "error": error,
            "ambiguous": action.ambiguous,
            "due": decision.now + int(wait * 1000),
        },
    )


def _settled_at(action: Action) -> int:
    """From when on `absent` can't change any more (ms): a request still on its way has landed."""
    settle = action.timeout_seconds if action.settle_seconds is None else action.settle_seconds
    last_sent = action.unknown_at or action.requested_at or 0
    return last_sent + int(settle * 1000)


def ask_again(decision: Decision, action: Action, why: str) -> None:
    """The query settled nothing. What may repeat is called again; an external call is asked about
    with backoff until its request must have landed, then it is in doubt (contract section 6)."""
    run = decision.run
    settled = _settled_at(action)
    error = {"kind": "unknown", "code": why, "message": f"the query was {why}"}
    external = effects.effect_now(run, action, decision.now) == "external"
    if not external and not closing(run, action):
        call_again(decision, action, error)
        return
    if (action.queried_at or 0) >= settled:  # the last word there is
        doubt(decision, action.n)
        return
    wait = min(1000 * 2 ** min(action.queries, 6), 60_000)
    due = max(decision.now, min(settled, decision.now + wait))
    decision.emit(
        "action_unknown", {"n": action.n, "attempt": action.attempt, "error": error, "due": due}
    )


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
    settled = (action.queried_at or 0) >= _settled_at(action)
    if action.status == "in_doubt" and not settled:
        return _late(action)
    if effects.effect_now(run, action, decision.now) == "external" and not settled:
        error = {
            "kind": "unknown",
            "code": "absent",
            "message": "not found yet; asked again once it has settled",
        }
        data = {"n": action.n, "attempt": action.attempt, "error": error}
        decision.emit("action_unknown", {**data, "due": max(decision.now, _settled_at(action))})
        return None
    if closing(run, action):
        data = {"n": action.n, "reason": "it had not happened", "proven": settled}
        decision.emit("action_cancelled", data, _actor(message))
    elif action.attempt >= _policy(run, action).attempts:  # it never arrives: not for ever
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
        on_failure(decision, action, error, _extra(message), _actor(message))
    return None


def call_anew(decision: Decision, n: int) -> None:
    """The next attempt, unless the key ran out while an attempt may have happened."""
    action = decision.run.action(n)
    other = living_twin(decision, n)
    if other is not None:
        _by_the_other(decision, action, decision.run.action(other))
        return
    gone = effects.effect_now(decision.run, action, decision.now) != action.effect
    if not (gone and action.ambiguous):
        request(decision, n)
        return
    error = {
        "kind": "unknown",
        "code": "key_expired",
        "message": "an attempt may have happened, and its key is too old to protect a second",
    }
    if action.status != "backing_off":  # a failed call passes through it, as every new attempt may
        data = {"n": n, "attempt": action.attempt, "error": error, "due": decision.now}
        decision.emit("retry_scheduled", {**data, "ambiguous": True})
    on_unknown(decision, decision.run.action(n), error, {}, "engine")


def _by_the_other(decision: Decision, action: Action, other: Action) -> None:
    """Another call has this one's declared key: its result is this one's, or it is waited for."""
    if other.status in SUCCEEDED:
        of = decision.run.action_id(other.n)
        decision.emit("action_adopted", {"n": action.n, "result": other.result, "of": of})
        return
    error = {"kind": "transient", "code": "SAME_KEY", "message": f"call {other.n} has the same key"}
    data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": action.ambiguous}
    decision.emit("retry_scheduled", {**data, "due": decision.now + _LOOK_AGAIN_MS})


_LOOK_AGAIN_MS: Final = 1_000


def overdue(decision: Decision, action: Action) -> None:
    """An action's timer: a backoff is over, or an answer did not come."""
    status = action.status
    if status == "backing_off":
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
