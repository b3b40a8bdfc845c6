"""The end of a run, in two phases (lifecycle section 1), and what brings it about by itself."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import Usage

from .. import effects
from ..lifecycle import IN_FLIGHT, RUN_TRANSITIONS
from ..policies.budget import no_room, used_up
from ..state import Action, Run
from .asking import ask
from .decision import Decision

RETENTION_MS: Final = 7 * 86_400_000
"""A finished run's records are kept this long."""


def closing(run: Run, action: Action) -> bool:
    """The run ends, so this action is only let come to its end; an undoing is what the end is for."""
    return run.header.ending is not None and action.kind != "compensation"


def end(
    decision: Decision,
    to: str,
    reason: str,
    *,
    actor: str = "engine",
    error: dict[str, Any] | None = None,
    compensate: bool | None = None,
) -> None:
    """The first phase of an end: stop what is not requested, cancel what is in flight.

    ``compensate``: undo what was done; left out, a failure and a cancel do as the agent says.
    """
    run = decision.run
    in_flight = []
    idle = []
    for action in run.open_actions():
        if action.kind == "compensation":
            continue
        if action.status in IN_FLIGHT:
            soon = effects.started_timer(action, decision.now)
            known = run.header.timers.get(f"act/{action.n}", soon)
            in_flight.append([action.n, min(soon, known)])
        else:
            idle.append(action)
    data: dict[str, Any] = {"to": to, "reason": reason, "in_flight": in_flight}
    if error is not None:
        data["error"] = error
    if compensate is None:
        compensate = to != "done" and run.definition.on_failure == "compensate"
    if compensate:
        data["compensate"] = True
    decision.emit("ending_started", data, actor)
    for n in run.header.notices:
        if run.action(n).status == "backing_off":
            decision.emit("action_cancelled", {"n": n, "reason": reason})
    for action in idle:
        if action.status == "in_doubt":
            decision.emit("action_in_doubt", {"n": action.n, "closed": True})
        elif action.status == "failed":
            decision.emit(
                "action_failed",
                {
                    "n": action.n,
                    "attempt": action.attempt,
                    "error": action.error,
                    "ambiguous": action.ambiguous,
                    "closed": True,
                },
            )
        else:
            decision.emit("action_cancelled", {"n": action.n, "reason": reason})


def finish(decision: Decision, status: str) -> None:
    """The last event of a run; a status the table can't reach directly passes through running."""
    header = decision.run.header
    if status not in RUN_TRANSITIONS[header.status]:
        decision.emit("status_changed", {"from": header.status, "to": "running"})
    decision.emit("run_finished", {"status": status, "purge_at": decision.now + RETENTION_MS})


def over_budget(decision: Decision, next_call: Usage | None = None) -> bool:
    """True: the budget leaves no room for another step, or for a model call that is about to be made;
    a person is asked, or the run stops."""
    run = decision.run
    header = run.header
    used = used_up(run, decision.now) if next_call is None else no_room(run, next_call)
    if used is None:
        return False
    asked = any(
        approval is not None and approval.kind == "budget"
        for approval in map(run.approval, header.asks)
    )
    if asked:
        return True
    if run.definition.budget.then == "stop":
        end(decision, "done", f"the budget is used up: {used}", actor="policy:budget")
    elif not header.open:
        title = f"Budget of run {header.run_id} is used up: {used}"
        ask(decision, "budget", title, question="Extend it, stop here, or cancel the run?")
    return True
