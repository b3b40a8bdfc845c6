"""Writes the engine's changelog anew from agent.events, while no engine runs.

A mark on the changelog says that a partition is being made, so that an engine started too soon,
or after a rebuild that broke off, refuses it. Keys that the events do not account for are
deleted; the newest of agent.tasks are read again, where known tasks are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from perdure.schemas import topics
from perdure.schemas.records import RunEvent
from perdure.streams.runtime.offsets import StoredOffsets, encode_stored
from perdure.streams.runtime.ports import (
    Admin,
    Kafka,
    Position,
    Spot,
    TransactionalProducer,
)  # fmt: skip
from perdure.streams.runtime.processor import Record
from perdure.streams.runtime.store import INTERNAL, OFFSETS_KEY, REBUILDING_KEY

from .histories import all_records, answered
from .processor import EngineProcessor
from .rebuild import Rebuilt

_TRANSACTION_BYTES: Final = 2_000_000
_decode = msgspec.json.Decoder(RunEvent).decode


@dataclass(frozen=True, slots=True)
class Made:
    """What was made of one partition."""

    partition: int
    events: int
    runs: int
    under_way: int
    last_at: int
    records: int
    deleted: int
    broken: dict[str, str]


class Restoring:
    """One rebuild. ``told`` is called with how far it is, now and then."""

    def __init__(
        self, kafka: Kafka, producer: TransactionalProducer, partitions: int, group: str,
        now: Callable[[], int], told: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._kafka = kafka
        self._admin: Admin = kafka.admin()
        self._producer = producer
        self._partitions = partitions
        self._group = group
        self._now = now
        self._told = told
        self._topics = EngineProcessor.sources
        self._changelog = EngineProcessor.changelog

    def partition(self, number: int) -> Made:
        """Read, fold and write one partition. Raises `Unread`, and what the producer raises."""
        found = Rebuilt(self._now())
        unreadable = 0
        for record in self._read(Spot(topics.EVENTS, number)):
            try:
                found.take(_decode(record.value or b""))
            except (msgspec.DecodeError, RecursionError):
                unreadable += 1
            if found.events % 100_000 == 0 and found.events:
                self._told(f"partition {number}: {found.events} events, {found.runs} runs")
        if unreadable:
            found.broken[f"{topics.EVENTS}-{number}"] = f"{unreadable} records are no events"
        stale: set[bytes] = set()
        for record in self._read(Spot(self._changelog, number)):
            key = record.key or b""
            if not key.startswith(INTERNAL):
                (stale.discard if record.value is None else stale.add)(key)
        self._write(number, [(REBUILDING_KEY, b"1")])
        written = self._write(number, self._kept(found, stale))
        deleted = self._write(number, ((key, None) for key in sorted(stale)))
        return Made(
            number,
            found.events,
            found.runs,
            found.under_way,
            found.last_at,
            written,
            deleted,
            found.broken,
        )

    def finish(self, number: int) -> None:
        """The partition may be taken: positions in, mark off."""
        self._write(
            number, [(OFFSETS_KEY, encode_stored(self._offsets(number))), (REBUILDING_KEY, None)]
        )

    @staticmethod
    def _kept(found: Rebuilt, stale: set[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in found.records():
            stale.discard(key)
            yield key, value

    def _offsets(self, number: int) -> StoredOffsets:
        """Of the inputs: those of the group where it has any, else the log's start."""
        spots = [Spot(topic, number) for topic in self._topics]
        starts = answered(self._admin.starts(spots))
        known: Mapping[Spot, Position] = answered(self._admin.committed(self._group, spots, True))
        ids = answered(self._admin.topic_ids(self._topics))
        inputs = {}
        for spot in spots:
            at = known.get(spot)
            inputs[spot.topic] = (starts[spot] if at is None else at.offset, "")
        return StoredOffsets(self._partitions, self._now(), inputs, dict(ids))

    def _write(self, number: int, records: Any) -> int:
        """In transactions of bounded size; how many records."""
        count = size = 0
        for key, value in records:
            if size == 0:
                self._producer.begin()
            self._producer.send(self._changelog, key, value, (), number)
            size += len(key) + len(value or b"") + 1
            count += 1
            if size >= _TRANSACTION_BYTES:
                self._producer.commit()
                size = 0
        if size:
            self._producer.commit()
        return count

    def _read(self, spot: Spot) -> Iterator[Record]:
        return all_records(self._kafka, spot, f"{self._group}.rebuild")

    def close(self) -> None:
        self._admin.close()
