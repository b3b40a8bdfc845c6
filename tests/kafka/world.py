"""Topics, records and waiting, for tests on a real broker. Shares nothing with the runtime."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE = 60.0


def until(
    done: Callable[[], Any],
    what: str,
    seconds: float = DEADLINE,
    step: Callable[[], Any] | None = None,
) -> Any:
    """Wait for a condition; the only way tests wait."""
    end = time.monotonic() + seconds
    while True:
        found = done()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        if step is None:
            time.sleep(0.02)
        else:
            step()


class World:
    """One test's topics."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "message.max.bytes": 5_000_000,
            }
        )

    def create(self, *topics: str, partitions: int = 2, **config: str) -> None:
        config = {"max.message.bytes": "5000000"} | {
            k.replace("_", "."): v for k, v in config.items()
        }
        new = [NewTopic(self.prefix + t, partitions, 1, config=config) for t in topics]
        for future in self.admin.create_topics(new).values():
            future.result(10)
        known = {self.prefix + t for t in topics}
        until(lambda: known <= set(self.admin.list_topics(timeout=5).topics), "topics created")

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([self.prefix + topic]).values():
            future.result(10)
        until(
            lambda: self.prefix + topic not in self.admin.list_topics(timeout=5).topics,
            "topic deleted",
        )

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: Any = None,
    ) -> None:
        self.producer.produce(self.prefix + topic, value, key, partition, headers=headers)

    def flush(self) -> None:
        assert self.producer.flush(20) == 0

    def ends(self, topic: str, partitions: int) -> list[int]:
        reader = self._reader("read_uncommitted")
        found = [
            reader.get_watermark_offsets(TopicPartition(self.prefix + topic, p), 5)[1]
            for p in range(partitions)
        ]
        reader.close()
        return found

    def _reader(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.prefix + "reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )

    def read(self, topic: str, partitions: int = 2, isolation: str = "read_committed") -> list[Any]:
        """All messages there are now, by partition and offset."""
        reader = self._reader(isolation)
        reader.assign([TopicPartition(self.prefix + topic, p, 0) for p in range(partitions)])
        left = set(range(partitions))
        found = []
        end = time.monotonic() + DEADLINE
        while left:
            assert time.monotonic() < end, f"{topic} could not be read to its end"
            message = reader.poll(0.2)
            if message is None:
                continue
            if message.error():
                left.discard(message.partition())
            else:
                found.append(message)
        reader.close()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))

    def values(self, topic: str, partitions: int = 2) -> list[Any]:
        return [json.loads(m.value()) for m in self.read(topic, partitions)]


def check_sequences(outputs: Iterable[Any], expected: set[str]) -> None:
    """The verifier: every input counted once, and every key's state without a break."""
    seen: list[str] = []
    last: dict[bytes, int] = {}
    broken = []
    for message in outputs:
        content = json.loads(message.value())
        seen.append(content["of"])
        key = message.key()
        if content["n"] != last.get(key, 0) + 1:
            broken.append((key, last.get(key, 0), content["n"]))
        last[key] = content["n"]
    assert len(seen) - len(set(seen)) == 0, "duplicates"
    assert expected - set(seen) == set(), "missing"
    assert set(seen) - expected == set(), "from nowhere"
    assert broken == [], "sequences broken"
