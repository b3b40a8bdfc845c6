"""`decide`: from a state and a message to events, or a refusal. No clock, no chance, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.schemas.records import ActionResult

from ..state import Run
from .control import on_control
from .decided import on_decided
from .decision import Decision, Lookup, Refusal
from .inputs import Control, Decided, Timer, Unusable
from .result import on_result
from .timer import on_timer
from .unusable import on_unusable

DECIDERS: Final[dict[type, Callable[[Run, Any, int, Lookup], Decision | Refusal]]] = {
    ActionResult: on_result,
    Decided: on_decided,
    Control: on_control,
    Timer: on_timer,
    Unusable: on_unusable,
}


def decide(run: Run, message: Any, now: int, lookup: Lookup) -> Decision | Refusal:
    """What ``message`` means for ``run`` at ``now`` (ms). ``run`` is left as it was.

    The decision holds the events and the run after them; `apply` gives the same run.
    """
    return DECIDERS[type(message)](run, message, now, lookup)
