"""Reading topics without a group: what the commands use where no view runs.

Always ``read_committed``: what was rolled back is never seen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from perdure.streams.runtime.partitioner import partition_of

_READ_MS = 10
"""How long a broker may hold an empty fetch: a topic's end is known only after that."""
_FOLLOW_MS = 100
_POLL_SECONDS = 0.05
_SILENT_SECONDS = 10.0
_TROUBLED_SECONDS = 2.5
"""So long a Kafka whose connections fail is asked again: it may just be starting."""


ClientError = KafkaException
"""What the Kafka library raises, for those who report it and have no other use for the library."""
SETTING_REFUSED = (KafkaError._INVALID_ARG, KafkaError._NOT_IMPLEMENTED)
CONNECTION_LOST = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class Unreachable(Exception):
    """Kafka does not answer. The text says what to do."""


class NoTopic(Exception):
    """A topic does not exist. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One record of a topic, its key as text."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Raw:
    """One record as it stands on its topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Scanner:
    """Reads whole topics, or one run's partition of them, and says when it has caught up."""

    def __init__(self, conf: Mapping[str, str], prefix: str) -> None:
        self._conf: dict[str, Any] = {
            **conf,
            "group.id": f"perdure.reader.{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "fetch.message.max.bytes": "8388608",
            "allow.auto.create.topics": "false",
            "log_level": "0",
            "error_cb": self._heard,
        }
        self._prefix = prefix
        self._trouble = ""

    def _heard(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = str(error.str())

    def scan(
        self,
        names: Sequence[str],
        *,
        run_id: str | None = None,
        follow: bool = False,
        timeout: float | None = None,
        since: int | None = None,
        starts: Mapping[tuple[str, int], int] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Raw | None]:
        """Records in the order of each partition. None: all there was has been read; without
        ``follow`` that ends it, with it None comes again after each pause.

        ``since`` (ms): not those that were written before it. ``starts``: the first offset to read, of
        those partitions that have one. It ends after ``timeout`` (seconds), or
        once it is ``stopped``, whether anything came or not. Raises `NoTopic`, `Unreachable`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        wait = _FOLLOW_MS if follow else _READ_MS
        consumer = Consumer({**self._conf, "fetch.wait.max.ms": str(wait)})
        try:
            spots = []
            for name in names:
                count = self._count(consumer, name)
                whole = run_id is None or count == 1
                numbers = range(count) if whole else [partition_of(run_id or "", count)]
                spots += [
                    TopicPartition(
                        self._prefix + name, n, (starts or {}).get((name, n), OFFSET_BEGINNING)
                    )
                    for n in numbers
                ]
            consumer.assign(spots if since is None else self._since(consumer, spots, since))
            yield from self._records(consumer, len(spots), follow, deadline, stopped)
        finally:
            consumer.close()

    def read(
        self,
        names: Sequence[str],
        *,
        run_id: str | None = None,
        follow: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Seen]:
        """Records with their keys as text; ends at the topics' ends unless ``follow``.

        ``timeout`` (seconds) bounds a follow. Raises `NoTopic`, `Unreachable`.
        """
        for raw in self.scan(names, run_id=run_id, follow=follow, timeout=timeout):
            if raw is not None:
                key = None if raw.key is None else raw.key.decode("utf-8", "replace")
                yield Seen(raw.topic, raw.partition, raw.offset, raw.timestamp, key, raw.value)

    def partitions(self, name: str) -> int:
        """How many partitions a topic has. Raises `NoTopic`, `Unreachable`."""
        consumer = Consumer(self._conf)
        try:
            return self._count(consumer, name)
        finally:
            consumer.close()

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], int]:
        """The offset after the last record of each partition. Raises `NoTopic`, `Unreachable`."""
        consumer = Consumer(self._conf)
        try:
            spots = [(name, n) for name in names for n in range(self._count(consumer, name))]
            return {
                (name, n): consumer.get_watermark_offsets(
                    TopicPartition(self._prefix + name, n), timeout=_SILENT_SECONDS
                )[1]
                for name, n in spots
            }
        except KafkaException as error:
            servers = self._conf["bootstrap.servers"]
            raise Unreachable(
                f"Kafka at {servers} does not say where its topics end: {error}"
            ) from error
        finally:
            consumer.close()

    def _count(self, consumer: Consumer, name: str) -> int:
        """Asked through the consumer that will read: it then knows the leaders and starts at once."""
        topic = self._prefix + name
        began = time.monotonic()
        while True:
            try:
                found = consumer.list_topics(topic, timeout=1).topics[topic]
                self._trouble = ""
                break
            except KafkaException as error:
                consumer.poll(0)  # brings what the connections have to say
                waited = time.monotonic() - began
                if waited > _SILENT_SECONDS or (self._trouble and waited > _TROUBLED_SECONDS):
                    servers = self._conf["bootstrap.servers"]
                    raise Unreachable(
                        f"Kafka at {servers} does not answer: is it running? "
                        f"({self._trouble or error.args[0].str()})"
                    ) from error
        if found.error is not None or not found.partitions:
            raise NoTopic(f"no topic {topic}: run `perdure topics create`, or `perdure up`")
        return len(found.partitions)

    def _since(
        self, consumer: Consumer, spots: list[TopicPartition], since: int
    ) -> list[TopicPartition]:
        """Where the first record from that time on stands; the end where there is none yet."""
        asked = [TopicPartition(spot.topic, spot.partition, since) for spot in spots]
        try:  # the ends first: what is written in between must not be passed over
            ends = [consumer.get_watermark_offsets(s, timeout=_SILENT_SECONDS)[1] for s in spots]
            found = consumer.offsets_for_times(asked, timeout=_SILENT_SECONDS)
            return [
                TopicPartition(s.topic, s.partition, s.offset if s.offset >= 0 else end)
                for s, end in zip(found, ends, strict=True)
            ]
        except KafkaException as error:
            servers = self._conf["bootstrap.servers"]
            raise Unreachable(
                f"Kafka at {servers} does not say where {since} is: {error}"
            ) from error

    def _records(
        self,
        consumer: Consumer,
        count: int,
        follow: bool,
        deadline: float | None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Raw | None]:
        ended: set[tuple[str | None, int | None]] = set()
        heard = time.monotonic()
        while True:
            # consume() waits out its time unless it has as many as it may: wait for the first only
            first = consumer.poll(_POLL_SECONDS)
            answered = False
            for message in [] if first is None else [first, *consumer.consume(1000, 0)]:
                error = message.error()
                where = (message.topic(), message.partition())
                if error is None:
                    answered = True
                    ended.discard(where)
                    yield _raw(message, self._prefix)
                elif error.code() == KafkaError._PARTITION_EOF:
                    answered = True
                    ended.add(where)
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise Unreachable(f"Kafka: {error.str()}")
            if answered:  # counted from here: what our reader did with the records took time too
                heard = time.monotonic()
            if len(ended) == count:
                yield None
                if not follow:
                    return
            elif time.monotonic() - heard > _SILENT_SECONDS:
                raise Unreachable(
                    f"Kafka at {self._conf['bootstrap.servers']} stopped answering while its topics "
                    f"were read: is it running? ({self._trouble or 'it says nothing'})"
                )
            if stopped() or (deadline is not None and time.monotonic() >= deadline):
                return


def _raw(message: Any, prefix: str) -> Raw:
    key = message.key()
    return Raw(
        str(message.topic()).removeprefix(prefix),
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        None if key is None else bytes(key),
        message.value(),
        tuple((name, value or b"") for name, value in message.headers() or ()),
    )
