"""How a run goes on after anything happened.

Every decider ends in `advance`. It requests what may be requested, lets the plan or the model
loop propose what comes next, finishes an ending whose last call has its answer, and records
the derived status.
"""

from __future__ import annotations

from ..lifecycle import FINAL, MOVING
from ..planning import model_loop, plan
from .decision import Decision
from .moves import finish, put_forward, request


def advance(decision: Decision) -> None:
    """Go on as far as possible without the outside, then settle the status."""
    run = decision.run
    header = run.header
    if header.status in FINAL:
        return
    if header.ending is not None:
        _finish_ending(decision)
    elif not header.paused:
        _request_ready(decision)
        if header.ending is None:
            (plan if header.planned else model_loop).advance(decision)
        if header.ending is not None and header.status not in FINAL:
            _finish_ending(decision)
    _settle_status(decision)


def _settle_status(decision: Decision) -> None:
    header = decision.run.header
    if header.status in FINAL:
        return
    moving = any(action.status in MOVING for action in decision.run.open_actions())
    derived = "waiting_approval" if header.asks and not moving else "running"
    if derived != header.status:
        decision.emit("status_changed", {"from": header.status, "to": derived})


def _request_ready(decision: Decision) -> None:
    for action in decision.run.open_actions():
        if action.status == "approved":
            request(decision, action.n)
        elif action.status == "proposed":  # it waits for the call it shares its key with
            put_forward(decision, action.n)


def _finish_ending(decision: Decision) -> None:
    header = decision.run.header
    assert header.ending is not None
    if not header.open:
        finish(decision, header.ending.to)
