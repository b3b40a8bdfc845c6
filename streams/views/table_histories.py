"""What this process's tables hold of a run, and which process holds the others."""

from __future__ import annotations

import logging
from typing import Any

from aiokafka.partitioner import murmur2
from perdure.schemas import codec
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Outcome, RunEvent

from .faust_app import HISTORY, OUTCOMES, RUNS, NotHere, ViewsApp, row_of
from .ports import Elsewhere
from .projections.histories import events_in

log = logging.getLogger("perdure.views")


class TableHistories:
    """Reads the tables from any thread; what moves away meanwhile is `Elsewhere`."""

    def __init__(self, views: ViewsApp, address: str) -> None:
        self._views = views
        self._address = address
        self._told = False

    def _partition(self, run_id: str) -> int:
        """Java's default partitioner, which all that write here use."""
        hashed: int = murmur2(run_id.encode())
        return (hashed & 0x7FFFFFFF) % self._views.settings.partitions

    def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        partition = self._held(run_id)
        try:
            raw = self._views.stored(RUNS, partition, run_id.encode())
            if raw is None:
                return []
            row = row_of(raw)
            if row.version <= after:
                return []
            found: list[RunEvent] = []
            for number in range(row.chunks - 1, -1, -1):  # from the end: often little is new
                chunk = self._views.stored(HISTORY, partition, f"{run_id}/{number}".encode())
                events = [] if chunk is None else events_in(chunk)
                found = [event for event in events if event.version > after] + found
                if events and events[0].version <= after:
                    break
            return [event for event in found if event.version <= row.version]
        except NotHere:
            raise Elsewhere(self._holder(partition)) from None

    def outcome(self, run_id: str) -> Outcome | None:
        partition = self._held(run_id)
        try:
            raw = self._views.stored(OUTCOMES, partition, run_id.encode())
        except NotHere:
            raise Elsewhere(self._holder(partition)) from None
        try:
            return None if raw is None else codec.decode(raw, Outcome)
        except RecordError:
            return None

    def _held(self, run_id: str) -> int:
        """The run's partition, if its tables are here and as full as their changelogs are: a run
        that is not found before that may well be there."""
        partition = self._partition(run_id)
        if partition not in self._views.held():
            raise Elsewhere(self._holder(partition))
        return partition

    def _holder(self, partition: int) -> str | None:
        for address, partitions in self._views.holders().items():
            if partition in partitions and address.rstrip("/") != self._address:
                return address.rstrip("/")
        return None

    def owner(self, run_id: str) -> str | None:
        partition = self._partition(run_id)
        return None if partition in self._views.held() else self._holder(partition)

    def others(self) -> list[str]:
        known = (address.rstrip("/") for address in self._views.holders())
        return [address for address in known if address != self._address]

    def instances(self) -> list[dict[str, Any]]:
        found = self._views.holders() or {self._address: self._views.held()}
        return [
            {"instance": address.rstrip("/"), "partitions": partitions}
            for address, partitions in sorted(found.items())
        ]

    def ready(self) -> bool:
        return self._views.alive() and self._views.recovered.is_set()

    def whole(self) -> bool:
        if not self.ready():
            return False
        known = {address.rstrip("/"): held for address, held in self._views.holders().items()}
        given = self._views.given()
        if set(known.get(self._address, ())) != given:
            self._not_alone(given)
            return False
        every = {partition for held in known.values() for partition in held}
        return given <= set(self._views.held()) and len(every) == self._views.settings.partitions

    def _not_alone(self, given: set[int]) -> None:
        """The group knows its members by their addresses: of two with one address it knows one."""
        if not self._told:
            self._told = True
            log.warning(
                "the group of the views says of %s another thing than was given to this process "
                "(partitions %s): if that lasts, another process has the same address; give each its "
                "own --url, at which the others reach it",
                self._address,
                sorted(given),
            )
