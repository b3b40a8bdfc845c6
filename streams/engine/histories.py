"""A run's whole history, read from agent.events beside the cycle: what a fork is made of.

The events topic is the only place where a run's past stands, on the run's own partition, which
need not be ours. Reading it may take seconds, so it happens in a thread; its end is posted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.runtime.errors import RuntimeFault
from perdure.streams.runtime.partitioner import partition_of
from perdure.streams.runtime.ports import Admin, End, Kafka, Reader, Spot, Trouble
from perdure.streams.runtime.processor import Record

log = logging.getLogger(__name__)

_PATIENCE: Final = 30.0
_AGAIN: Final = 2.0
_BATCH: Final = 5_000
_decode = msgspec.json.Decoder(RunEvent).decode


class Histories(Protocol):
    """Reads histories in the background."""

    def read(
        self, run_id: str, wanted: Callable[[], bool], done: Callable[[list[RunEvent]], None]
    ) -> None:
        """``done`` is called, on another thread, with all events of a run as of now; not at all
        once ``wanted`` is false."""


class Unread(Exception):
    """The topic could not be read to its end in time."""


class KafkaHistories:
    """The real one: a thread and a reader for each history."""

    def __init__(self, kafka: Kafka, partitions: int, client_id: str) -> None:
        self._kafka = kafka
        self._partitions = partitions
        self._client_id = client_id

    def read(
        self, run_id: str, wanted: Callable[[], bool], done: Callable[[list[RunEvent]], None]
    ) -> None:
        def work() -> None:
            while wanted():
                try:
                    found = self._read(run_id)
                except (Unread, RuntimeFault) as error:
                    log.warning("the history of %s is read again: %s", run_id, error)
                    time.sleep(_AGAIN)
                else:
                    done(found)
                    return

        threading.Thread(target=work, name=f"history {run_id}", daemon=True).start()

    def _read(self, run_id: str) -> list[RunEvent]:
        spot = Spot(topics.EVENTS, partition_of(run_id, self._partitions))
        admin, reader = self._kafka.admin(), self._kafka.reader(self._client_id)
        try:
            return read_history(admin, reader, spot, run_id)
        finally:
            reader.close()
            admin.close()


def read_history(admin: Admin, reader: Reader, spot: Spot, run_id: str) -> list[RunEvent]:
    """All events of a run that stand on its partition now. Raises `Unread`."""
    until = time.monotonic() + _PATIENCE
    starts, ends = admin.starts([spot]), admin.ends([spot])
    start, end = _answer(starts, until)[spot], _answer(ends, until)[spot]
    reader.add(spot, start)
    wanted = run_id.encode()
    found: list[RunEvent] = []
    position = start
    while position < end:
        if time.monotonic() > until:
            raise Unread(f"{spot.topic}-{spot.partition} stands at {position} of {end}")
        for item in reader.poll(_BATCH, 0.2):
            if isinstance(item, Record):
                position = item.offset + 1
                until = time.monotonic() + _PATIENCE
                if item.key == wanted:
                    found.append(_decode(item.value or b""))
            elif isinstance(item, End):
                position = max(position, item.offset)
            elif isinstance(item, Trouble):
                raise Unread(item.detail)
    return found


def _answer(answer: Any, until: float) -> Any:
    while not answer.done():
        if time.monotonic() > until:
            raise Unread("Kafka does not answer")
        time.sleep(0.01)
    return answer.result()
