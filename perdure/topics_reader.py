"""Reading topics without a group: what the commands use where no view runs.

Always ``read_committed``: what was rolled back is never seen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from perdure.streams.runtime.partitioner import partition_of


class Unreachable(Exception):
    """Kafka does not answer. The text says what to do."""


class NoTopic(Exception):
    """A topic does not exist. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: bytes | None


class TopicsReader:
    """Reads whole topics, or one run's partition of them, and follows them on request."""

    def __init__(self, conf: dict[str, str], prefix: str) -> None:
        self._conf = {
            **conf,
            "group.id": f"perdure.reader.{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": "8388608",
            "allow.auto.create.topics": "false",
            "log_level": "0",
        }
        self._prefix = prefix

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has. Raises `NoTopic`, `Unreachable`."""
        consumer = Consumer(self._conf)
        try:
            return self._count(consumer, topic)
        finally:
            consumer.close()

    def _count(self, consumer: Consumer, topic: str) -> int:
        try:
            found = consumer.list_topics(self._prefix + topic, timeout=10).topics[
                self._prefix + topic
            ]
        except KafkaException as error:
            servers = self._conf.get("bootstrap.servers", "")
            raise Unreachable(
                f"Kafka at {servers} does not answer: is it running? ({error.args[0].str()})"
            ) from error
        if found.error is not None or not found.partitions:
            raise NoTopic(
                f"no topic {self._prefix + topic}: run `perdure topics create`, or `perdure up`"
            )
        return len(found.partitions)

    def read(
        self,
        topics: Sequence[str],
        *,
        run_id: str | None = None,
        follow: bool = False,
        from_end: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Seen]:
        """Records in the order of each partition; ends at the topics' ends unless ``follow``.

        ``run_id`` reads only the partition that owns the run. ``timeout`` (seconds) bounds a
        follow. Raises `NoTopic`, `Unreachable`.
        """
        consumer = Consumer(self._conf)
        try:
            start = OFFSET_END if from_end else OFFSET_BEGINNING
            assigned = []
            for topic in topics:
                count = self._count(consumer, topic)
                numbers = (
                    range(count) if run_id is None or count == 1 else [partition_of(run_id, count)]
                )
                assigned += [
                    TopicPartition(self._prefix + topic, number, start) for number in numbers
                ]
            consumer.assign(assigned)
            yield from self._records(consumer, len(assigned), follow, timeout)
        finally:
            consumer.close()

    def _records(
        self, consumer: Consumer, count: int, follow: bool, timeout: float | None
    ) -> Iterator[Seen]:
        ended: set[tuple[str | None, int | None]] = set()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = 0.5 if deadline is None else min(0.5, max(deadline - time.monotonic(), 0.0))
            for message in consumer.consume(500, wait):
                error = message.error()
                if error is None:
                    key = message.key()
                    yield Seen(
                        str(message.topic()).removeprefix(self._prefix),
                        message.partition() or 0,
                        message.offset() or 0,
                        message.timestamp()[1],
                        None if key is None else bytes(key).decode("utf-8", "replace"),
                        message.value(),
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise Unreachable(f"Kafka: {error.str()}")
            if not follow and len(ended) == count:
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
