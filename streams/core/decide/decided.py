"""A person's decision on an open question (lifecycle section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from perdure.schemas.records import ApprovalDecision

from ..arguments import argument_error
from ..planning import window
from ..policies import approval as approvals
from ..policies import trouble
from ..policies.budget import extended
from ..state import Action, Approval, Run
from . import asking, modified, undoing
from .decision import Decision, Lookup, Refusal
from .ending import end
from .flow import advance
from .inputs import Decided
from .moves import declared, fail, request
from .settling import call_anew


def on_decided(run: Run, message: Decided, now: int, lookup: Lookup) -> Decision | Refusal:
    """Count a decision, or say why it does not count."""
    word = message.decision
    if word.run_id is not None and word.run_id != run.header.run_id:
        return Refusal(f"approval {word.approval_id} is not of run {word.run_id}")
    run_id, _, number = word.approval_id.rpartition("/a")
    if run_id != run.header.run_id:
        return Refusal(f"approval {word.approval_id} is not of run {run.header.run_id}")
    n = int(number)
    approval = run.approval(n) if 1 <= n < run.header.next_approval else None
    if message.refused is not None:
        return Refusal(message.refused)
    refused = approvals.refuse(run, approval, word, message.at, message.verified)
    if refused is not None:
        return Refusal(refused)
    assert approval is not None
    if message.again and word.digest is None and approval.original_arguments is not None:
        return Refusal(
            "the arguments were changed since you said yes: give the digest of what you say yes to",
            final=True,
        )
    if word.decision == "modify" and approval.tool is not None:
        broken = argument_error(run.spec(approval.tool), lookup.value(word.arguments) or {})
        if broken is not None:
            return Refusal(f"arguments: {broken}")
        spec = run.spec(approval.tool)
        new, old = lookup.value(word.arguments), lookup.value(approval.arguments)
        if declared(spec, new) != declared(spec, old):
            return Refusal(
                f"{', '.join(spec.key or ())} make the call's key: reject it, so that another is proposed"
            )
    if word.decision == "answer" and not run.header.planned:
        broken = window.too_large(run, word.answer, "answer")
        if broken is not None:
            return Refusal(broken)
    decision = Decision.on(run, now, lookup)
    _record(decision, approval, message)
    advance(decision)
    return decision


def _record(decision: Decision, approval: Approval, message: Decided) -> None:
    word = message.decision
    actor = f"approver:{word.approver}"
    data: dict[str, Any] = {
        "n": approval.n,
        "decision": word.decision,
        "approver": word.approver,
        "verified": message.verified,
        "request_id": message.request_id,
    }
    if word.reason is not None:
        data["reason"] = word.reason
    asked, counts = approval, True
    if word.decision == "modify":
        data["arguments"] = word.arguments
        changed = msgspec.structs.replace(approval, arguments=word.arguments)
        data["digest"] = approvals.digest_of(decision.run, changed)
        if approval.tool is not None:
            new = decision.lookup.value(word.arguments)
            data["title"] = approvals.title_of(decision.run.spec(approval.tool), new)
            asked = modified.asked_anew(decision, approval, new) or approval
        if asked is not approval:
            data["asks"] = modified.asks(asked)
            counts = approvals.may_decide(decision.run, asked, word.approver, message.verified)
            if not counts:
                data["counts"] = False
    if word.decision == "reject":
        times = trouble.times_rejected(decision.run, approval)
        if times:
            data["times"] = times
    before = 0 if word.decision == "modify" else len(approvals.counted(approval))
    enough = before + counts >= asked.required
    data["closes"] = word.decision not in ("approve", "modify") or enough
    decision.emit("approval_decided", data, actor)
    after = decision.run.approval(approval.n)
    assert after is not None
    decision.verdict = word.decision if data["closes"] else approvals.so_far(after)
    if "asks" in data:
        decision.opened.append(approval.n)
    if data["closes"]:
        act(decision, approval, word.decision, word, actor)


def act(
    decision: Decision, approval: Approval, word: str, said: ApprovalDecision | None, actor: str
) -> None:
    """What a closed question's answer does; also used for an expiry's policy (``said`` None)."""
    if word == "cancel_run" and approval.action and approval.action == decision.run.header.undoing:
        _give_up(decision, approval.action, actor)
        return
    if word == "cancel_run":
        reason = (said.reason if said else None) or ("cancelled by " + actor)
        end(decision, "cancelled", reason, actor=actor)
        return
    _ACTS[word](decision, approval, said, actor)


def _give_up(decision: Decision, n: int, actor: str) -> None:
    """An undoing that nobody brings about: it stays not undone, and the rest goes on."""
    action = decision.run.action(n)
    if action.status == "in_doubt":
        decision.emit("action_in_doubt", {"n": n, "closed": True}, actor)
        return
    data = {"n": n, "attempt": action.attempt, "error": action.error, "closed": True}
    decision.emit("action_failed", {**data, "ambiguous": action.ambiguous}, actor)


def _nothing(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    """The applier has changed the action; `advance` requests it or goes on without it."""


def _approve(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    if approval.kind != "authority" or approval.action is None:
        return
    call_anew(decision, approval.action)
    if approval.asked_by is not None:
        by = decision.run.action(approval.action).approved_by
        told = f"Allowed by {by}. The call was made again: its own result stands above."
        decision.emit("action_succeeded", {"n": approval.asked_by, "result": told}, actor)


def _reject(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    if approval.kind == "budget":
        end(decision, "done", "stopped at the end of its budget", actor=actor)
    elif approval.kind == "action" and approval.tool is not None and said is not None:
        _declined_again(decision, approval.tool)
    elif approval.kind == "authority" and approval.action is not None and not approval.asked_by:
        fail(
            decision,
            approval.action,
            {"kind": "business", "code": "REJECTED", "message": "authority was refused"},
            {},
            actor,
            ambiguous=decision.run.action(approval.action).ambiguous,
        )


def _declined_again(decision: Decision, tool: str) -> None:
    """An agent that proposes what people decline goes to a person (lifecycle section 3)."""
    run = decision.run
    times = run.header.rejected.get(tool, 0)
    asked = [run.approval(n) for n in run.header.asks]
    again = any(a is not None and (a.rule or {}).get("declined") == tool for a in asked)
    if times >= trouble.REJECTED_LIMIT and not again:
        asking.ask(
            decision,
            "handover",
            approvals.shown(f"{tool} was declined {times} times, and the agent goes on", 200),
            question="Tell the agent what to do instead, retry to let it go on, or cancel the run.",
            fired={"declined": tool, "times": times},
        )


def _retry(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    if approval.asked_by is not None:
        told = "Go on and try again."
        decision.emit("action_succeeded", {"n": approval.asked_by, "result": told}, actor)
        return
    action = None if approval.action is None else decision.run.action(approval.action)
    # one that is only proposed `advance` puts forward, with the questions that it asks
    if action is None or action.status == "proposed" or undoing.begin_again(decision, action):
        return
    call_anew(decision, action.n)


def _others_like_it(decision: Decision, action: Action, actor: str) -> None:
    """Equal calls of the same reply: what a person says instead of one stands for them too."""
    for other in decision.run.open_actions():
        if (
            action.circling
            and other.circling
            and other.status == "proposed"
            and (other.target == action.target)
        ):
            data = {"n": other.n, "attempt": 0, "error": _NOT_MADE, "ambiguous": False}
            decision.emit("action_failed", {**data, "closed": True}, actor)


_NOT_MADE: Final = {
    "kind": "business",
    "code": "REPEATED_CALL",
    "message": "not called: a person has answered instead",
}


def _answer(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    """In a plan the action's result; to a model a message, after which it is called again."""
    run = decision.run
    answer = None if said is None else said.answer
    if approval.asked_by is not None:
        decision.emit("action_succeeded", {"n": approval.asked_by, "result": answer}, actor)
        return
    action = None if approval.action is None else run.action(approval.action)
    if action is not None and (
        action.kind == "compensation" or (action.kind == "tool" and run.header.planned)
    ):
        decision.emit("action_succeeded", {"n": action.n, "result": answer}, actor)
        return
    if action is not None:
        decision.emit(
            "action_failed",
            {
                "n": action.n,
                "attempt": action.attempt,
                "error": action.error or _NOT_MADE,
                "ambiguous": action.ambiguous,
                "closed": True,
            },
            actor,
        )
        _others_like_it(decision, action, actor)
    decision.emit("message_received", {"content": answer, "by": actor}, actor)


def _mark_done(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    assert approval.action is not None
    result = None if said is None else said.answer
    decision.emit("action_succeeded", {"n": approval.action, "result": result}, actor)


def _mark_not_done(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    assert approval.action is not None
    request(decision, approval.action, proven=True)


def _extend(
    decision: Decision, approval: Approval, said: ApprovalDecision | None, actor: str
) -> None:
    assert said is not None
    assert said.budget is not None
    more = extended(decision.run.header.budget, said.budget)
    decision.emit("budget_changed", {"budget": msgspec.to_builtins(more)}, actor)


Act = Callable[[Decision, Approval, ApprovalDecision | None, str], None]
_ACTS: Final[dict[str, Act]] = {
    "approve": _approve,
    "modify": _nothing,
    "reject": _reject,
    "retry": _retry,
    "answer": _answer,
    "mark_done": _mark_done,
    "mark_not_done": _mark_not_done,
    "extend": _extend,
}
