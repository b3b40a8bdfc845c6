"""One tool for each row of the table of effects; all of them send a request to the fake service."""

from __future__ import annotations

from typing import Any

from perdure import ABSENT, Found, ToolContext, TransientError, tool
from tests.chaos import line_client


async def _do(name: str, context: ToolContext, ref: str, late: float, slow: float) -> Any:
    request = {
        "verb": "do", "tool": name, "ref": ref, "key": context.idempotency_key,
        "deadline_at": context.deadline_at, "late": late, "slow": slow,
    }  # fmt: skip
    answer = await line_client.exchange(request)
    if "refused" in answer:
        raise TransientError("the service refused it as too late: it did not happen")
    return answer["result"]


async def _ask(name: str, context: ToolContext) -> Any:
    request = {"verb": "ask", "tool": name, "key": context.idempotency_key}
    found = (await line_client.exchange(request))["found"]
    return ABSENT if found is None else Found(found)


@tool("look", effect="read_only", timeout_seconds=10)
async def look(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """read_only."""
    return await _do("look", context, ref, late, slow)


@tool("put", effect="idempotent", timeout_seconds=10)
async def put(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """idempotent, without a query."""
    return await _do("put", context, ref, late, slow)


@tool("keep", effect="idempotent", timeout_seconds=10)
async def keep(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """idempotent, with a query."""
    return await _do("keep", context, ref, late, slow)


@keep.query
async def kept(context: ToolContext) -> Any:
    return await _ask("keep", context)


@tool("pay", effect="external", approval="never", timeout_seconds=10, settle_seconds=2)
async def pay(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """external, with a truthful query."""
    return await _do("pay", context, ref, late, slow)


@pay.query
async def paid(context: ToolContext) -> Any:
    return await _ask("pay", context)


@tool("wire", effect="external", approval="never", timeout_seconds=10)
async def wire(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """external, nobody can be asked."""
    return await _do("wire", context, ref, late, slow)


@tool("gift", effect="external", approval="always", timeout_seconds=10)
async def gift(context: ToolContext, ref: str, late: float = 0, slow: float = 0) -> Any:
    """external, a person says yes first."""
    return await _do("gift", context, ref, late, slow)


@tool("down", effect="read_only", timeout_seconds=10, retry={"attempts": 50, "first_wait_seconds": 20, "longest_wait_seconds": 20})  # fmt: skip
async def down(context: ToolContext, ref: str) -> Any:
    """A service that is never there: its runs sit in backoff."""
    await line_client.exchange(
        {"verb": "do", "tool": "down", "ref": ref, "key": context.idempotency_key, "deadline_at": context.deadline_at}
    )  # fmt: skip
    raise TransientError("it is down")
