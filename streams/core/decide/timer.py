"""A run's timers: overdue actions, expired questions, the deadline."""

from __future__ import annotations

from ..lifecycle import FINAL
from ..policies.approval import POLICY_MAY
from ..state import Run
from . import notices
from .decided import act
from .decision import Decision, Lookup, Refusal
from .ending import end
from .flow import advance
from .inputs import Timer
from .result import overdue


def on_timer(run: Run, message: Timer, now: int, lookup: Lookup) -> Decision | Refusal:
    """Act on a timer that came due; one that was cancelled meanwhile is refused."""
    due = run.header.timers.get(message.name)
    if due is None or due > now:
        return Refusal(f"timer {message.name} is not due")
    if run.header.status in FINAL:
        return Refusal(f"the run is {run.header.status}")
    decision = Decision.on(run, now, lookup)
    what, _, number = message.name.partition("/")
    if what == "act" and run.header.paused and run.action(int(number)).status == "backing_off":
        return Refusal("the run is paused: its backoffs are over when it is resumed")
    if what == "act" and run.action(int(number)).kind == "notice":
        notices.overdue(decision, decision.run.action(int(number)))
    elif what == "act":
        overdue(decision, run.action(int(number)))
    elif what == "remind":
        _remind(decision, int(number))
    elif what == "ask":
        _expired(decision, int(number))
    else:
        end(decision, "cancelled", "the deadline has passed", actor="policy:deadline")
    advance(decision)
    return decision


def _expired(decision: Decision, n: int) -> None:
    """Nobody decided in time: the rule's policy acts."""
    approval = decision.run.approval(n)
    assert approval is not None
    if approval.on_timeout == "escalate":
        at = decision.now + approval.within_ms
        data = {"n": n, "decision": "escalate", "to": approval.escalate_to, "expires_at": at}
        if approval.remind_ms is not None:  # whoever is asked now is told now, and reminded later
            data["remind_at"] = decision.now + approval.remind_ms
        decision.emit("approval_expired", data, "policy:timeout")
        raised = decision.run.approval(n)
        assert raised is not None
        notices.tell(decision, raised, "escalated")
        return
    word = approval.on_timeout if approval.on_timeout in POLICY_MAY[approval.kind] else "cancel_run"
    actor = "policy:timeout"
    decision.emit("approval_expired", {"n": n, "decision": word}, actor)
    act(decision, approval, word, None, actor)


def _remind(decision: Decision, n: int) -> None:
    """People are told again, and once more after the same time."""
    approval = decision.run.approval(n)
    assert approval is not None
    assert approval.remind_ms is not None
    data = {
        "n": n,
        "occasion": "reminder",
        "outcome": "due",
        "next_at": decision.now + approval.remind_ms,
    }
    decision.emit("approver_notified", data, notices.ACTOR)
    notices.tell(decision, approval, "reminder")
