"""A `modify` brings other arguments: who is asked about those (lifecycle section 4).

The rules are evaluated on the new arguments as they would be had the agent proposed them. Where they
name other people, another quorum or another policy than the question has, the question becomes that
rule's: else whoever may decide on a small amount could put in a large one, alone. Its sender counts
where the rule lets him decide. New arguments that ask nobody leave the question as it is.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..policies import approval as approvals
from ..state import Approval
from .decision import Decision
from .moves import rules_of

_ASKS: Final = (
    "approvers", "groups", "anyone", "self_approval", "signed", "required", "within_ms",
    "remind_ms", "on_timeout", "escalate_to", "escalate_groups",
)  # fmt: skip
"""What of a question its rule makes."""


def asked_anew(decision: Decision, approval: Approval, arguments: Any) -> Approval | None:
    """The question as the new arguments' rule puts it; None: it asks those people already.

    ``approval``: the open question; ``arguments``: the new ones themselves, not a reference.
    """
    if approval.action is None:
        return None
    run = decision.run
    rules = rules_of(run, run.action(approval.action), arguments)
    if not rules.asks:
        return None
    made = approvals.open_question(
        run,
        kind=approval.kind,
        rule=rules.rule,
        now=decision.now,
        title=approval.title,
        fired=rules.fired,
    )
    same = approvals.raised(made) if approval.escalated else made
    if all(getattr(same, name) == getattr(approval, name) for name in _ASKS):
        return None
    return msgspec.structs.replace(
        approval,
        rule=made.rule,
        expires_at=made.expires_at,
        escalated=False,
        **{name: getattr(made, name) for name in _ASKS},
    )


def asks(question: Approval) -> dict[str, Any]:
    """What `approval_decided` says of a question that was put to others."""
    names = (*_ASKS, "rule", "expires_at")
    return {name: getattr(question, name) for name in names}
