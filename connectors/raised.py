"""Exceptions out of somebody's code: whose they are, and what is logged of them: type and place,
never the text.

The text may hold payload: what a user sent, what a service answered, a key in a URL.
"""

from __future__ import annotations

import asyncio
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


def stops(error: BaseException) -> bool:
    """The worker stops, or gives this call up; any other exception is somebody's own."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit)
