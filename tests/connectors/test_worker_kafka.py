"""The worker on the real runtime and broker, killed in the middle of its calls."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from perdure.schemas import codec, topics
from perdure.schemas.records import ActionCommand
from perdure.streams.cluster.topics import ensure_topics

from .world import command

pytestmark = pytest.mark.kafka


class Deployment:
    """A worker process, and what it answers."""

    def __init__(self, bootstrap: str, prefix: str, place: Path) -> None:
        ensure_topics({"bootstrap.servers": bootstrap}, prefix, 2)
        self._arguments = [bootstrap, prefix, str(place)]
        self._place = place
        self._prefix = prefix
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{prefix}judge",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([prefix + topics.RESULTS])
        self.results: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.connectors.kafka_worker", *self._arguments]
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def send(self, target: str, run: str, queue: str = "tools", **more: Any) -> None:
        now = time.time_ns() // 1_000_000
        made: ActionCommand = command(
            target,
            run_id=run,
            action_id=f"{run}/1",
            idempotency_key=f"{run}/1/0a",
            issued_at=now,
            expires_at=now + 600_000,
            **more,
        )
        self._producer.produce(self._prefix + topics.commands(queue), codec.encode(made), run)
        self._producer.flush(10)

    def until(self, condition: Callable[[], bool], seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.results
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.results.append(msgspec.json.decode(message.value()))

    def of(self, run: str) -> list[str]:
        return [r["status"] for r in self.results if r["run_id"] == run]

    def calls(self) -> list[str]:
        path = self._place / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._consumer.close()


@pytest.fixture
def deployment(broker: str, prefix: str, tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(broker, prefix, tmp_path)
    yield made
    made.close()


def test_each_way_to_an_answer_and_a_stop(deployment: Deployment) -> None:
    d = deployment
    d.start()
    for n in range(20):
        d.send("look", f"look-{n}", arguments={"n": n})
    d.send("act", "act", effect="external")
    reply = {"content": {"$": "input"}}
    request = {"model": {"provider": "scripted"}, "reply": reply, "input": "hi", "turn": 0}
    d.send("scripted", "model", queue="models", request=request)
    d.send("nothing", "none")
    d.until(lambda: len([r for r in d.results if r["status"] in ("succeeded", "failed")]) == 23)
    assert all(d.of(f"look-{n}") == ["succeeded"] for n in range(20))
    assert d.of("act") == ["started", "succeeded"]
    assert d.of("model") == ["succeeded"]
    assert d.of("none") == ["failed"]
    assert d.process is not None
    d.process.terminate()
    assert d.process.wait(20) == 0
    assert d.calls() == ["act act/1 1"]


def test_killed_in_the_middle_of_a_call(deployment: Deployment) -> None:
    d = deployment
    d.start()
    d.send("act", "act", effect="external", arguments={"seconds": 60}, timeout_seconds=90)
    d.send("ask", "ask", effect="external", arguments={"seconds": 60}, timeout_seconds=90)
    d.until(lambda: len(d.calls()) == 2)
    d.kill()
    d.start()
    d.until(lambda: len(d.of("act")) == 2 and len(d.of("ask")) == 2)
    assert d.of("act") == ["started", "unknown"]  # the core asks a person
    assert d.of("ask") == ["started", "succeeded"]  # its query found it
    found = next(r for r in d.results if r["run_id"] == "ask" and r["status"] == "succeeded")
    assert (found["result"], found["adopted"]) == ("found", True)
    assert sorted(d.calls()) == ["act act/1 1", "ask ask/1 1"]


@pytest.mark.chaos
def test_killed_again_and_again_under_load(deployment: Deployment) -> None:
    d = deployment
    runs = 200
    d.start()
    for batch in range(4):
        for n in range(batch * 50, batch * 50 + 50):
            d.send("act", f"act-{n}", effect="external", arguments={"seconds": n % 2 * 0.3})
            d.send("look", f"look-{n}", arguments={"n": n})
        d.until(lambda batch=batch: len(d.calls()) > batch * 50 + 20)
        if batch < 3:
            d.kill()
            d.start()

    def settled() -> bool:
        return all(d.of(f"act-{n}")[1:] and d.of(f"look-{n}") for n in range(runs))

    d.until(settled, 90)
    called = d.calls()
    assert len(called) == len(set(called))
    for n in range(runs):
        assert d.of(f"act-{n}") in (["started", "succeeded"], ["started", "unknown"])
        if d.of(f"act-{n}")[1] == "succeeded":
            assert f"act act-{n}/1 1" in called
        assert set(d.of(f"look-{n}")) == {"succeeded"}
    assert all(d.of(f"act-{n}")[1] == "succeeded" for n in range(150, runs))
