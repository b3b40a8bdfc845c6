"""What the end of a call says about the service and about the network.

| end | the service | the network |
|---|---|---|
| connect_refused, dns_failed, connect_timeout, tls_failed; connection_lost before anything was sent | fails | not reached |
| read_timeout, write_timeout, connection_lost | fails | - |
| http_5xx, smtp_421; rate_limited with Retry-After; a model whose quota is used up | fails | reached |
| a result; business, permission, invalid_arguments; any other answer, of a model too | works | reached |
| rate_limited without Retry-After, a tool's own error or bug, a cancelled call | - | - |

A service that limits rates and says for how long is not called until then once it has said so
several times in a row. One such answer opens nothing: the limit may be of one caller.
"""

from __future__ import annotations

from enum import Enum

from .errors import Failure, ResultError, TransientError
from .mapping import cause_of


class Said(Enum):
    """One row of the table."""

    UNREACHED = "unreached"
    LOST = "lost"
    DOWN = "down"
    ANSWERED = "answered"
    NOTHING = "nothing"


OUTAGES = frozenset({Said.UNREACHED, Said.LOST, Said.DOWN})
REACHED = frozenset({Said.DOWN, Said.ANSWERED})

_UNREACHED = frozenset({"connect_refused", "dns_failed", "connect_timeout", "tls_failed"})
_LOST = frozenset({"read_timeout", "write_timeout", "connection_lost"})
_DOWN = frozenset({"smtp_421", "insufficient_quota", "http_402"})
_ANSWERS = frozenset(
    {
        "business",
        "permission",
        "invalid_arguments",
        "content_filter",
        "context_overflow",
        "model_invalid",
    }
)
_NOT_ASKED = frozenset({"no_api_key", "script_ended", "script_invalid", "bad_url"})


def said_by(why: Failure, error: BaseException | None) -> Said:
    """The row for a call that did not succeed."""
    code = why.code
    if code == "function_raised" and error is not None and error.__cause__ is not None:
        cause = cause_of(error.__cause__)  # a model that is a function: what did it meet?
        return Said.NOTHING if cause is None else _by_code(cause.code, cause.retry_after_seconds)
    if code in _NOT_ASKED:
        return Said.NOTHING
    if why.kind in _ANSWERS or isinstance(error, ResultError):
        return Said.ANSWERED
    if code == "connection_lost" and isinstance(error, TransientError):
        return Said.UNREACHED
    return _by_code(code, why.retry_after_seconds)


def _by_code(code: str, retry_after_seconds: float | None) -> Said:
    if code in _UNREACHED:
        return Said.UNREACHED
    if code in _LOST:
        return Said.LOST
    if code in _DOWN or (code.startswith("http_5") and len(code) == 8):
        return Said.DOWN
    if code == "rate_limited":
        return Said.NOTHING if retry_after_seconds is None else Said.DOWN
    return Said.ANSWERED if code.startswith("http_") else Said.NOTHING
