"""A worker process for the tests: its tools leave a line in a file for each call they made."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from perdure.connectors.serving import build_processors
from perdure.streams.runtime import runner
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.settings import RuntimeSettings

from perdure import Found, ToolContext, tool

PLACE = Path()


def _note(line: str) -> None:
    with (PLACE / "calls.txt").open("a") as out:
        out.write(line + "\n")


@tool("look", effect="read_only")
async def look(n: int) -> dict[str, int]:
    """Nothing but its argument."""
    return {"n": n}


@tool("act", effect="external", approval="never")
async def act(context: ToolContext, seconds: float = 0.0) -> str:
    """Acts, then takes its time."""
    _note(f"act {context.action_id} {context.attempt}")
    await asyncio.sleep(seconds)
    return "acted"


@tool("ask", effect="external", approval="never")
def ask(context: ToolContext, seconds: float = 0.0) -> str:
    """Acts, and can be asked."""
    _note(f"ask {context.action_id} {context.attempt}")
    threading.Event().wait(seconds)
    return "acted"


@ask.query
def find(context: ToolContext) -> Any:
    return Found("found")


def main(bootstrap: str, prefix: str, place: str) -> None:
    global PLACE
    PLACE = Path(place)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    runtime = RuntimeSettings(
        bootstrap_servers=bootstrap,
        topic_prefix=prefix,
        data_dir=PLACE / "data",
        instance_id="w1",
        drain_seconds=5,
    )
    tools = [look, act, ask]
    pieces = build_processors(
        tools, ["tools", "models"], runtime, ConfluentKafka(runtime), str(PLACE / "blobs")
    )
    try:
        runner.run(pieces.processors, runtime, stop)
    finally:
        pieces.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
