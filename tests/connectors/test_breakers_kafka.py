"""Four workers on a real broker before a real service that is dead: how often it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from perdure.connectors import tool
from perdure.connectors.breaker import BreakerSettings
from perdure.connectors.http import client
from perdure.connectors.serving import Pieces, build_processors
from perdure.connectors.worker import WorkerSettings
from perdure.schemas import codec, topics
from perdure.streams.cluster.topics import ensure_topics
from perdure.streams.runtime import runner
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.settings import RuntimeSettings

from .servers import Script, web_server
from .world import command

pytestmark = pytest.mark.kafka

WORKERS = 4
BREAKER = BreakerSettings(failures=5, within_seconds=30, open_seconds=1, longest_seconds=2)
STORM_SECONDS = 4.0
"""Probes fall due after 1 and 3 s, and their jitter."""


class Fleet:
    """Four workers of one group, each with a partition, a process's worth of pieces each."""

    def __init__(self, bootstrap: str, prefix: str, place: Path, url: str) -> None:
        conf = {"bootstrap.servers": bootstrap}
        ensure_topics(conf, prefix, WORKERS)

        @tool("shop", effect="read_only")
        async def shop() -> str:
            async with client(url, timeout_seconds=5) as http:
                return (await http.get("/")).text

        self._prefix = prefix
        self._stop = threading.Event()
        self._producer = Producer(conf)
        self._consumer = Consumer(
            {
                **conf,
                "group.id": f"{prefix}judge",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([prefix + topics.RESULTS])
        self.sent = 0
        self.answers: list[dict[str, Any]] = []
        self.pieces: list[Pieces] = []
        self.boards: list[HealthBoard] = []
        self._threads: list[threading.Thread] = []
        for n in range(WORKERS):
            runtime = RuntimeSettings(
                bootstrap_servers=bootstrap,
                topic_prefix=prefix,
                data_dir=place,
                instance_id=f"w{n}",
                store="memory",
                drain_seconds=2,
            )
            settings = WorkerSettings(instance_id=f"w{n}", breaker=BREAKER)
            kafka = ConfluentKafka(runtime)
            pieces = build_processors([shop], ["tools"], runtime, kafka, str(place), settings)
            board = HealthBoard()
            thread = threading.Thread(
                target=runner.run,
                args=(pieces.processors, runtime, self._stop),
                kwargs={"board": board, "kafka": kafka},
            )
            thread.start()
            self.pieces.append(pieces)
            self.boards.append(board)
            self._threads.append(thread)

    def live(self) -> bool:
        """Each has its partition."""
        return all(len(s.live) == 1 for board in self.boards for s in board.snapshots()) and all(
            board.snapshots() for board in self.boards
        )

    def send(self, partition: int) -> None:
        now = time.time_ns() // 1_000_000
        run = f"r{self.sent}"
        made = command("shop", run_id=run, action_id=f"{run}/1", issued_at=now, expires_at=now + 60_000)  # fmt: skip
        topic = self._prefix + topics.commands("tools")
        self._producer.produce(topic, codec.encode(made), run, partition=partition)
        self.sent += 1
        self._producer.poll(0)

    def open(self) -> list[bool]:
        return ["shop" in each.reach.snapshot().open for each in self.pieces]

    def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.open(), self.answers[-3:])
            self.take()

    def take(self) -> None:
        for message in self._consumer.consume(500, 0.01):
            if message.error() is None:
                self.answers.append(msgspec.json.decode(message.value()))

    def codes(self) -> list[str]:
        return [(each["error"] or {}).get("code", "") if each.get("error") else each["status"] for each in self.answers]  # fmt: skip

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        for pieces in self.pieces:
            pieces.close()
        self._producer.flush(5)
        self._consumer.close()


@pytest.fixture
def shop() -> Iterator[Script]:
    with web_server() as script:
        script.say(503, "down")
        yield script


@pytest.fixture
def fleet(broker: str, prefix: str, tmp_path: Path, shop: Script) -> Iterator[Fleet]:
    made = Fleet(broker, prefix, tmp_path, shop.url)
    yield made
    made.close()


def test_a_dead_service_is_asked_by_probes_alone_and_found_again(
    fleet: Fleet, shop: Script, record_property: Callable[[str, object], None]
) -> None:
    fleet.until(fleet.live)
    for n in range(BREAKER.failures):  # one after the other: a single worker finds out
        fleet.send(0)
        fleet.until(lambda n=n: len(fleet.answers) == n + 1)
    fleet.until(lambda: all(fleet.open()), 5.0)
    before = len(shop.requests)
    assert before == BREAKER.failures

    end = time.monotonic() + STORM_SECONDS
    while time.monotonic() < end:
        for partition in range(WORKERS):
            fleet.send(partition)
        fleet.take()
    fleet.until(lambda: len(fleet.answers) == fleet.sent)
    asked = len(shop.requests) - before
    commands = fleet.sent - BREAKER.failures
    record_property("requests while open", f"{asked} for {commands} commands")
    print(f"{asked} requests while open, for {commands} commands")  # with -s
    codes = fleet.codes()[BREAKER.failures :]
    assert codes.count("BREAKER_OPEN") == commands - asked
    assert codes.count("http_503") == asked
    assert commands > 100
    assert 2 <= asked <= 2 * WORKERS  # two intervals, a probe of each worker at most

    shop.answers[:] = [(200, {}, b"up")]
    began = time.monotonic()

    def all_good() -> bool:
        for partition in range(WORKERS):
            fleet.send(partition)
        answered = len(fleet.answers)
        fleet.until(lambda: len(fleet.answers) == fleet.sent)
        return not any(fleet.open()) and fleet.codes()[answered:] == ["succeeded"] * WORKERS

    fleet.until(all_good, 6.0)
    print(f"found again after {time.monotonic() - began:.1f} s")
    for _ in range(5):
        assert all_good()
