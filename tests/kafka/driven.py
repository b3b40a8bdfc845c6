"""A cycle driven by the test's own thread, and ports that fail where a test wants them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.streams.runtime.clock import SystemClock
from perdure.streams.runtime.cycle import Cycle
from perdure.streams.runtime.health import Health, HealthSnapshot
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.processor import Processor
from perdure.streams.runtime.rocksdb import RocksStores
from perdure.streams.runtime.settings import RuntimeSettings

from tests.kafka.world import World, until


class Died(Exception):
    """The process is gone at this point."""


class Faults:
    """What the producer does instead of ``commit`` and ``send_offsets``, once each."""

    commit: Callable[[Any], None] | None = None
    after_offsets: Callable[[], None] | None = None


class FaultyKafka(ConfluentKafka):
    def __init__(self, settings: RuntimeSettings, faults: Faults) -> None:
        super().__init__(settings)
        self._faults = faults

    def transactional_producer(self, transactional_id: str) -> Any:
        producer = super().transactional_producer(transactional_id)
        faults, commit, send_offsets = self._faults, producer.commit, producer.send_offsets

        def faulty_commit() -> None:
            fault, faults.commit = faults.commit, None
            if fault is not None:
                fault(producer)
            commit()

        def faulty_offsets(positions: Any, membership: object) -> None:
            send_offsets(positions, membership)
            fault, faults.after_offsets = faults.after_offsets, None
            if fault is not None:
                fault()

        producer.commit, producer.send_offsets = faulty_commit, faulty_offsets  # type: ignore[method-assign]
        return producer


class Driven:
    """One instance. ``step`` it with `until`."""

    def __init__(
        self,
        world: World,
        processor: Processor,
        directory: Path,
        instance: str = "one",
        **settings: Any,
    ) -> None:
        self.faults = Faults()
        self.settings = RuntimeSettings(
            bootstrap_servers=world.bootstrap,
            data_dir=directory,
            topic_prefix=world.prefix,
            instance_id=instance,
            **({"session_timeout_ms": 3_000, "idle_poll_ms": 10} | settings),
        )
        self._health = Health(processor.name)
        kafka = FaultyKafka(self.settings, self.faults)
        self.stores = RocksStores(self.settings.directory(processor.name))
        self.cycle = Cycle(
            processor, self.settings, kafka, self.stores, SystemClock(), self._health
        )

    @property
    def health(self) -> HealthSnapshot:
        return self._health.snapshot()

    def step(self) -> None:
        self.cycle.step()

    def until(self, done: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        return until(done, what, seconds, self.step)

    def live(self, *partitions: int) -> Driven:
        self.until(
            lambda: self.health.live == (partitions or (0, 1)), f"live {partitions}: {self.health}"
        )
        return self

    def worked_off(self, records: int) -> Driven:
        self.until(lambda: self.health.records >= records, f"{records} records taken")
        return self

    def stop(self) -> None:
        self.cycle.begin_drain()
        self.until(lambda: not self.cycle.in_flight, "drained")
        self.cycle.close()

    def vanish(self) -> None:
        """Gone from the group, with whatever transaction is open left open."""
        self.cycle._members.give_up = lambda own: None  # type: ignore[method-assign]
        self.cycle._members._commit_last = lambda leaving: None  # type: ignore[method-assign]
        self.cycle._members.settle = lambda leaving: None
        self.cycle._consumer.close()
        self.cycle._members.close()
        self.cycle._globals.close()
