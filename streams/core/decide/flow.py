"""How a run goes on after anything happened.

Every decider ends in `advance`. It requests what may be requested, lets the plan or the model
loop propose what comes next, finishes an ending whose last call has its answer, and records
the derived status.
"""

from __future__ import annotations

from typing import Final

from ..lifecycle import FINAL, MOVING, SUCCEEDED
from ..planning import builtin, model_loop, plan
from ..policies.retry import waits_for_its_key
from ..state import Action
from . import notices, undoing
from .decision import Decision
from .ending import finish
from .moves import living_twin, put_forward, request
from .settling import call_anew


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
    _tell_people(decision)
    _settle_status(decision)


def _tell_people(decision: Decision) -> None:
    """Of the questions that were opened and stay open."""
    for n in decision.opened:
        approval = decision.run.approval(n)
        if approval is not None and approval.open:
            notices.tell(decision, approval, "opened")
    decision.opened.clear()


def _settle_status(decision: Decision) -> None:
    header = decision.run.header
    if header.status in FINAL or header.status == "compensating":
        return
    moving = any(
        action.status in MOVING and not waits_for_its_key(action)
        for action in decision.run.open_actions()
    )
    derived = "waiting_approval" if header.asks and not moving else "running"
    if derived != header.status:
        decision.emit("status_changed", {"from": header.status, "to": derived})


def _request_ready(decision: Decision) -> None:
    for action in decision.run.open_actions():
        if action.status == "approved":
            request(decision, action.n)
        elif action.status == "proposed" and not _asked_about(
            decision, action
        ):  # a fork began there, or it waits for its key's first
            _PUT_FORWARD.get(action.kind, put_forward)(decision, action.n)
        elif waits_for_its_key(action):
            _unless_it_waits_still(decision, action)
        elif action.kind == "builtin":
            _settled_meanwhile(decision, action)


def _unless_it_waits_still(decision: Decision, action: Action) -> None:
    """Nobody else has its declared key any more, or there is a result for it."""
    other = living_twin(decision, action.n)
    if other is None or decision.run.action(other).status in SUCCEEDED:
        call_anew(decision, action.n)


def _asked_about(decision: Decision, action: Action) -> bool:
    """A person says first whether it is to be made at all: it goes round in circles."""
    asked = map(decision.run.approval, decision.run.header.asks)
    return any(approval is not None and approval.action == action.n for approval in asked)


_PUT_FORWARD: Final = {"builtin": builtin.put_forward, "model": request}


def _settled_meanwhile(decision: Decision, action: Action) -> None:
    """A built-in call whose question was closed by the outside: a late result has answered it."""
    asked = None if action.approval is None else decision.run.approval(action.approval)
    if asked is not None and not asked.open:
        result = "This was settled meanwhile: look at the call's own result."
        decision.emit("action_succeeded", {"n": action.n, "result": result})


def _finish_ending(decision: Decision) -> None:
    header = decision.run.header
    assert header.ending is not None
    if header.open or (header.ending.compensate and undoing.go_on(decision)):
        return
    finish(decision, header.ending.to)
