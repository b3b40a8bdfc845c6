"""The world around the real broker. A process `apart` is a child that does the calls for us."""

from __future__ import annotations

import contextlib
import json
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.ports import Kafka
from perdure.streams.runtime.processor import Headers
from perdure.streams.runtime.settings import RuntimeSettings

from tests.contract.world import SECONDS

T = TypeVar("T")

NOBODY = "127.0.0.1:1"


class Deployment:
    """What the tests of a session share: clients, and the prefix of all their topics."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "partitioner": "murmur2_random"}
        )
        self.made = 0

    def settings(self, **own: Any) -> RuntimeSettings:
        common: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "topic_prefix": self.prefix,
            "data_dir": Path("unused"),
            "instance_id": "contract",
        }
        return RuntimeSettings(**(common | own))

    def delete_all(self) -> None:
        names = [n for n in self.admin.list_topics(timeout=10).topics if n.startswith(self.prefix)]
        if names:
            for future in self.admin.delete_topics(names).values():
                future.exception()


class KafkaWorld:
    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._children: list[Child] = []

    def close(self) -> None:
        for child in self._children:
            child.end()

    def name(self, of: str) -> str:
        self._deployment.made += 1
        return f"{self._deployment.prefix}{of}-{self._deployment.made}"

    def topic(
        self,
        partitions: int = 1,
        *,
        compact: bool = False,
        append_time: bool = False,
        max_bytes: int = 1_048_588,
        name: str | None = None,
    ) -> str:
        full = self.name("topic") if name is None else self._deployment.prefix + name
        config = {
            "cleanup.policy": "compact" if compact else "delete",
            "max.message.bytes": str(max_bytes),
            "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        }
        admin = self._deployment.admin

        def created() -> bool:  # one of this name may still be under deletion
            try:
                for future in admin.create_topics(
                    [NewTopic(full, partitions, 1, config=config)]
                ).values():
                    future.result(10)
            except KafkaException:
                return False
            return True

        self.until(created, f"{full} is created")

        def led() -> bool:  # a client that asks too early asks again only after seconds
            known = admin.list_topics(timeout=5).topics.get(full)
            return (
                known is not None
                and [p.leader >= 0 for p in known.partitions.values()] == [True] * partitions
            )

        self.until(led, f"{full} is there")
        return full.removeprefix(self._deployment.prefix)

    def delete_topic(self, name: str) -> None:
        full, admin = self._deployment.prefix + name, self._deployment.admin
        for future in admin.delete_topics([full]).values():
            future.result(10)
        self.until(lambda: full not in admin.list_topics(timeout=5).topics, f"{full} is deleted")

    def add_partitions(self, name: str, count: int) -> None:
        full, admin = self._deployment.prefix + name, self._deployment.admin
        for future in admin.create_partitions([NewPartitions(full, count)]).values():
            future.result(10)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        target = TopicPartition(self._deployment.prefix + topic, partition, before)
        for future in self._deployment.admin.delete_records([target]).values():
            future.result(10)

    def put(
        self,
        topic: str,
        value: bytes | None = b"v",
        key: bytes | None = b"k",
        partition: int | None = 0,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        producer, at = self._deployment.producer, -1 if partition is None else partition
        full, stamp = self._deployment.prefix + topic, timestamp or 0
        producer.produce(full, value, key, at, timestamp=stamp, headers=list(headers) or None)
        assert producer.flush(10) == 0

    def process(
        self,
        *,
        transaction_timeout_ms: int = 10_000,
        commit_patience_ms: int = 30_000,
        apart: bool = False,
    ) -> Kafka:
        own: dict[str, Any] = {
            "transaction_timeout_ms": transaction_timeout_ms,
            "commit_patience_ms": commit_patience_ms,
        }
        if transaction_timeout_ms < 10_000:  # the client wants it longer than that of its sockets
            own["kafka"] = {"socket.timeout.ms": str(transaction_timeout_ms)}
        if not apart:
            return ConfluentKafka(self._deployment.settings(**own))
        child = Child(self._deployment, own)
        self._children.append(child)
        kafka: Kafka = child.kafka
        return kafka

    def unreachable(self) -> Kafka:
        return ConfluentKafka(
            self._deployment.settings(
                bootstrap_servers=NOBODY, commit_patience_ms=1_000, connect_timeout_ms=1_000
            )
        )

    def kill(self, process: Kafka) -> None:
        self._child(process).end()

    def stop(self, process: Kafka) -> None:
        self._child(process).send_signal(signal.SIGSTOP)

    def resume(self, process: Kafka) -> None:
        self._child(process).send_signal(signal.SIGCONT)

    def _child(self, process: Kafka) -> Child:
        return next(c for c in self._children if c.kafka is process)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def until(self, done: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        end = time.monotonic() + seconds
        while True:
            found = done()
            if found:
                return found
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.005)


class Child:
    """A process that makes the real port's calls as it is told to (`child.py`)."""

    def __init__(self, deployment: Deployment, own: dict[str, Any]) -> None:
        told = {"bootstrap_servers": deployment.bootstrap, "topic_prefix": deployment.prefix} | own
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py")), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._callbacks: list[Any] = []
        self.kafka: Any = Remote(self, 0)

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def call(self, target: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the other side calls back comes with the answer, and is called here then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sent = []
        for argument in arguments:
            if isinstance(argument, Remote):
                sent.append(("object", argument.number))
            elif callable(argument) or hasattr(argument, "assigned"):
                self._callbacks.append(argument)
                kind = "callback" if callable(argument) else "listener"
                sent.append((kind, len(self._callbacks) - 1))
            else:
                sent.append(("value", argument))
        pickle.dump((target, method, sent), self._process.stdin)
        self._process.stdin.flush()
        called_back, kind, result = pickle.load(self._process.stdout)
        for number, name, given in called_back:
            callback = self._callbacks[number]
            (getattr(callback, name) if name else callback)(*given)
        if kind == "raised":
            raise result
        return Remote(self, result) if kind == "object" else result


class Remote:
    """Something on the other side, by its number there."""

    def __init__(self, child: Child, number: int) -> None:
        self._child = child
        self.number = number

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method == "assigned":  # it is no listener
            raise AttributeError(method)
        return lambda *arguments: self._child.call(self.number, method, arguments)
