"""Opening a question to people; `flow.advance` tells them of those that stay open."""

from __future__ import annotations

from typing import Any

import msgspec
from perdure.schemas.records import ApprovalRule

from ..policies import approval as approvals
from ..state import Action, Approval
from .decision import Decision


def put(decision: Decision, question: Approval) -> None:
    """A question that is made already."""
    decision.emit("approval_requested", {"approval": msgspec.to_builtins(question)})
    decision.opened.append(question.n)


def ask(
    decision: Decision,
    kind: str,
    title: str,
    *,
    action: Action | None = None,
    question: str | None = None,
    fired: Any = None,
    reason: str | None = None,
    asked_by: int | None = None,
) -> None:
    """Open a question that no condition decides."""
    tool = None if action is None or action.kind != "tool" else action.target
    rule: ApprovalRule = approvals.rule_for(decision.run.definition, kind, tool)
    made = approvals.open_question(
        decision.run,
        kind=kind,
        rule=rule,
        now=decision.now,
        title=title,
        action=None if action is None else action.n,
        tool=None if action is None else action.target,
        arguments=None if action is None else action.arguments,
        effect=None if action is None else action.effect,
        question=question,
        fired=fired,
        reason=reason,
        asked_by=asked_by,
    )
    put(decision, made)
