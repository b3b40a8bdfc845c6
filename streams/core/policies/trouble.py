"""When the same thing keeps going wrong, and what may stand in for a call (lifecycle section 3)."""

from __future__ import annotations

from typing import Any, Final

from ..state import Action, Approval, Run

REJECTED_LIMIT: Final = 2
"""A call that people decline so often goes to a person as a handover."""
LOOKED_BACK: Final = 500
"""Actions searched for an older result: a failure may cost no more at step 2,000 than at step 2."""


def times_proposed(run: Run, tool: str, arguments: Any, step: int) -> int:
    """In how many steps in a row, this one included, the model has proposed this very call.

    Equal calls of one reply count once: the model has not seen what came of the first.
    """
    header = run.header
    if not header.last_call:
        return 1
    last = run.action(header.last_call)
    if last.target != tool or last.arguments != arguments:
        return 1
    return header.repeated + (last.step != step)


def error_name(error: dict[str, Any]) -> str:
    """What makes two errors the same: kind and code, not the text, which may hold a time or an id."""
    return f"{error['kind']}/{error.get('code', '')}"


def times_failed(run: Run, action: Action, error: dict[str, Any]) -> int:
    """How often in a row, this time included, the tool has failed with this error; 0: not counted.

    A plan's calls are not: there a person is asked at once, or the run fails.
    """
    if action.kind != "tool" or action.message is None or action.status == "failed":
        return 0
    known = run.header.streaks.get(action.target)
    same = known is not None and known["error"] == error_name(error)
    return 1 + (known["times"] if known is not None and same else 0)


def last_good(run: Run, action: Action, since: int) -> Action | None:
    """The last success of the same call of this run that ended at or after ``since`` (ms)."""
    if action.effect != "read_only" or action.status == "approved":
        return None
    for n in range(action.n - 1, max(0, action.n - 1 - LOOKED_BACK), -1):
        other = run.action(n)
        if (
            other.target == action.target
            and other.status == "succeeded"
            and other.degraded is None
            and other.answered  # by the service, not by a person in its place
            and other.arguments == action.arguments
        ):
            return other if (other.finished_at or 0) >= since else None
    return None


def times_rejected(run: Run, approval: Approval) -> int:
    """How often people have declined calls of this tool, this time included; 0: not counted."""
    if approval.kind != "action" or approval.action is None:
        return 0
    action = run.action(approval.action)
    return 0 if action.message is None else run.header.rejected.get(action.target, 0) + 1
