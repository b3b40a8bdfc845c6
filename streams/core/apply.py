"""Appliers: the only code that changes a run's state (one per event type, tested to be total).

`apply` is pure: it returns a new run. `evolve` does the same to a private copy, so that a
decision of several events copies once. An applier depends on nothing but the state and the
event, so folding a run's events gives its state on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from perdure.schemas.records import RunEvent

from .appliers import actions, approvals, notes, runs
from .lifecycle import FINAL
from .state import Header, RecordKey, Run


class BrokenHistory(Exception):
    """Events that can't follow one another: a gap in the versions, or no `run_started` first."""


def apply(
    run: Run | None, event: RunEvent, base: Callable[[RecordKey], Any | None] = lambda key: None
) -> Run:
    """The run after ``event``; ``run`` is left as it was."""
    if run is None:
        return begin(event, base)
    after = run.copy()
    evolve(after, event)
    return after


def fold(events: Iterable[RunEvent]) -> Run | None:
    """The state that a run's events make. Raises `BrokenHistory`."""
    run: Run | None = None
    for event in events:
        run = follow(run, event)
    return run


def begins_anew(run: Run | None, event: RunEvent) -> bool:
    """Whether the event is the first of another run of the same id.

    The engine forgets ended runs and, later, their ids (contract, section 2: for
    ``task_id_retention_seconds``); agent.events forgets nothing. A task may then take the id again.
    """
    return run is not None and event.version == 1 and run.header.status in FINAL


def last_life(events: Sequence[RunEvent]) -> Sequence[RunEvent]:
    """The events of the run that has the id now, out of all that ever stood under it."""
    return events[max((i for i, event in enumerate(events) if event.version == 1), default=0) :]


def follow(run: Run | None, event: RunEvent) -> Run:
    """The next step of a fold: ``run`` itself is taken along, None begins one; so does the first event
    of another run of an id that was forgotten. Raises `BrokenHistory`."""
    if run is None or begins_anew(run, event):
        return begin(event, lambda key: None)
    evolve(run, event)
    return run


def begin(event: RunEvent, base: Callable[[RecordKey], Any | None]) -> Run:
    """A new run from its first event."""
    if event.type != "run_started" or event.version != 1:
        raise BrokenHistory(
            f"a run begins with run_started, version 1, not {event.type}, version {event.version}"
        )
    header = Header(
        run_id=event.run_id,
        agent=event.agent,
        user_id=event.user_id,
        session_id=event.session_id,
        tenant=event.tenant,
        metadata=event.metadata,
        created_at=event.at,
    )
    run = Run(header, base)
    evolve(run, event)
    return run


def evolve(run: Run, event: RunEvent) -> None:
    """Apply ``event`` to a run that nobody else holds."""
    header = run.header
    if event.version != header.version + 1:
        raise BrokenHistory(f"event version {event.version} can't follow version {header.version}")
    APPLIERS[event.type](run, event, event.data)
    header.version = event.version
    header.hash = event.hash
    header.updated_at = event.at
    if event.version == header.forked_at:  # what came before is another run's work, and its time
        header.people_ms = header.fork_ms - header.created_at - header.used_ms
        header.people_since = None if header.people_since is None else header.fork_ms
        header.inherited = header.next_action - 1


Applier = Callable[[Run, RunEvent, dict[str, Any]], None]

APPLIERS: Final[dict[str, Applier]] = {
    "run_started": runs.run_started,
    "step_started": runs.step_started,
    "model_replied": runs.model_replied,
    "plan_updated": notes.plan_updated,
    "branch_taken": runs.branch_taken,
    "branch_skipped": runs.branch_skipped,
    "action_proposed": actions.action_proposed,
    "action_requested": actions.action_requested,
    "action_started": actions.action_started,
    "action_progressed": actions.action_progressed,
    "action_succeeded": actions.action_succeeded,
    "action_failed": actions.action_failed,
    "action_unknown": actions.action_unknown,
    "action_adopted": actions.action_succeeded,
    "action_cancelled": actions.action_cancelled,
    "action_skipped": runs.action_skipped,
    "action_queried": actions.action_queried,
    "action_in_doubt": actions.action_in_doubt,
    "effect_found": actions.effect_found,
    "retry_scheduled": actions.retry_scheduled,
    "approval_requested": approvals.approval_requested,
    "approval_decided": approvals.approval_decided,
    "approval_expired": approvals.approval_expired,
    "approver_notified": approvals.approver_notified,
    "status_changed": runs.status_changed,
    "ending_started": runs.ending_started,
    "budget_changed": runs.budget_changed,
    "message_received": runs.message_received,
    "context_summarised": notes.context_summarised,
    "key_state_changed": notes.key_state_changed,
    "compensation_started": actions.compensation_started,
    "compensation_finished": actions.compensation_finished,
    "run_paused": runs.run_paused,
    "run_resumed": runs.run_resumed,
    "run_finished": runs.run_finished,
}
