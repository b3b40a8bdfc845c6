"""How a simulated engine reads a run's past: a fork waits for it, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.runtime.partitioner import partition_of

_decode: Final = msgspec.json.Decoder(RunEvent).decode


class SimHistories:
    """The engine's `Histories` as events of its life."""

    def __init__(self, life: Any) -> None:
        self._life = life

    def read(
        self, run_id: str, wanted: Callable[[], bool], done: Callable[[list[RunEvent]], None]
    ) -> None:
        life = self._life
        broker = life.kafka.broker

        def look() -> None:
            if not wanted():
                return
            if not life.kafka.reachable:
                life.after(2.0, look)
                return
            logs = broker.topics[topics.EVENTS].logs
            found: list[Any] = []
            logs[partition_of(run_id, len(logs))].committed_from(0, 10**9, found)
            key = run_id.encode()
            done([_decode(record.value) for record in found if record.key == key])

        life.after(life.world.chance.choice((0.002, 0.05, 1.0)), look)
