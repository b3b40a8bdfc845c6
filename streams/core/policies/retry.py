"""When a failed attempt is tried again (lifecycle section 3)."""

from __future__ import annotations

from typing import Any, Final

from perdure.schemas.records import RetryPolicy

from ..keys import spread
from ..state import Action

LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
MODEL_OUTAGE_LONGEST_SECONDS: Final = 900.0

NOTHING_HAPPENED: Final = frozenset(
    {
        "dns_failed",
        "connect_refused",
        "connect_timeout",
        "tls_failed",
        "rate_limited",
        "http_429",
        "EXPIRED",
        "TRANSIENT",
        "CANCELLED",
    }
)
"""Codes that prove the request was never acted on; any other failed write may have happened."""


SAME_KEY: Final = "SAME_KEY"
"""Another call of the run has its declared key."""


def waits_for_its_key(action: Action) -> bool:
    """Whether it waits for another call of its declared key: it goes on when that is over, at no time
    of its own, and is not under way meanwhile."""
    return action.status == "backing_off" and (action.error or {}).get("code") == SAME_KEY


def wait_seconds(policy: RetryPolicy, action_id: str, attempt: int, error: dict[str, Any]) -> float:
    """Seconds before attempt + 1: doubling, spread by the action's id, Retry-After never shortened."""
    wait: float = min(
        policy.first_wait_seconds * 2 ** min(attempt - 1, 30), policy.longest_wait_seconds
    )
    wait *= 0.8 + 0.4 * spread(f"{action_id}#{attempt}")
    asked = error.get("retry_after_seconds")
    return min(max(wait, asked or 0.0), LONGEST_RETRY_AFTER_SECONDS)


def outage_wait_seconds(action_id: str, attempt: int, nth: int, error: dict[str, Any]) -> float:
    """Seconds before models that are down are tried again: from 10 s doubling to 15 min.

    ``nth``: waits of this outage before this one; Retry-After is never shortened.
    """
    wait: float = min(10.0 * 2 ** min(nth, 30), MODEL_OUTAGE_LONGEST_SECONDS)
    wait *= 0.8 + 0.2 * spread(f"{action_id}#{attempt}")
    asked = error.get("retry_after_seconds") or 0.0
    return max(wait, min(asked, LONGEST_RETRY_AFTER_SECONDS))


def may_have_happened(effect: str, error: dict[str, Any]) -> bool:
    """Whether a failed attempt leaves open if it had its effect.

    An external tool's ``transient`` says that nothing happened (lifecycle section 3), and so does
    ``unavailable`` of any tool: the call was never sent.
    """
    if effect == "read_only":
        return False
    if error.get("kind") == "transient" and effect == "idempotent":
        return error.get("code") not in NOTHING_HAPPENED
    return error.get("kind") == "unknown"


def still_ambiguous(action: Action, error: dict[str, Any]) -> bool:
    """Whether, after this failed attempt, any attempt so far may have had its effect.

    An external call is made again only after proof that nothing happened, so its last attempt
    says it all; an idempotent one's earlier attempts may have happened nevertheless.
    """
    earlier = action.ambiguous and action.effect == "idempotent" and action.attempt > 1
    return earlier or may_have_happened(action.effect, error)
