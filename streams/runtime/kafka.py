"""The ports over confluent-kafka: the only place in the runtime that knows it.

Errors are sorted here, by what librdkafka says of them: fatal -> `ProducerFenced`; the group
does not know us -> `GroupFenced`; requires abort -> `Aborted`; retriable -> asked again within
the patience of the settings. Client settings are in `kafka_settings.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from . import ports
from .errors import Aborted, GroupFenced, OutcomeUnknown, ProducerFenced, RuntimeFault, Unanswered
from .kafka_admin import ConfluentAdmin
from .kafka_settings import ClientSettings
from .ports import End, Polled, Position, Spot, Trouble
from .processor import Headers, Record
from .settings import RuntimeSettings

log = logging.getLogger(__name__)

_GROUP_FENCE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
_PRODUCER_FENCE = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
_CALL_TIMEOUT = 5.0  # of one call; retriable ones are repeated


def _topic_partitions(
    spots: Iterable[Spot], prefix: str, offset: int | None = None
) -> list[TopicPartition]:
    if offset is None:
        return [TopicPartition(prefix + s.topic, s.partition) for s in spots]
    return [TopicPartition(prefix + s.topic, s.partition, offset) for s in spots]


class _Inbound:
    """Turns the client's messages into ours."""

    def __init__(self, prefix: str) -> None:
        self._cut = len(prefix)
        self._names: dict[str, str] = {}

    def name(self, topic: str) -> str:
        name = self._names.get(topic)
        if name is None:
            name = self._names[topic] = topic[self._cut :]
        return name

    def spots(self, partitions: Sequence[Any]) -> list[Spot]:
        return [Spot(self.name(p.topic), p.partition) for p in partitions]

    def take(self, consumer: Any, limit: int, timeout: float) -> list[Polled]:
        first = consumer.poll(timeout)
        if first is None:
            return []
        messages = [first]
        if limit > 1:
            messages += consumer.consume(limit - 1, 0)
        polled: list[Polled] = []
        for message in messages:
            error = message.error()
            if error is None:
                polled.append(self._record(message))
                continue
            code = error.code()
            topic, partition = message.topic(), message.partition()
            if code == KafkaError._PARTITION_EOF:
                polled.append(End(self.name(topic), partition, message.offset()))
            elif topic is not None and partition is not None and partition >= 0:
                lost = code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
                polled.append(Trouble(self.name(topic), partition, lost, error.str()))
            elif error.fatal():
                raise RuntimeFault(f"the consumer can't go on: {error.str()}")
            else:
                log.warning("consumer: %s", error.str())
        return polled

    def _record(self, message: Any) -> Record:
        try:
            headers: Headers = message.headers() or ()
        except UnicodeDecodeError:  # a header's name is no UTF-8; its record still counts
            headers = ()
        return Record(
            self.name(message.topic()),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            headers,
        )


class ConfluentGroupConsumer:
    def __init__(self, settings: ClientSettings, group: str, client_id: str) -> None:
        self._prefix = settings.prefix
        self._inbound = _Inbound(settings.prefix)
        self._eager = settings.eager
        self._consumer = Consumer(settings.group_consumer(group, client_id))
        self._raised: BaseException | None = None

    def subscribe(self, topics: Sequence[str], listener: ports.Listener) -> None:
        def on_assign(_: Any, partitions: list[Any]) -> None:
            # Offset 0 only starts the partition: it is paused at once, and the owner seeks to the
            # restored position before it resumes.
            targets = [TopicPartition(p.topic, p.partition, 0) for p in partitions]
            if self._eager:
                self._consumer.assign(targets)
            else:
                self._consumer.incremental_assign(targets)
            self._consumer.pause(targets)
            self._guarded(listener.assigned, partitions)

        def on_revoke(_: Any, partitions: list[Any]) -> None:
            self._guarded(listener.revoked, partitions)
            self._unassign(partitions)

        def on_lost(_: Any, partitions: list[Any]) -> None:
            self._guarded(listener.lost, partitions)
            self._unassign(partitions)

        names = [self._prefix + t for t in topics]
        self._consumer.subscribe(names, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def _guarded(self, call: Callable[[Sequence[Spot]], None], partitions: list[Any]) -> None:
        """What is raised inside a callback would vanish in the C library: `poll` raises it."""
        try:
            call(self._inbound.spots(partitions))
        except BaseException as e:
            self._raised = self._raised or e

    def _unassign(self, partitions: list[Any]) -> None:
        if self._eager:
            self._consumer.unassign()
        else:
            self._consumer.incremental_unassign(partitions)

    def _reraise(self) -> None:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        polled = self._inbound.take(self._consumer, limit, timeout)
        self._reraise()
        return polled

    def pause(self, spots: Sequence[Spot]) -> None:
        self._consumer.pause(_topic_partitions(spots, self._prefix))

    def resume(self, spots: Sequence[Spot]) -> None:
        self._consumer.resume(_topic_partitions(spots, self._prefix))

    def start(self, positions: Mapping[Spot, int]) -> None:
        # Resume first: a seek of a paused partition may be overtaken by the resume (measured).
        # What is fetched between the two is dropped by the client, being older than the seek.
        targets = [
            TopicPartition(self._prefix + s.topic, s.partition, o) for s, o in positions.items()
        ]
        self._consumer.resume(targets)
        for target in targets:
            self._consumer.seek(target)

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        offsets = _offsets(positions, self._prefix)
        try:
            for answer in self._consumer.commit(offsets=offsets, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as e:
            error = e.args[0]
            if error.code() in _GROUP_FENCE:
                raise GroupFenced(error.str()) from e
            raise Unanswered(error.str()) from e

    def membership(self) -> object:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()
        self._reraise()


def _offsets(positions: Mapping[Spot, Position], prefix: str) -> list[TopicPartition]:
    return [
        TopicPartition(prefix + s.topic, s.partition, p.offset, p.metadata)
        for s, p in positions.items()
    ]


class ConfluentReader:
    def __init__(self, settings: ClientSettings, client_id: str) -> None:
        self._prefix = settings.prefix
        self._inbound = _Inbound(settings.prefix)
        self._consumer = Consumer(settings.reader(client_id))

    def add(self, spot: Spot, offset: int) -> None:
        self._consumer.incremental_assign(_topic_partitions([spot], self._prefix, offset))

    def remove(self, spot: Spot) -> None:
        self._consumer.incremental_unassign(_topic_partitions([spot], self._prefix))

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        return self._inbound.take(self._consumer, limit, timeout)

    def close(self) -> None:
        self._consumer.close()


class ConfluentTransactionalProducer:
    def __init__(self, settings: ClientSettings, transactional_id: str, patience: float) -> None:
        self._id = transactional_id
        self._prefix = settings.prefix
        self._patience = patience
        self._undelivered = ""
        own = settings.transactional_producer(transactional_id)
        self._producer = Producer(own | {"on_delivery": self._on_delivery})

    def _on_delivery(self, error: Any, message: Any) -> None:
        """The commit only says that something was not delivered; keep what and why."""
        if error is not None and not self._undelivered:
            self._undelivered = f"; not delivered to {message.topic()}: {error.str()}"

    def start(self) -> None:
        self._call("init_transactions", self._producer.init_transactions)

    def begin(self) -> None:
        self._undelivered = ""
        try:
            self._producer.begin_transaction()
        except KafkaException as e:
            raise self._sorted("begin", e) from e

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        _produce(
            self._producer,
            self._prefix + topic,
            key,
            value,
            headers,
            partition,
            _on_delivery(delivered),
            self._sorted,
        )

    def send_offsets(self, positions: Mapping[Spot, Position], membership: object) -> None:
        offsets = _offsets(positions, self._prefix)
        self._call(
            "send_offsets",
            lambda t: self._producer.send_offsets_to_transaction(offsets, membership, t),
        )

    def commit(self) -> None:
        self._call("commit", self._producer.commit_transaction)

    def abort(self) -> None:
        self._call("abort", self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _call(self, what: str, call: Callable[[float], object]) -> None:
        """Asked again while the answer is 'retriable': for a commit, nothing else is allowed then."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                call(_CALL_TIMEOUT)
                return
            except KafkaException as e:
                error = e.args[0]
                if not error.retriable() or error.fatal() or error.txn_requires_abort():
                    raise self._sorted(what, e) from e
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(
                        f"Kafka has not answered {what} of {self._id} for {self._patience:.0f} s: {error.str()}"
                    ) from e
                log.warning("%s of %s is asked again: %s", what, self._id, error.str())

    def _sorted(self, what: str, e: KafkaException) -> Exception:
        error = e.args[0]
        text = f"{what} of {self._id}: {error.name()}: {error.str()}"
        if error.fatal() or error.code() in _PRODUCER_FENCE:
            return ProducerFenced(
                f"{text}; another process has this identity, or the producer is past repair"
            )
        if error.code() in _GROUP_FENCE:
            return GroupFenced(text)
        if what == "abort":
            return RuntimeFault(text)
        return Aborted(text + self._undelivered)


def _on_delivery(delivered: Callable[[int], None] | None) -> Callable[[Any, Any], None] | None:
    if delivered is None:
        return None

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:  # an undelivered record fails the commit
            delivered(message.offset())

    return on_delivery


def _produce(
    producer: Any,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    partition: int | None,
    on_delivery: Callable[[Any, Any], None] | None,
    sort: Callable[[str, KafkaException], Exception],
) -> None:
    at = -1 if partition is None else partition
    listed = list(headers) if headers else None
    while True:
        try:
            if on_delivery is None:
                producer.produce(topic, value, key, at, headers=listed)
            else:
                producer.produce(topic, value, key, at, on_delivery, headers=listed)
            return
        except BufferError:
            producer.poll(0.05)  # the client's queue is full: let it drain
        except KafkaException as e:
            raise sort("send", e) from e


class ConfluentPlainProducer:
    """Delivery answers are served by a thread of its own, so callers never have to poll."""

    def __init__(self, settings: ClientSettings, client_id: str) -> None:
        self._prefix = settings.prefix
        self._producer = Producer(settings.plain_producer(client_id))
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name=f"{client_id}.answers", daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.1)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        def on_delivery(error: Any, _: Any) -> None:
            if done is not None:
                done(None if error is None else Unanswered(error.str()))

        def sort(what: str, e: KafkaException) -> Exception:
            return Unanswered(f"{what}: {e.args[0].str()}")

        _produce(
            self._producer, self._prefix + topic, key, value, headers, partition, on_delivery, sort
        )

    def flush(self, timeout: float) -> int:
        left: int = self._producer.flush(timeout)
        return left

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2)
        self._producer.flush(0)


class ConfluentKafka:
    """Makes the clients of one deployment."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = ClientSettings(settings)
        self._patience = settings.commit_patience_ms / 1000
        self._connect = settings.connect_timeout_ms / 1000

    def group_consumer(self, group: str, client_id: str) -> ConfluentGroupConsumer:
        return ConfluentGroupConsumer(self._settings, group, client_id)

    def transactional_producer(self, transactional_id: str) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(self._settings, transactional_id, self._patience)

    def plain_producer(self, client_id: str) -> ConfluentPlainProducer:
        return ConfluentPlainProducer(self._settings, client_id)

    def reader(self, client_id: str) -> ConfluentReader:
        return ConfluentReader(self._settings, client_id)

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._settings, self._connect)

    def abort_open_transaction(self, transactional_id: str) -> None:
        def take() -> None:
            producer = self.transactional_producer(transactional_id)
            try:
                producer.start()
                log.info("aborted what %s had left open", transactional_id)
            except (Aborted, RuntimeFault) as e:
                log.warning("could not abort what %s left open: %s", transactional_id, e)
            finally:
                producer.close()

        threading.Thread(target=take, name=f"abort {transactional_id}", daemon=True).start()
