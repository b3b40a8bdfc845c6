"""The loop on which calls run: how it ends."""

from __future__ import annotations

import asyncio
import threading

from perdure.connectors.executor import ThreadedExecutor


def test_what_is_handed_over_while_it_stops_is_not_begun() -> None:
    """A task begun then would be left pending when the loop is closed: asyncio complains of those."""
    executor = ThreadedExecutor()
    begun, after = threading.Event(), []

    async def late() -> None:
        after.append("late")
        await asyncio.sleep(60)

    async def running() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:  # as a call does which is cancelled and tells so
            executor.spawn(late)
            await asyncio.sleep(0.02)
            after.append("ended")

    executor.spawn(running)
    assert begun.wait(5)
    executor.close()
    executor.spawn(late)
    assert after == ["ended"]
