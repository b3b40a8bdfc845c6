"""A call that succeeded, and whose result can't be used.

What was only to be read has not been had: such a call fails. Of a call that writes its connector's
word stands, that it happened: it is in the outcome and can be undone, and its result says what is
missing. To call it a failure would lose an effect, to call it unknown would make some again.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from perdure.schemas.records import ActionError, ActionResult

from ..state import Run
from .decision import Decision, Lookup, Refusal
from .inputs import Unusable
from .result import on_result

CODE = "bad_result"


def on_unusable(run: Run, message: Unusable, now: int, lookup: Lookup) -> Decision | Refusal:
    """Decide on the result as it can be told."""
    told = message.result
    n = int(told.action_id.rpartition("/")[2])
    action = run.action(n) if 1 <= n < run.header.next_action else None
    why = f"the result can't be used: {message.why}"
    if action is not None and action.kind == "model":
        told = _failed(told, "model_invalid", why)
    elif action is not None and action.effect == "read_only":
        told = _failed(told, "internal", why)
    else:
        told = msgspec.structs.replace(told, result={"unreadable": message.why})
    return on_result(run, told, now, lookup)


def _failed(
    told: ActionResult, kind: Literal["model_invalid", "internal"], why: str
) -> ActionResult:
    error = ActionError(kind, CODE, why)
    return msgspec.structs.replace(told, status="failed", result=None, error=error)
