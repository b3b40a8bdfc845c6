"""Appliers of questions and answers."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec
from perdure.schemas.records import RunEvent

from ..state import Approval, Run
from .changes import (
    change_action,
    close_action,
    close_ask,
    handed_over,
    plan_step,
    set_timer,
)

_REASON_TEXT: Final = 1_000
"""Of each decision's reason, on a question that many may answer; the event has all of it."""


def approval_requested(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    header = run.header
    approval = msgspec.convert({**data["approval"], "requested_at": event.at}, Approval)
    n = approval.n
    run.writes["p", n] = approval
    header.next_approval = n + 1
    header.asks = [*header.asks, n]
    set_timer(run, f"ask/{n}", approval.expires_at)
    if approval.remind_ms is not None:
        set_timer(run, f"remind/{n}", event.at + approval.remind_ms)
    if approval.asked_by is not None:
        change_action(run, approval.asked_by, "waiting_approval", approval=n)
    elif approval.kind == "action":
        assert approval.action is not None
        change_action(run, approval.action, "waiting_approval", approval=n)


def approval_decided(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    n = data["n"]
    found = run.approval(n)
    assert found is not None
    approval = copy.copy(found)
    reason = data.get("reason")
    entry = {key: data.get(key) for key in ("decision", "approver", "verified")} | {
        "at": event.at,
        "reason": None if reason is None else reason[:_REASON_TEXT],
    }
    if data.get("arguments") is not None:  # a modify: the count starts again on the new digest
        approval.arguments = data["arguments"]
        if approval.original_arguments is None:
            approval.original_arguments = found.arguments
        approval.digest = data["digest"]
        approval.title = data.get("title", approval.title)
        if not data.get("counts", True):
            entry["counts"] = False
        approval.decisions = [entry]
        if "asks" in data:
            _put_to_others(run, event, approval, data["asks"])
    else:
        approval.decisions = [*approval.decisions, entry]
    run.writes["p", n] = approval
    if not data["closes"]:
        return
    close_ask(run, n, data["approver"])
    if approval.kind == "handover":
        handed_over(run)
    if approval.kind == "authority":
        _authority(run, event, approval, data["decision"], data["approver"], data.get("reason"))
    if approval.kind != "action":
        return
    assert approval.action is not None
    if data["decision"] in ("approve", "modify"):
        change_action(
            run,
            approval.action,
            "approved",
            approved_by=data["approver"],
            arguments=approval.arguments,
        )
    elif data["decision"] == "reject":
        if "times" in data:
            target = run.action(approval.action).target
            run.header.rejected = {**run.header.rejected, target: data["times"]}
        _reject(run, event, approval.action, data["approver"], data.get("reason"))


def _put_to_others(run: Run, event: RunEvent, approval: Approval, asks: dict[str, Any]) -> None:
    """The new arguments fall under another rule: those it names are asked, in its time."""
    for name, value in asks.items():
        setattr(approval, name, value)
    approval.escalated = False
    set_timer(run, f"ask/{approval.n}", approval.expires_at)
    remind = approval.remind_ms
    set_timer(run, f"remind/{approval.n}", None if remind is None else event.at + remind)


def _reject(run: Run, event: RunEvent, n: int, by: str, reason: str | None) -> None:
    error = {"kind": "business", "code": "REJECTED", "message": reason or "", "by": by}
    action = change_action(run, n, "rejected", error=error, finished_at=event.at)
    close_action(run, action)
    plan_step(run, action.step_id, status="rejected")


def _authority(
    run: Run, event: RunEvent, approval: Approval, word: str, by: str, reason: str | None
) -> None:
    """The call that was denied is made again in somebody's name, or the asking is declined."""
    if word == "approve":
        assert approval.action is not None
        change_action(run, approval.action, approval=approval.n, approved_by=by)
    elif word == "reject" and approval.asked_by is not None:
        _reject(run, event, approval.asked_by, by, reason)


def _escalate(run: Run, data: dict[str, Any]) -> None:
    """Nobody answered: others are asked, once, with as much time again."""
    n = data["n"]
    found = run.approval(n)
    assert found is not None
    approval = copy.copy(found)
    approval.approvers = found.escalate_to
    approval.groups = found.escalate_groups
    approval.anyone = False
    approval.escalated = True
    approval.on_timeout = "cancel_run"
    approval.expires_at = data["expires_at"]
    run.writes["p", n] = approval
    set_timer(run, f"ask/{n}", approval.expires_at)
    if "remind_at" in data:
        set_timer(run, f"remind/{n}", data["remind_at"])


def approval_expired(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    if data["decision"] == "escalate":
        _escalate(run, data)
        return
    approval = close_ask(run, data["n"], "policy:timeout")
    if approval.kind == "handover":
        handed_over(run)
    if approval.kind == "authority":
        word = data["decision"]
        _authority(run, event, approval, word, "policy:timeout", "nobody decided in time")
    if approval.kind != "action":
        return
    assert approval.action is not None
    if data["decision"] == "reject":
        _reject(run, event, approval.action, "policy:timeout", "nobody decided in time")
    elif data["decision"] == "approve":
        change_action(
            run,
            approval.action,
            "approved",
            approved_by="policy:timeout",
            arguments=approval.arguments,  # a counted `modify` may have changed what is asked
        )


def approver_notified(run: Run, event: RunEvent, data: dict[str, Any]) -> None:
    """A notice changes nothing but the history; a reminder says when the next one is due."""
    if "next_at" in data:
        set_timer(run, f"remind/{data['n']}", data["next_at"])
