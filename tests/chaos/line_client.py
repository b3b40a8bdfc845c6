"""How the chaos tools talk to the fake service; `crashing.py` puts points before and after it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any


async def exchange(request: dict[str, Any]) -> dict[str, Any]:
    """One request, one answer."""
    host, _, port = os.environ["CHAOS_SERVICE"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError("the service closed the connection without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer
