"""A model that can't be used: the next one, or all of them again later (lifecycle section 3).

A model's call belongs to one model, so the next model gets a call of its own within the same step.
None left: the run is kept; the last call waits on a timer that grows, and when it is due all models
are tried again from the first, each once.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import ModelSpec

from .. import keys
from ..policies.retry import outage_wait_seconds
from ..state import Action, Run
from .decision import Decision

AGAIN_AFTER_MS: Final = 300_000
"""A fallback stays in use so long; then a new step begins with the agent's own model again."""
_OUT_OF_REACH: Final = frozenset({"transient", "unknown", "unavailable", "model_unavailable"})
_UNUSABLE: Final = _OUT_OF_REACH | {"permission"}


def name_of(model: ModelSpec) -> str:
    """What its calls name as their target."""
    return model.name or model.provider


def proposal(run: Run, model: ModelSpec, step: int) -> dict[str, Any]:
    """What every proposal of a model's call says."""
    header = run.header
    n = header.next_action
    return {
        "n": n,
        "kind": "model",
        "step": step,
        "target": name_of(model),
        "queue": model.queue,
        "effect": "read_only",
        "key": keys.idempotency_key(header.run_id, n, header.nonce),
        "timeout_seconds": model.timeout_seconds,
    }


def close(
    decision: Decision, action: Action, error: dict[str, Any], extra: dict[str, Any], actor: str
) -> None:
    """A model's call has failed for good, and nobody is asked: the turn goes on without it."""
    data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": False}
    decision.emit("action_failed", {**data, "closed": True, **extra}, actor)


def tries(run: Run, action: Action, attempts: int) -> int:
    """Attempts before a model counts as out of reach; while all are, one."""
    alone = action.purpose or not run.definition.fallback_models
    return 1 if run.header.outages and not alone else attempts


def gives_way(run: Run, action: Action) -> bool:
    """There is a next model for the turn that this call is for."""
    mine = action.kind == "model" and not action.purpose
    return mine and action.model < len(run.definition.fallback_models)


def failed(
    decision: Decision,
    action: Action,
    error: dict[str, Any],
    extra: dict[str, Any],
    actor: str,
) -> bool:
    """See to a model's failed attempt that is not tried again at once. False: it fails for good."""
    run = decision.run
    if error["kind"] not in _UNUSABLE:
        return False
    if gives_way(run, action):
        close(decision, action, error, {**extra, "next_model": action.model + 1}, actor)
        return True
    if error["kind"] not in _OUT_OF_REACH and not _another_is_down(run, action):
        return False
    nth = run.header.outages
    wait = outage_wait_seconds(run.action_id(action.n), action.attempt, nth, error)
    data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": False}
    due = decision.now + int(wait * 1000)
    decision.emit("retry_scheduled", {**data, "due": due, "outage": True, **extra}, actor)
    return True


def _another_is_down(run: Run, action: Action) -> bool:
    """In this turn another model was out of reach: it may come back, whatever this one lacks."""
    for n in range(action.n - 1, max(0, action.n - 1 - action.model), -1):
        other = run.action(n)
        if other.kind != "model" or other.step != action.step or other.status != "failed":
            return False
        if (other.error or {}).get("kind") in _OUT_OF_REACH:
            return True
    return False


def all_again(decision: Decision, action: Action) -> bool:
    """The wait of an outage is over: with several models the first gets its turn."""
    if (
        action.kind != "model"
        or action.purpose
        or not action.model
        or not decision.run.header.outages
    ):
        return False
    error = action.error or {"kind": "model_unavailable", "code": "", "message": ""}
    close(decision, action, error, {"next_model": 0}, "engine")
    return True


def next_one(run: Run, now: int) -> int | None:
    """The model of the next step, or None: it has given unusable replies, and there is no other."""
    header = run.header
    if header.invalid >= INVALID_LIMIT:
        return header.model + 1 if header.model < len(run.definition.fallback_models) else None
    if header.model and now - header.model_since >= AGAIN_AFTER_MS and not header.invalid:
        return 0
    return header.model


INVALID_LIMIT: Final = 3
"""Unusable replies in a row before the next model gets its turn, or a person is asked."""
