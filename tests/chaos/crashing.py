"""A role that kills itself at a chosen point of its cycle: ``crashing.py PLAN engine|worker ...``.

Everything is the product's own command; only the classes of three ports are replaced by subclasses
before it starts: Kafka's clients, the store, the executor (and the tools' way to the outside). Each
of their operations is a point, before and after. PLAN is a JSON file {``point``, ``n``, ``action``,
``armed``}: at the n-th time that point is passed the process gets SIGKILL (or SIGSTOP) from itself.
Counting begins with SIGUSR1, which reads the file; with ``armed`` it begins at the start.

"After" a produce, and "before" a commit, mean that the broker has the records: what is queued is sent first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.connectors import executor
from perdure.connectors import serving as worker_serving
from perdure.schemas.topics import RESULTS
from perdure.streams.runtime import kafka as kafka_port
from perdure.streams.runtime import kafka_consumers, kafka_producers, rocksdb

from tests.chaos import line_client

WATCHED = {"engine": "engine", "worker": "worker.tools"}
"""Of a worker's processors, the one with the tools."""


class Fuse:
    """Counts one point and acts at its n-th passing."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._point = ""
        self._left = 0
        self._signal = signal.SIGKILL
        if plan.exists() and json.loads(plan.read_text()).get("armed"):
            self.arm()
        signal.signal(signal.SIGUSR1, lambda *_: self.arm())

    def arm(self) -> None:
        plan = json.loads(self._plan.read_text())
        self._left = int(plan["n"])
        self._signal = signal.SIGSTOP if plan.get("action") == "stop" else signal.SIGKILL
        self._point = str(plan["point"])
        self._plan.with_suffix(".armed").touch()

    def passed(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            self._point = ""
            self._plan.with_suffix(".fired").touch()
            os.kill(os.getpid(), self._signal)


def install(role: str, fuse: Fuse) -> None:
    """Replace the ports' classes by subclasses that pass their points."""
    processor = WATCHED[role]

    class GroupConsumer(kafka_consumers.ConfluentGroupConsumer):
        _brought = False

        def poll(self, limit: int, timeout: float) -> list[Any]:
            if self._brought:  # only polls after which there was something to do count
                fuse.passed("poll.before")
            polled = super().poll(limit, timeout)
            self._brought = any(hasattr(item, "value") for item in polled)
            if self._brought:
                fuse.passed("poll.after")
            return polled

    class TransactionalProducer(kafka_producers.ConfluentTransactionalProducer):
        def begin(self) -> None:
            fuse.passed("begin.before")
            super().begin()
            fuse.passed("begin.after")

        def send(self, topic: str, *rest: Any) -> None:
            what = "changelog" if topic.endswith(".changelog") else "output"
            fuse.passed(f"{what}.before")
            super().send(topic, *rest)
            if fuse._point == f"{what}.after":
                self._producer.flush(10)
            fuse.passed(f"{what}.after")

        def send_offsets(self, positions: Any, membership: object) -> None:
            fuse.passed("offsets.before")
            super().send_offsets(positions, membership)
            fuse.passed("offsets.after")

        def commit(self) -> None:
            if fuse._point == "commit.before":
                self._producer.flush(10)
            fuse.passed("commit.before")
            super().commit()
            fuse.passed("commit.after")

    class PlainProducer(kafka_producers.ConfluentPlainProducer):
        def send(self, topic: str, *rest: Any) -> None:
            if topic == RESULTS:
                fuse.passed("result.before")
            super().send(topic, *rest)
            if topic == RESULTS:
                if fuse._point == "result.after":
                    self._producer.flush(10)
                fuse.passed("result.after")

    class Kafka(kafka_port.ConfluentKafka):
        def group_consumer(self, group: str, client_id: str) -> Any:
            if not group.endswith(f".{processor}"):
                return super().group_consumer(group, client_id)
            return GroupConsumer(self._settings, group, client_id)

        def transactional_producer(self, transactional_id: str) -> Any:
            if f"{processor}." not in transactional_id:
                return super().transactional_producer(transactional_id)
            return TransactionalProducer(self._settings, transactional_id, self._patience)

        def plain_producer(self, client_id: str) -> Any:
            return PlainProducer(self._settings, client_id)

    class Store(rocksdb.RocksStore):
        def write(self, changes: Mapping[bytes, bytes | None], meta: Any) -> None:
            fuse.passed("store.before")
            super().write(changes, meta)
            fuse.passed("store.after")

    class Stores(rocksdb.RocksStores):
        def open(self, partition: int) -> rocksdb.RocksStore:
            opened = super().open(partition)
            if not self._directory.name.startswith(f"{processor}."):
                return opened
            return Store(opened._db)

    class Executor(executor.ThreadedExecutor):
        def spawn(self, job: Any) -> None:
            fuse.passed("act.before")
            super().spawn(job)
            fuse.passed("act.after")

    plain_exchange = line_client.exchange

    async def exchange(request: dict[str, Any]) -> dict[str, Any]:
        what = "query" if request["verb"] == "ask" else "call"
        fuse.passed(f"{what}.before.{request['tool']}")
        answer = await plain_exchange(request)
        fuse.passed(f"{what}.after.{request['tool']}")
        return answer

    kafka_port.ConfluentKafka = Kafka  # type: ignore[misc]
    rocksdb.RocksStores = Stores  # type: ignore[misc]
    worker_serving.ThreadedExecutor = Executor  # type: ignore[misc]
    line_client.exchange = exchange


def main() -> None:
    plan, role = Path(sys.argv[1]), sys.argv[2]
    install(role, Fuse(plan))
    sys.argv = ["perdure", *sys.argv[2:]]
    assert "perdure.streams.runtime.runner" not in sys.modules, "the runner has the plain ports"
    from perdure.cli import main as perdure

    perdure()


if __name__ == "__main__":
    main()
