"""A tool's query: whether a call happened."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.schemas.records import ActionCommand

from .plain import plain
from .raised import log_raised, stops
from .tool import UNCLEAR, Answer, Found, Tool, ToolContext

log = logging.getLogger(__name__)


async def ask(
    command: ActionCommand,
    tool: Tool[..., Any],
    clock: Callable[[], int],
    arguments: Callable[[], Awaitable[dict[str, Any]]],
    threads: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> Found | Answer:
    """What it says; UNCLEAR if it raises, takes too long or gives what is no answer."""
    function = tool.query_function
    assert function is not None
    try:
        checked = tool.signature.check(await arguments())
        context = ToolContext(
            command.run_id, command.action_id, command.attempt, command.idempotency_key,
            command.request_id, command.user_id, command.session_id, command.tenant,
            command.metadata, command.approval,
            clock() + int(command.timeout_seconds * 1000), command.progress,
        )  # fmt: skip
        keywords = tool.query_arguments(context, checked)
        async with asyncio.timeout(command.timeout_seconds):
            if asyncio.iscoroutinefunction(function):
                said = await function(**keywords)
            else:
                said = await threads(functools.partial(function, **keywords))
        if isinstance(said, Found):
            return Found(plain(said.result))
    except BaseException as error:  # also what ends a task, or leaves a command unanswered
        if stops(error):
            raise
        log_raised(log, f"the query of {tool.name}", command.action_id, error)
        return UNCLEAR
    if isinstance(said, Answer):
        return said
    log.warning(
        "the query of %s gave a %s: it must give Found(result), ABSENT or UNCLEAR",
        tool.name,
        type(said).__name__,
    )
    return UNCLEAR
