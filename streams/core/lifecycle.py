"""The two tables of a run's life (lifecycle sections 1 and 2). What is not in them is refused.

Theory of operation: an applier asks `run_may` / `action_may` before it changes a status; a
missing cell is the only error path (`IllegalTransition`), and every status is a row, the
terminal ones empty. The diagram in ``docs/lifecycle.md`` is drawn from these tables.
"""

from __future__ import annotations

from typing import Final


class IllegalTransition(Exception):
    """A status change that the table has no cell for: a bug in the core, never bad input."""


RUN_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "running": frozenset({"waiting_approval", "compensating", "done", "failed", "cancelled"}),
    "waiting_approval": frozenset({"running", "cancelled"}),
    "compensating": frozenset({"failed", "cancelled"}),
    "failed": frozenset({"running", "cancelled"}),
    "done": frozenset(),
    "cancelled": frozenset(),
}

FINAL: Final = frozenset({"done", "failed", "cancelled"})

ACTION_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "proposed": frozenset(
        {"waiting_approval", "requested", "backing_off", "cancelled", "failed", "succeeded"}
    ),
    "waiting_approval": frozenset({"approved", "rejected", "cancelled", "succeeded"}),
    "approved": frozenset({"requested", "backing_off", "cancelled", "failed"}),
    "requested": frozenset(
        {"started", "succeeded", "failed", "unknown", "cancelled", "backing_off"}
    ),
    "started": frozenset({"succeeded", "failed", "unknown", "cancelled", "backing_off"}),
    "backing_off": frozenset({"requested", "unknown", "succeeded", "failed", "cancelled"}),
    "unknown": frozenset(
        {"querying", "requested", "backing_off", "succeeded", "failed", "in_doubt", "cancelled"}
    ),
    "querying": frozenset(
        {"succeeded", "failed", "requested", "backing_off", "unknown", "in_doubt", "cancelled"}
    ),
    "in_doubt": frozenset({"succeeded", "failed", "requested", "backing_off", "cancelled"}),
    "failed": frozenset({"requested", "backing_off", "succeeded", "failed", "cancelled"}),
    "rejected": frozenset(),
    "cancelled": frozenset({"succeeded", "requested", "backing_off"}),
    "succeeded": frozenset({"compensating"}),
    "compensating": frozenset({"compensated", "compensation_failed"}),
    "compensated": frozenset(),
    "compensation_failed": frozenset(),
    "skipped": frozenset(),
}
"""``backing_off`` is also where a paused run keeps what it may not request yet; it goes on to
``unknown`` when the key of an idempotent call ran out meanwhile. ``failed`` may go on to ``requested`` (a handover's or a run's retry), ``succeeded`` (a person's
answer, or `effect_found`); ``cancelled`` to ``succeeded`` only by `effect_found`, and
to ``requested`` where a run is tried again that had cancelled a call which may have happened; ``proposed`` to
``succeeded`` where an earlier call of the same declared key has the result, ``waiting_approval`` to
``succeeded`` where the call is a question itself (`ask_user` and its kind)."""

IN_FLIGHT: Final = frozenset({"requested", "started", "unknown", "querying"})
"""The outside may still act on it."""
MOVING: Final = IN_FLIGHT | {"backing_off"}
"""While any action is one of these the run is ``running``."""
SUCCEEDED: Final = frozenset({"succeeded", "compensating", "compensated", "compensation_failed"})

PHASES: Final[dict[str, str]] = {
    "proposed": "condition_check",
    "waiting_approval": "condition_check",
    "approved": "condition_check",
    "requested": "tool_calling",
    "started": "waiting_result",
    "unknown": "waiting_result",
    "querying": "waiting_result",
    "backing_off": "idle",
}
"""An action's phase for people; every other status is ``finished``."""


def run_may(before: str, after: str) -> None:
    """Raise `IllegalTransition` unless a run may go from ``before`` to ``after``."""
    if after not in RUN_TRANSITIONS[before]:
        raise IllegalTransition(f"a run may not go from {before} to {after}")


def action_may(before: str, after: str) -> None:
    """Raise `IllegalTransition` unless an action may go from ``before`` to ``after``."""
    if after not in ACTION_TRANSITIONS[before]:
        raise IllegalTransition(f"an action may not go from {before} to {after}")
