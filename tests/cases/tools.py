"""The tools of the failure cases. Each real effect is one line in a file, which tests count."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
from perdure.connectors import http

from perdure import BusinessError, Found, ToolContext, TransientError, tool

EFFECTS = Path(os.environ.get("CASES_EFFECTS", "effects.jsonl"))
_notes: dict[str, str] = {}
_meetings: dict[str, asyncio.Barrier] = {}


def note(context: ToolContext, what: str, **arguments: Any) -> None:
    line = {"tool": what, "run": context.run_id, "action": context.action_id}
    text = json.dumps({**line, "attempt": context.attempt, "arguments": arguments}) + "\n"
    with EFFECTS.open("a") as out:
        out.write(text)


@tool("read_note", effect="read_only")
async def read_note(context: ToolContext, id: int) -> dict[str, Any]:
    """Read a note. With `together` in the metadata, so many reads of a run end at one moment."""
    note(context, "read_note", id=id)
    together = int(context.metadata.get("together", 0))
    if together:
        meeting = _meetings.setdefault(context.run_id, asyncio.Barrier(together))
        await asyncio.wait_for(meeting.wait(), 10)
    return {"id": id, "text": f"note {id} of {context.user_id}"}


@tool("put_note", effect="idempotent")
async def put_note(context: ToolContext, text: str) -> dict[str, str]:
    """Write a note: once per key; the key with another text is a conflict."""
    known = _notes.setdefault(context.idempotency_key, text)
    if known != text:
        raise BusinessError("conflict: this key was used with another text")
    note(context, "put_note", size=len(text))
    return {"put": text[:20]}


@tool("pay", effect="external", approval="always", title="Pay {amount} to {to}")
async def pay(context: ToolContext, to: str, amount: int) -> dict[str, Any]:
    """Pay somebody."""
    note(context, "pay", to=to, amount=amount)
    return {"paid": amount}


@tool("pay_slowly", effect="external", approval="never", timeout_seconds=0.5)
def pay_slowly(context: ToolContext, seconds: float) -> dict[str, Any]:
    """Pay, and answer only after so many seconds; a thread that nobody can stop."""
    note(context, "pay_slowly", seconds=seconds)
    time.sleep(seconds)
    return {"paid": True}


@tool("pay_known", effect="external", approval="never", timeout_seconds=0.5)
def pay_known(context: ToolContext, seconds: float) -> dict[str, Any]:
    """The same with a service that can be asked."""
    note(context, "pay_known", seconds=seconds)
    time.sleep(seconds)
    return {"paid": True}


@pay_known.query
async def find_payment(context: ToolContext) -> Found:
    return Found({"paid": "found"})


@tool("slow", effect="read_only", timeout_seconds=60)
async def slow(context: ToolContext, s: float) -> dict[str, float]:
    """Take so many seconds."""
    note(context, "slow", s=s)
    await asyncio.sleep(s)
    return {"slept": s}


@tool("big", effect="read_only")
async def big(context: ToolContext, size: int) -> str:
    """A text of so many letters."""
    note(context, "big", size=size)
    return "x" * size


@tool("odd", effect="read_only")
async def odd(context: ToolContext, python: str) -> Any:
    """The value of a Python expression, whatever it is."""
    return eval(python)


@tool("ping", effect="read_only")
async def ping(context: ToolContext) -> str:
    """Takes nothing."""
    note(context, "ping")
    return "pong"


@tool("down", effect="read_only")
async def down(context: ToolContext) -> None:
    """Never there."""
    note(context, "down")
    raise TransientError("503")


@tool("late", effect="idempotent", timeout_seconds=1.5)
async def late(context: ToolContext, first: float, second: float) -> str:
    """Take so many seconds at the first attempt, so many at a later one."""
    note(context, "late")
    try:
        await asyncio.sleep(first if context.attempt == 1 else second)
    except asyncio.CancelledError:
        note(context, "late told to stop")
        raise
    return f"attempt {context.attempt}"


@tool("http_get", effect="read_only")
async def http_get(context: ToolContext, url: str) -> Any:
    """Read from anywhere in the world, or from the one named server inside, and follow where it leads."""
    note(context, "http_get", url=url)
    async with http.client(allow=os.environ.get("CASES_REDIRECTOR", "").split()) as client:
        return (await client.get(url, follow_redirects=True)).text


@tool("http_read", effect="read_only", timeout_seconds=20)
async def http_read(context: ToolContext, url: str, patience: float = 15) -> Any:
    """Read from a service, and wait so many seconds for it the first time."""
    return await _ask(context, "GET", url, patience)


@tool("http_put", effect="idempotent", timeout_seconds=20)
async def http_put(context: ToolContext, url: str, patience: float = 15) -> Any:
    """Write to a service that knows our key."""
    return await _ask(context, "PUT", url, patience)


@tool("http_post", effect="external", approval="never", timeout_seconds=20)
async def http_post(context: ToolContext, url: str, patience: float = 15) -> Any:
    """Write to a service that promises nothing."""
    return await _ask(context, "POST", url, patience)


async def _ask(context: ToolContext, method: str, url: str, patience: float) -> Any:
    headers = {"Idempotency-Key": context.idempotency_key}
    limit = httpx.Timeout(15, read=patience if context.attempt == 1 else 15)
    async with http.client(headers=headers, allow=["127.0.0.1"]) as client:
        return (await client.request(method, url, timeout=limit)).json()
