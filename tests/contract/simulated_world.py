"""The world around the simulated broker: waiting moves the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TypeVar

from perdure.streams.runtime.ports import Kafka
from perdure.streams.runtime.processor import Headers

from perdure.testing.broker import Broker, Process
from tests.contract.world import SECONDS

T = TypeVar("T")

_STEP = 0.01


class Now:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0
        self.on_wait: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.seconds += seconds
        self.on_wait()
        return event.is_set()


class SimulatedWorld:
    def __init__(self, random: Random | None) -> None:
        self.clock = Now()
        self.broker = Broker(self.clock, random=random)
        self._made = 0

    def name(self, of: str) -> str:
        self._made += 1
        return f"{of}-{self._made}"

    def topic(
        self,
        partitions: int = 1,
        *,
        compact: bool = False,
        append_time: bool = False,
        max_bytes: int = 1_048_588,
        name: str | None = None,
    ) -> str:
        name = name or self.name("topic")
        self.broker.create_topic(
            name, partitions, compact=compact, append_time=append_time, max_bytes=max_bytes
        )
        return name

    def delete_topic(self, name: str) -> None:
        self.broker.delete_topic(name)

    def add_partitions(self, name: str, count: int) -> None:
        self.broker.add_partitions(name, count)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.broker.delete_records(topic, partition, before)

    def put(
        self,
        topic: str,
        value: bytes | None = b"v",
        key: bytes | None = b"k",
        partition: int | None = 0,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        self.broker.produce(topic, key, value, headers, partition, timestamp)

    def process(
        self,
        *,
        transaction_timeout_ms: int = 10_000,
        commit_patience_ms: int = 30_000,
        apart: bool = False,
    ) -> Process:
        return self.broker.process(
            self.name("process"),
            transaction_timeout_ms=transaction_timeout_ms,
            commit_patience_ms=commit_patience_ms,
        )

    def unreachable(self) -> Process:
        process = self.broker.process(
            self.name("process"), commit_patience_ms=1_000, connect_timeout_ms=1_000
        )
        self.broker.cut(process)
        return process

    def kill(self, process: Kafka) -> None:
        assert isinstance(process, Process)
        self.broker.kill(process)

    def stop(self, process: Kafka) -> None:
        assert isinstance(process, Process)
        self.broker.stop(process)

    def resume(self, process: Kafka) -> None:
        assert isinstance(process, Process)
        self.broker.resume(process)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def until(self, done: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        end = self.clock.seconds + seconds
        while True:
            found = done()
            if found:
                return found
            assert self.clock.seconds < end, f"not within {seconds} s: {what}"
            self.clock.seconds += _STEP
            self.broker.tick()
