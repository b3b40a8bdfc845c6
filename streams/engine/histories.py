"""A run's whole history, read from agent.events beside the cycle: what a fork is made of.

The events topic is the only place where a run's past stands, on the run's own partition, which
need not be ours. Reading it may take seconds, so it happens in a thread; its end is posted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

import msgspec
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.runtime.errors import RuntimeFault, Unanswered
from perdure.streams.runtime.partitioner import partition_of
from perdure.streams.runtime.ports import Answer, End, Kafka, Spot, Trouble
from perdure.streams.runtime.processor import Record

log = logging.getLogger(__name__)

T = TypeVar("T")

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
                except (Unread, Unanswered, RuntimeFault) as error:
                    log.warning(
                        "the history of %s is read again: %s",
                        run_id,
                        error,
                        extra={"run_id": run_id},
                    )
                    time.sleep(_AGAIN)
                else:
                    done(found)
                    return

        threading.Thread(target=work, name=f"history {run_id}", daemon=True).start()

    def _read(self, run_id: str) -> list[RunEvent]:
        spot = Spot(topics.EVENTS, partition_of(run_id, self._partitions))
        wanted = run_id.encode()
        return [
            _decode(record.value or b"")
            for record in all_records(self._kafka, spot, self._client_id)
            if record.key == wanted
        ]


def all_records(kafka: Kafka, spot: Spot, client_id: str) -> Iterator[Record]:
    """Everything committed that stands on a partition now. Raises `Unread`."""
    admin, reader = kafka.admin(), kafka.reader(client_id)
    try:
        position, end = answered(admin.starts([spot]))[spot], answered(admin.ends([spot]))[spot]
        reader.add(spot, position)
        until = time.monotonic() + _PATIENCE
        while position < end:
            if time.monotonic() > until:
                raise Unread(f"{spot.topic}-{spot.partition} stands at {position} of {end}")
            for item in reader.poll(_BATCH, 0.2):
                until = time.monotonic() + _PATIENCE
                if isinstance(item, Record):
                    position = item.offset + 1
                    yield item
                elif isinstance(item, End):
                    position = max(position, item.offset)
                elif isinstance(item, Trouble):
                    raise Unread(f"{spot.topic}-{spot.partition}: {item.detail}")
    finally:
        reader.close()
        admin.close()


def answered(answer: Answer[T]) -> T:
    """Wait for it. Raises `Unread`, `Unanswered`."""
    until = time.monotonic() + _PATIENCE
    while not answer.done():
        if time.monotonic() > until:
            raise Unread("Kafka does not answer")
        time.sleep(0.01)
    return answer.result()
