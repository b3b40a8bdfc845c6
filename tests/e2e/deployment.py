"""`perdure up` as a user starts it, and plain Kafka clients beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

HERE = Path(__file__).parent


class Up:
    """One `perdure up` process on a data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.effects = directory / "effects.txt"
        self.process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "perdure",
            "up",
            "--json",
            "--port",
            "0",
            "--kafka-port",
            "0",
            "--log-level",
            "INFO",
        ]
        command += ["--tools", str(HERE / "tools.py"), "--agents", str(HERE / "agents.yaml")]
        command += ["--data-dir", str(self.directory / "data")]
        environment = {**os.environ, "E2E_EFFECTS": str(self.effects)}
        with (self.directory / "up.log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.directory / "up.log").read_text()
        self.ready = json.loads(line)

    @property
    def servers(self) -> str:
        return str(self.ready["bootstrap_servers"])

    def kill(self) -> None:
        """kill -9 of the supervisor alone; everything under it must end by itself."""
        assert self.process is not None
        self.process.kill()
        self._end()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(90)
        self.process.stdout.close()
        return code

    def paid(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    # --- what a plain Kafka client does -------------------------------------------------------

    def produce(self, topic: str, *values: bytes | None, key: str | None = None) -> None:
        """Records without a key (unless given), as a console producer sends them."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "message.max.bytes": 4_200_000, "log_level": 0}
        )
        for value in values:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def records(
        self, topic: str, wanted: Callable[[str | None, Any], bool], seconds: float = 40
    ) -> Iterator[Any]:
        """Values of a topic from its beginning for which ``wanted(key, value)``; fails after ``seconds``."""
        consumer = self._consumer(topic)
        try:
            for _ in range(int(seconds * 5)):
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                raw, key = message.value(), message.key()
                value = None if raw is None else _decoded(raw)
                name = None if key is None else key.decode()
                if wanted(name, value):
                    yield value
        finally:
            consumer.close()
        log = (self.directory / "up.log").read_text()[-3000:]
        raise AssertionError(f"nothing wanted on {topic} within {seconds} s; log:\n{log}")

    def _consumer(self, topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "console",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 8_000_000,
                "log_level": 0,
            }
        )
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return consumer

    def outcome(self, run_id: str, seconds: float = 40) -> dict[str, Any]:
        found: dict[str, Any] = next(
            self.records("agent.outcomes", lambda key, value: key == run_id and value, seconds)
        )
        return found

    def question(self, of_run: Callable[[str], bool], seconds: float = 40) -> dict[str, Any]:
        found: dict[str, Any] = next(
            self.records(
                "agent.approvals.pending",
                lambda key, value: bool(value) and of_run(value["run_id"]),
                seconds,
            )
        )
        return found

    def dead(self, part: bytes, seconds: float = 40) -> dict[str, str]:
        """Headers of the dead letter whose value contains ``part``."""
        consumer = self._consumer("agent.dead-letters")
        try:
            for _ in range(int(seconds * 5)):
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                if part in (message.value() or b"NULL"):
                    return {
                        name: (value or b"").decode() for name, value in message.headers() or ()
                    }
        finally:
            consumer.close()
        raise AssertionError(f"no dead letter with {part!r} within {seconds} s")


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw
