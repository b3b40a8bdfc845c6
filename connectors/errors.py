"""What a tool raises, and what the core is told about it (lifecycle section 3).

    ToolError
    +-- BusinessError       it did not happen: a rule refused, nothing was found
    +-- InvalidArguments    it did not happen: the arguments do not fit
    +-- PermissionDenied    it did not happen: not allowed
    +-- TransientError      it did not happen: try again (after ``retry_after_seconds``)
    +-- OutcomeUnknown      it may have happened

Everything else an exception can say is looked up in one table per library (``mapping.py``).
A table gives a `Cause`: *what is known* about the outside. Which kind of error that makes then
depends on the effect alone, in `failure`: an unclear end is harmless where a second call is,
and unknown where it is not.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Effect = Literal["read_only", "idempotent", "external"]
Known = Literal["nothing", "unclear", "business", "invalid_arguments", "permission"]


class ToolError(Exception):
    """Base of what tools raise on purpose. ``code`` is the tool's own short word."""

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class BusinessError(ToolError):
    """It did not happen, and trying again will not help: not found, refused by a rule."""


class InvalidArguments(ToolError):
    """It did not happen: the arguments do not fit."""


class PermissionDenied(ToolError):
    """It did not happen: the caller may not do this."""


class TransientError(ToolError):
    """It did not happen; a later try may succeed, not before ``retry_after_seconds``.

    With a code of the network (``connect_refused``, ``dns_failed``, ...) or ``http_5xx`` it counts
    for the tool's breaker; ``host`` is who was not reached.
    """

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_seconds: float | None = None,
        code: str | None = None,
        host: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds
        self.host = host


class OutcomeUnknown(ToolError):
    """It may have happened."""


class ResultError(Exception):
    """A tool's result can't be told to the core: no JSON, or too large. The call did happen."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Cause:
    """What an exception proves about the outside.

    ``nothing``: no request was acted on, a later one may be; ``unclear``: it may have been;
    the others: the service answered no, so it was not.
    """

    known: Known
    code: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The `ActionError` of an attempt; kind ``unknown`` goes out as status ``unknown``."""

    kind: str
    code: str
    message: str
    retry_after_seconds: float | None = None


def expired() -> Failure:
    """Of a call whose command's time was over before it had a place."""
    late = "the command waited too long for a place; nothing was called"
    return Failure("transient", "EXPIRED", late)


def own(error: BaseException) -> Cause | None:
    """The table of our own exceptions."""
    if isinstance(error, ToolError):
        code = (error.code or "")[:200]
        if isinstance(error, TransientError):
            return Cause("nothing", code or "TRANSIENT", error.retry_after_seconds)
        for kind, known in _OWN.items():
            if isinstance(error, kind):
                return Cause(known, code)
    return None


_OWN: dict[type[ToolError], Known] = {
    BusinessError: "business",
    InvalidArguments: "invalid_arguments",
    PermissionDenied: "permission",
    OutcomeUnknown: "unclear",
}

# First match wins, so subclasses stand before their bases.
_STANDARD: tuple[tuple[type[BaseException], Cause], ...] = (
    (ConnectionRefusedError, Cause("nothing", "connect_refused")),
    (socket.gaierror, Cause("nothing", "dns_failed")),
    (ssl.SSLCertVerificationError, Cause("nothing", "tls_failed")),
    (ssl.SSLError, Cause("unclear", "connection_lost")),
    (ConnectionError, Cause("unclear", "connection_lost")),
    (asyncio.IncompleteReadError, Cause("unclear", "connection_lost")),
    (TimeoutError, Cause("unclear", "read_timeout")),
    (asyncio.CancelledError, Cause("unclear", "call_cancelled")),
)


def standard(error: BaseException) -> Cause | None:
    """The table of Python's own exceptions."""
    return next((cause for kind, cause in _STANDARD if isinstance(error, kind)), None)


def connecting(error: BaseException) -> Cause:
    """Why a connection did not come about (nothing was sent over it)."""
    code = "connect_refused"
    for inner in chain(error):
        if isinstance(inner, socket.gaierror):
            return Cause("nothing", "dns_failed")
        if isinstance(inner, ssl.SSLError):
            return Cause("nothing", "tls_failed")
        if isinstance(inner, TimeoutError):
            code = "connect_timeout"
    return Cause("nothing", code)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from, outermost first."""
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = inner.__cause__ or inner.__context__


def failure(error: BaseException, cause: Cause | None, effect: Effect) -> Failure:
    """The kind of error: from what is known (None: the exception is in no table) and the effect."""
    text = describe(error)
    if cause is None:
        kind = "internal" if effect == "read_only" else "unknown"
        code = error.code if isinstance(error, ResultError) else type(error).__name__
        return Failure(kind, code[:200], text)
    if cause.known == "nothing":
        return Failure("transient", cause.code, text, seconds(cause.retry_after_seconds))
    if cause.known == "unclear":
        kind = "unknown" if effect == "external" or _said_unknown(error, effect) else "transient"
        wait = seconds(cause.retry_after_seconds) if kind == "transient" else None
        return Failure(kind, cause.code, text, wait)
    return Failure(cause.known, cause.code, text)


def _said_unknown(error: BaseException, effect: Effect) -> bool:
    return isinstance(error, OutcomeUnknown) and effect != "read_only"


def seconds(value: float | None) -> float | None:
    """A wait the record may carry: 0 to ten years; anything else is none."""
    return value if value is not None and 0 <= value <= 315_360_000 else None


def describe(error: BaseException) -> str:
    """One text for people and models, never a traceback."""
    text = next((said for said in map(_said, chain(error)) if said), "")
    if isinstance(error, ToolError | ResultError):
        text = text or type(error).__name__
    else:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text.encode("utf-8", "replace").decode()[:4000]


def _said(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # somebody's own, with a fault in its text
        return ""
