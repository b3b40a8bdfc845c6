"""What is logged of an exception that came out of somebody's code: type and place, never its text.

The text may hold payload: what a user sent, what a service answered, a key in a URL.
"""

from __future__ import annotations

import logging


def log_raised(log: logging.Logger, what: str, action_id: str, error: BaseException) -> None:
    """A warning; the whole way of the exception at DEBUG."""
    place, trace = "nowhere", error.__traceback__
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    named = {"action_id": action_id}
    log.warning(
        "%s of %s raised %s at %s", what, action_id, type(error).__name__, place, extra=named
    )
    log.debug("%s of %s raised", what, action_id, exc_info=error, extra=named)
