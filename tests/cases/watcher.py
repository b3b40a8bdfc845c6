"""One reader of every topic a deployment writes: what was committed, kept in memory to look at."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition


@dataclass(frozen=True)
class Seen:
    """A committed record."""

    topic: str
    partition: int
    offset: int
    key: str | None
    raw: bytes | None
    headers: dict[str, bytes | None]
    timestamp: int = 0

    @property
    def value(self) -> Any:
        return None if self.raw is None else json.loads(self.raw)

    def header(self, name: str) -> str:
        return (self.headers[name] or b"").decode()


class Watcher:
    """Reads on in a thread of its own; `wait` is how tests wait for a record."""

    def __init__(self, bootstrap: str, prefix: str, topics: list[str]) -> None:
        self._prefix = prefix
        self._seen: dict[str, list[Seen]] = {topic: [] for topic in topics}
        self._changed = threading.Condition()
        self._stop = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": prefix + "watcher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 8_000_000,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        known = self._consumer.list_topics(timeout=10).topics
        self._consumer.assign(
            [
                TopicPartition(prefix + topic, number, OFFSET_BEGINNING)
                for topic in topics
                for number in known[prefix + topic].partitions
            ]
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop = True
        self._thread.join(10)
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop:
            batch = [m for m in self._consumer.consume(500, 0.1) if m.error() is None]
            if batch:
                with self._changed:
                    for message in batch:
                        made = self._made(message)
                        self._seen[made.topic].append(made)
                    self._changed.notify_all()

    def _made(self, message: Message) -> Seen:
        key = message.key()
        return Seen(
            str(message.topic()).removeprefix(self._prefix),
            int(message.partition() or 0),
            int(message.offset() or 0),
            None if key is None else bytes(key).decode(errors="replace"),
            message.value(),
            dict(message.headers() or ()),
            message.timestamp()[1],
        )

    def on(self, topic: str, wanted: Callable[[Seen], Any] = lambda seen: True) -> list[Seen]:
        """What stands on a topic so far."""
        with self._changed:
            return [seen for seen in self._seen[topic] if wanted(seen)]

    def wait(
        self,
        topic: str,
        wanted: Callable[[Seen], Any],
        what: str,
        seconds: float = 30,
        count: int = 1,
    ) -> list[Seen]:
        """The records wanted, once there are ``count`` of them."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [seen for seen in self._seen[topic] if wanted(seen)]
                if len(found) >= count:
                    return found
                left = end - time.monotonic()
                assert left > 0, f"not on {topic} within {seconds} s: {what}"
                self._changed.wait(left)
