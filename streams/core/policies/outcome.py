"""The outcome of a run, from its action records alone, and RunState for people (contract section 5)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.records import ActionError, ActionRecord, Outcome

from ..lifecycle import PHASES, SUCCEEDED
from ..state import Action, Run
from . import claims
from .retry import waits_for_its_key


def record(run: Run, action: Action) -> ActionRecord:
    """An action as people see it."""
    error = action.error
    return ActionRecord(
        action_id=run.action_id(action.n),
        step=action.step,
        tool=action.target,
        arguments=action.arguments,
        effect=action.effect,  # type: ignore[arg-type]
        idempotency_key=action.key,
        cache_key=f"{run.header.session_id}_{run.action_id(action.n)}",
        attempts=action.attempt,
        status=action.status,
        phase=phase(action),
        result=action.result,
        error=None if error is None else _error(error),
        approval_id=None if action.approval is None else run.approval_id(action.approval),
        approved_by=action.approved_by,
        degraded=action.degraded,
        started_at=action.started_at or action.requested_at,
        finished_at=action.finished_at,
    )


def _error(error: dict[str, Any]) -> ActionError:
    return ActionError(
        kind=error["kind"], code=error.get("code", ""), message=error.get("message", "")
    )


def phase(action: Action) -> str:
    """The action's phase: idle, tool_calling, model_calling, waiting_result, condition_check, finished."""
    found = PHASES.get(action.status, "finished")
    return "model_calling" if found == "tool_calling" and action.kind == "model" else found


def build(run: Run) -> Outcome:
    """The outcome of a run that has ended."""
    header = run.header
    lists: dict[str, list[ActionRecord]] = {
        "completed": [],
        "not_completed": [],
        "in_doubt": [],
        "compensated": [],
        "degraded": [],
    }
    actions = [run.action(n) for n in range(1, header.next_action)]
    undoings = {action.undoes: action for action in actions if action.undoes is not None}
    for action in actions:
        if action.kind == "tool" and not _superseded(run, action):
            lists[_list_of(action, undoings.get(action.n))].append(record(run, action))
    missing = [
        step_id for step_id, step in header.plan.items() if step["status"] in ("skipped", "pending")
    ]
    ending = header.ending
    complete = (
        header.status == "done"
        and not lists["not_completed"]
        and not lists["in_doubt"]
        and not lists["degraded"]
        and not missing
        and ending is None
    )
    errors = [dict(error) for error in header.errors]
    claimed = _claimed(run, lists)
    errors += [_claim(tool) for tool in claimed]
    return Outcome(
        run_id=header.run_id,
        agent=header.agent,
        user_id=header.user_id,
        session_id=header.session_id,
        tenant=header.tenant,
        metadata=header.metadata,
        status=header.status,  # type: ignore[arg-type]
        complete=complete,
        result=_result(run),
        text=_text(run, lists, missing, claimed),
        completed=msgspec.to_builtins(lists["completed"]),
        not_completed=msgspec.to_builtins(lists["not_completed"]),
        in_doubt=msgspec.to_builtins(lists["in_doubt"]),
        compensated=msgspec.to_builtins(lists["compensated"]),
        degraded=msgspec.to_builtins(lists["degraded"]),
        errors=errors,
        usage=usage(run),
        version=header.version,
        hash=header.hash,
        finished_at=header.finished_at or header.updated_at,
    )


def _superseded(run: Run, action: Action) -> bool:
    """Another call stands for it: a fallback tool's, or, of a call that was cancelled before it
    was made, the one by which a retry proposed its step anew.

    A step that a retry has freed and that was not proposed again before the end has no other call
    to stand for it, so this one stays in the lists.
    """
    if action.replaced and action.status == "failed" and not action.ambiguous:
        return True
    if action.status != "cancelled" or action.ambiguous or action.step_id is None:
        return False
    current = run.header.plan[action.step_id].get("n")
    return current is not None and bool(current != action.n)


_LEFT: Final = {"completed": "compensated", "in_doubt": "in_doubt", "not_completed": "completed"}
"""What an undoing that was given up leaves of the action, by what became of the undoing."""


def stands(action: Action, undoing: Action | None) -> bool:
    """It is done, and so far nothing has undone it. ``undoing``: the action that should, if any."""
    if action.status == "compensation_failed" and undoing is not None:
        return _LEFT[_list_of(undoing)] == "completed"
    return action.status in ("succeeded", "compensating")


def _list_of(action: Action, undoing: Action | None = None) -> str:
    if action.status == "compensated":
        return "compensated"
    if action.status == "compensation_failed" and undoing is not None:
        return _LEFT[_list_of(undoing)]
    if action.degraded is not None and action.status == "succeeded":
        return "degraded"
    if action.status in SUCCEEDED:
        return "completed"
    if action.status == "in_doubt" or (action.ambiguous and action.effect != "read_only"):
        return "in_doubt"
    return "not_completed"


def _result(run: Run) -> Any:
    header = run.header
    if not header.planned:
        return header.answer
    found: dict[str, Any] = {}
    for step_id, step in header.plan.items():
        n = step.get("n")
        done = n is not None and run.action(n).status in SUCCEEDED
        found[step_id] = run.action(n).result if done else None
    return found


def _claimed(run: Run, lists: dict[str, list[ActionRecord]]) -> list[str]:
    """Tools that the answer speaks of as used, and of which no call is among the completed."""
    answer = run.header.answer
    if run.header.planned or not isinstance(answer, str):
        return []
    listed = [record for name in ("completed", "degraded") for record in lists[name]]
    happened = {record.tool for record in listed}
    for record in listed:  # a fallback has done what its tool was called for
        action = run.action(int(record.action_id.rpartition("/")[2]))
        if action.stands_for is not None:
            happened.add(run.action(action.stands_for).target)
    called = [record.tool for name in lists for record in lists[name]]
    known = dict.fromkeys([*run.definition.tools, *called])
    return claims.spoken_of(answer, [tool for tool in known if tool not in happened])


def _claim(tool: str) -> dict[str, Any]:
    text = f"the answer speaks of {tool} as done, and no call of it is among the completed"
    return {"kind": "claim", "code": "NOT_COMPLETED", "message": text, "tool": tool}


def _text(
    run: Run, lists: dict[str, list[ActionRecord]], missing: list[str], claimed: list[str]
) -> str:
    header = run.header
    words = {"done": "Finished", "failed": "Failed", "cancelled": "Cancelled"}
    parts = [words[header.status] + (f": {header.ending.reason}." if header.ending else ".")]
    for name, intro in (
        ("completed", "Done"),
        ("not_completed", "Not done"),
        ("in_doubt", "Unknown whether done"),
        ("compensated", "Undone"),
        ("degraded", "Answered from an older result"),
    ):
        if lists[name]:
            parts.append(f"{intro}: {_names(lists[name])}.")
    if missing:
        parts.append(f"Steps not reached: {', '.join(missing[:20])}.")
    if not header.planned and isinstance(header.answer, str) and header.status == "done":
        parts.append(header.answer)
    if claimed:
        parts.append(f"(No call of {', '.join(claimed)} was completed, whatever the answer says.)")
    return " ".join(parts)


def _names(actions: list[ActionRecord], limit: int = 10) -> str:
    names = [f"{action.tool} ({action.action_id.rsplit('/', 1)[1]})" for action in actions[:limit]]
    more = len(actions) - limit
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def usage(run: Run) -> dict[str, Any]:
    header = run.header
    return {
        "steps": header.step,
        "input_tokens": header.input_tokens,
        "output_tokens": header.output_tokens,
        "cost": header.cost,
    }


def waiting_for(run: Run) -> list[dict[str, Any]]:
    """Everything the run waits for: questions and backoffs."""
    found: list[dict[str, Any]] = []
    header = run.header
    for n in header.asks:
        approval = run.approval(n)
        assert approval is not None
        found.append(
            {
                "kind": approval.kind,
                "approval_id": run.approval_id(n),
                "since": approval.requested_at,
                "until": approval.expires_at,
            }
        )
    for action in run.open_actions():
        if action.status == "backing_off" and not waits_for_its_key(action):
            kind = "model" if action.kind == "model" else "retry"
            if (action.error or {}).get("code") == "BREAKER_OPEN":
                kind = "breaker"
            found.append(
                {
                    "kind": kind,
                    "target": action.target,
                    "since": action.requested_at or header.updated_at,
                    "until": header.timers.get(f"act/{action.n}"),
                }
            )
    return found


def run_state(run: Run, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """RunState (contract section 5) as plain JSON; ``messages`` as rendered by the window."""
    header = run.header
    notes = run.notes
    plan = notes.plan or [
        {"id": step_id, "title": step.get("title", step_id), "status": step["status"]}
        for step_id, step in header.plan.items()
    ]
    return {
        "run_id": header.run_id,
        "agent": header.agent,
        "user_id": header.user_id,
        "session_id": header.session_id,
        "tenant": header.tenant,
        "metadata": header.metadata,
        "status": header.status,
        "version": header.version,
        "paused": header.paused,
        "ending": None if header.ending is None else msgspec.to_builtins(header.ending),
        "waiting_for": waiting_for(run),
        "plan": plan,
        "current_step": header.current_step,
        "steps_done": header.steps_done,
        "steps_total": header.steps_total,
        "actions": [
            msgspec.to_builtins(record(run, run.action(n))) for n in range(1, header.next_action)
        ],
        "messages": messages,
        "summary": notes.summary,
        "key_state": notes.facts or None,
        "usage": usage(run),
        "budget": msgspec.to_builtins(header.budget),
        "last_api_call_status": header.api,
        "updated_at": header.updated_at,
        "hash": header.hash,
    }
