"""What may or may not have happened is settled by its effect (contract section 6)."""

from __future__ import annotations

from typing import Any

from perdure.schemas.records import RetryPolicy

from .. import effects
from ..lifecycle import SUCCEEDED
from ..policies.retry import SAME_KEY, wait_seconds
from ..state import Action, Run
from .asking import ask
from .decision import Decision
from .ending import closing
from .moves import fail, living_twin, request


def policy_of(run: Run, action: Action) -> RetryPolicy:
    """The tool's own way to try again, else the agent's."""
    spec = None if action.kind == "model" else run.start.tools.get(action.target)
    return (spec.retry if spec else None) or run.definition.retry


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
            question=_did_it_happen(run, action),
            fired={"error": action.error},
        )


def _did_it_happen(run: Run, action: Action) -> str:
    if action.undoes is None:
        return "Did it happen? mark_done with its result, mark_not_done to call it again, or cancel the run."
    of = run.action(action.undoes)
    return (
        f"Is {of.target} ({run.action_id(of.n)}) undone? mark_done if it is, mark_not_done to call "
        "it again, or cancel_run to leave it: the outcome then lists it as in doubt."
    )


def call_again(decision: Decision, action: Action, error: dict[str, Any]) -> None:
    """A new attempt after a wait; a call that may repeat freely has its tries counted."""
    run = decision.run
    policy = policy_of(run, action)
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


def settled_at(action: Action) -> int:
    """From when on `absent` can't change any more (ms): a request still on its way has landed."""
    settle = action.timeout_seconds if action.settle_seconds is None else action.settle_seconds
    last_sent = action.unknown_at or action.requested_at or 0
    return last_sent + int(settle * 1000)


def ask_again(decision: Decision, action: Action, why: str) -> None:
    """The query settled nothing. What may repeat is called again; an external call is asked about
    with backoff until its request must have landed, then it is in doubt (contract section 6)."""
    run = decision.run
    settled = settled_at(action)
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
    """Another call has this one's declared key: its result is this one's, or it is waited for, with
    no timer, as that one may itself wait for a person for a week: `flow.advance` comes here again."""
    if other.status in SUCCEEDED:
        of = decision.run.action_id(other.n)
        decision.emit("action_adopted", {"n": action.n, "result": other.result, "of": of})
        return
    error = {"kind": "transient", "code": SAME_KEY, "message": f"call {other.n} has the same key"}
    data = {"n": action.n, "attempt": action.attempt, "error": error, "ambiguous": action.ambiguous}
    decision.emit("retry_scheduled", {**data, "due": None})
