"""Built-in calls (lifecycle section 8; the tools are `policies.builtins`).

Most ask a person: such a call is an action whose question is its work, and the answer is its result.
Those of `notes` succeed at once. A tool of the agent's own with the same name takes its place.
"""

from __future__ import annotations

from typing import Any, Final

from .. import keys
from ..decide import asking, moves
from ..decide.decision import Decision
from ..policies import approval as approvals
from ..state import Action, Run
from . import notes

_SAID: Final = 20_000
"""Characters of what a model says to a person; the call has all of it."""


def propose(
    decision: Decision,
    name: str,
    arguments: dict[str, Any],
    *,
    step: int,
    message: int,
    call_id: str,
) -> None:
    """Propose the call and do what it says."""
    run = decision.run
    header = run.header
    n = header.next_action
    actor = f"model:{moves.model_name(run)}"
    decision.emit(
        "action_proposed",
        {
            "n": n,
            "kind": "builtin",
            "step": step,
            "target": name,
            "queue": "",
            "arguments": decision.lookup.keep(arguments),
            "effect": "read_only",
            "key": keys.idempotency_key(header.run_id, n, header.nonce),
            "timeout_seconds": 0.0,
            "message": message,
            "call_id": call_id,
            "rules": [],
        },
        actor,
    )
    _DOES[name](decision, n, arguments)


def put_forward(decision: Decision, n: int) -> None:
    """Do what a proposed call says: a fork may begin between the two."""
    action = decision.run.action(n)
    _DOES[action.target](decision, n, decision.lookup.value(action.arguments))


def _ask_user(decision: Decision, n: int, arguments: dict[str, Any]) -> None:
    question = str(arguments["question"])[:_SAID]
    asking.ask(
        decision,
        "clarification",
        approvals.shown(question, 200),
        action=decision.run.action(n),
        question=question,
        asked_by=n,
    )


def _hand_over(decision: Decision, n: int, arguments: dict[str, Any]) -> None:
    reason = str(arguments["reason"])[:_SAID]
    asking.ask(
        decision,
        "handover",
        approvals.shown(f"{decision.run.header.agent} hands over: {reason}", 200),
        action=decision.run.action(n),
        question="Answer to let it go on with that, retry to let it try again, or cancel the run.",
        reason=reason,
        asked_by=n,
    )


def _ask_authority(decision: Decision, n: int, arguments: dict[str, Any]) -> None:
    denied = _denied(decision.run, arguments.get("tool"))
    if denied is None:
        error = {
            "kind": "business",
            "code": "NOTHING_DENIED",
            "message": "no call of this run was refused because of missing permission",
        }
        data = {"n": n, "attempt": 0, "error": error, "ambiguous": False, "closed": True}
        decision.emit("action_failed", data)
        return
    asking.ask(
        decision,
        "authority",
        approvals.shown(f"Allow {denied.target}, which was refused", 200),
        action=denied,
        question="Approve to make the call again in your name, or reject.",
        reason=str(arguments["reason"])[:_SAID],
        fired={"error": denied.error},
        asked_by=n,
    )


def _denied(run: Run, tool: Any) -> Action | None:
    """The last call that was refused for lack of permission and is not asked about already, nor
    made by another tool meanwhile."""
    asked = {approval.action for approval in map(run.approval, run.header.asks) if approval}
    for n in range(run.header.next_action - 1, 0, -1):
        action = run.action(n)
        if (
            action.kind == "tool"
            and action.status == "failed"
            and (action.error or {}).get("kind") == "permission"
            and not action.replaced  # the model reads the result of the call in its place
            and tool in (None, *_known_as(run, action))
            and n not in asked
            and run.owns(action)
        ):
            return action
    return None


def _known_as(run: Run, action: Action) -> tuple[str, ...]:
    """The tool's name; of a fallback's call also the one that the model has called."""
    if action.stands_for is None:
        return (action.target,)
    return action.target, run.action(action.stands_for).target


_DOES: Final = {
    "ask_user": _ask_user,
    "ask_authority": _ask_authority,
    "hand_over": _hand_over,
    "pin": notes.pin,
    "update_plan": notes.update_plan,
}
