"""Events: the facts that make a run's state, chained by hash (contract section 5).

``hash`` = SHA-256 of ``previous_hash`` + the canonical JSON of the event without ``hash``.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from perdure.schemas.canonical import canonical
from perdure.schemas.records import RunEvent

EVENT_TYPES: Final[tuple[str, ...]] = (
    "run_started", "step_started", "model_replied", "plan_updated", "branch_taken", "branch_skipped",
    "action_proposed", "action_requested", "action_started", "action_progressed", "action_succeeded",
    "action_failed", "action_unknown", "action_adopted", "action_cancelled", "action_skipped",
    "action_queried", "action_in_doubt", "effect_found", "retry_scheduled", "approval_requested",
    "approval_decided", "approval_expired", "approver_notified", "status_changed", "ending_started",
    "budget_changed", "message_received", "context_summarised", "key_state_changed",
    "compensation_started", "compensation_finished", "run_paused", "run_resumed", "run_finished",
)  # fmt: skip


class _Unhashed(msgspec.Struct, kw_only=True):
    """A `RunEvent` without its hash: what the hash is taken of."""

    run_id: str
    agent: str
    user_id: str
    session_id: str
    tenant: str
    metadata: dict[str, str]
    version: int
    type: str
    at: int
    actor: str
    data: Any
    previous_hash: str


def make(
    *,
    run: Any,
    version: int,
    type: str,
    at: int,
    actor: str,
    data: dict[str, Any],
    previous_hash: str,
) -> RunEvent:
    """A chained event of the run whose header is ``run``."""
    event = RunEvent(
        run_id=run.run_id,
        agent=run.agent,
        user_id=run.user_id,
        session_id=run.session_id,
        tenant=run.tenant,
        metadata=run.metadata,
        version=version,
        type=type,
        at=at,
        actor=actor,
        data=data,
        previous_hash=previous_hash,
    )
    event.hash = hash_of(event)
    return event


def hash_of(event: RunEvent) -> str:
    """The hash the event must carry."""
    bare = _Unhashed(
        run_id=event.run_id,
        agent=event.agent,
        user_id=event.user_id,
        session_id=event.session_id,
        tenant=event.tenant,
        metadata=event.metadata,
        version=event.version,
        type=event.type,
        at=event.at,
        actor=event.actor,
        data=event.data,
        previous_hash=event.previous_hash,
    )
    return hashlib.sha256(event.previous_hash.encode() + canonical(bare)).hexdigest()
