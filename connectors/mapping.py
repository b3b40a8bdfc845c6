"""All tables in one place: an exception that left a tool becomes the error the core acts on."""

from __future__ import annotations

from . import http, mail, sql
from .errors import Cause, Effect, Failure, failure, own, standard


def cause_of(error: BaseException, key: str = "") -> Cause | None:
    """What the exception proves, from the first table that knows it."""
    # mail before standard: smtplib's exceptions are OSErrors
    return (
        own(error)
        or http.cause(error, key)
        or mail.cause(error)
        or sql.cause(error)
        or standard(error)
    )


def failure_of(error: BaseException, effect: Effect, key: str = "") -> Failure:
    """The kind, code and text for an exception of a call with this effect."""
    return failure(error, cause_of(error, key), effect)
