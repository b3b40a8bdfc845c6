"""The consuming ports over confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from . import ports
from .errors import GroupFenced, RuntimeFault, Unanswered
from .kafka_settings import ClientSettings
from .ports import End, Polled, Position, Spot, Trouble
from .processor import Headers, Record

log = logging.getLogger(__name__)

GROUP_FENCE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)


def _topic_partitions(
    spots: Iterable[Spot], prefix: str, offset: int | None = None
) -> list[TopicPartition]:
    if offset is None:
        return [TopicPartition(prefix + s.topic, s.partition) for s in spots]
    return [TopicPartition(prefix + s.topic, s.partition, offset) for s in spots]


def as_offsets(positions: Mapping[Spot, Position], prefix: str) -> list[TopicPartition]:
    return [
        TopicPartition(prefix + s.topic, s.partition, p.offset, p.metadata)
        for s, p in positions.items()
    ]


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

    def take(
        self,
        consumer: Any,
        limit: int,
        timeout: float,
        stale: Callable[[Spot], bool] = lambda spot: False,
    ) -> list[Polled]:
        """``stale``: whether a position 0 that is outside the log is not the one asked for."""
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
                if lost and not message.offset() and stale(Spot(self.name(topic), partition)):
                    continue
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
        self._held: set[Spot] = set()  # assigned and not started
        self._fresh: dict[Spot, int] = {}  # started, and nothing has come of it yet

    def subscribe(self, topics: Sequence[str], listener: ports.Listener) -> None:
        def on_assign(_: Any, partitions: list[Any]) -> None:
            # Offset 0 only stands for one: the partition is paused at once, and its owner starts it
            # at the restored position. A logical offset would be a question to the broker whose
            # late answer overrides that position: records would be skipped (measured).
            targets = [TopicPartition(p.topic, p.partition, 0) for p in partitions]
            if self._eager:
                self._consumer.assign(targets)
            else:
                self._consumer.incremental_assign(targets)
            self._consumer.pause(targets)
            self._held.update(self._inbound.spots(partitions))
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
        for spot in self._inbound.spots(partitions):
            self._held.discard(spot)
            self._fresh.pop(spot, None)
        if self._eager:
            self._consumer.unassign()
        else:
            self._consumer.incremental_unassign(partitions)

    def _reraise(self) -> None:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        polled = self._inbound.take(self._consumer, limit, timeout, self._stale)
        self._reraise()
        if self._fresh:
            for item in polled:
                self._fresh.pop(Spot(item.topic, item.partition), None)
        return polled

    def _stale(self, spot: Spot) -> bool:
        """A fetch of the offset that only stood for one met a log whose start is above it."""
        if spot in self._held:
            return True
        at = self._fresh.get(spot, 0)
        if at == 0:
            return False
        try:
            self._start_anew(TopicPartition(self._prefix + spot.topic, spot.partition, at), None)
        except Unanswered:
            return False
        return True

    def pause(self, spots: Sequence[Spot]) -> None:
        self._consumer.pause(_topic_partitions(spots, self._prefix))

    def resume(self, spots: Sequence[Spot]) -> None:
        self._consumer.resume(_topic_partitions(spots, self._prefix))

    def start(self, positions: Mapping[Spot, int]) -> None:
        targets = [
            TopicPartition(self._prefix + s.topic, s.partition, o) for s, o in positions.items()
        ]
        # Resume first: a seek of a paused partition may be overtaken by the resume. What is fetched
        # between the two is dropped by the client, being older than the seek (measured).
        self._consumer.resume(targets)
        self._held.difference_update(positions)
        self._fresh.update(positions)
        for target in targets:
            try:
                self._consumer.seek(target)
            except KafkaException as e:
                self._start_anew(target, e)

    def _start_anew(self, target: TopicPartition, error: KafkaException | None) -> None:
        """A partition whose position has left the log is stopped inside the client: no seek."""
        if self._eager:  # its assignment can't be changed in part
            reason = "outside the log" if error is None else error.args[0].str()
            raise Unanswered(f"seek: {reason}") from error
        try:
            self._consumer.incremental_unassign([target])
            self._consumer.incremental_assign([target])
            self._consumer.resume([target])
        except KafkaException as e:
            raise Unanswered(f"seek: {e.args[0].str()}") from e

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        offsets = as_offsets(positions, self._prefix)
        try:
            for answer in self._consumer.commit(offsets=offsets, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as e:
            error = e.args[0]
            if error.code() in GROUP_FENCE:
                raise GroupFenced(error.str()) from e
            raise Unanswered(error.str()) from e

    def membership(self) -> object:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()
        self._reraise()


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
