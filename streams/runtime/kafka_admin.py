"""The admin port over confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from .errors import KafkaUnreachable, Unanswered
from .kafka_settings import ClientSettings
from .ports import Position, Spot

log = logging.getLogger(__name__)

T = TypeVar("T")
_TIMEOUT = 5.0
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


class _Joined(Generic[T]):
    """Several futures as one `Answer`."""

    def __init__(self, futures: Sequence[Future[Any]], make: Callable[[list[Any]], T]) -> None:
        self._futures = futures
        self._make = make

    def done(self) -> bool:
        return all(f.done() for f in self._futures)

    def result(self) -> T:
        try:
            return self._make([f.result(_TIMEOUT * 2) for f in self._futures])
        except KafkaException as e:
            raise Unanswered(e.args[0].str()) from e
        except TimeoutError as e:
            raise Unanswered("Kafka has not answered") from e


class _Failed:
    """A question that could not even be asked."""

    def __init__(self, error: KafkaException) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        raise Unanswered(self._error.args[0].str())


class ConfluentAdmin:
    def __init__(self, settings: ClientSettings, connect_timeout: float) -> None:
        self._prefix = settings.prefix
        self._connect_timeout = connect_timeout
        self._config = settings.admin()
        self._client = AdminClient(self._config)

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        try:
            known = self._client.list_topics(timeout=self._connect_timeout).topics
        except KafkaException as e:
            raise KafkaUnreachable(
                f"Kafka at {self._config['bootstrap.servers']} does not answer ({e.args[0].str()}); "
                "is it running, and is bootstrap_servers right?"
            ) from e
        found = {t: known[self._prefix + t] for t in topics if self._prefix + t in known}
        return {t: len(m.partitions) for t, m in found.items() if m.error is None}

    def set_group_timeouts(self, group: str, session_ms: int, heartbeat_ms: int) -> None:
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in (
                ("consumer.session.timeout.ms", session_ms),
                ("consumer.heartbeat.interval.ms", heartbeat_ms),
            )
        ]
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
        try:
            for future in self._client.incremental_alter_configs(
                [resource], request_timeout=_TIMEOUT
            ).values():
                future.result(_TIMEOUT * 2)
        except (KafkaException, TimeoutError) as e:
            log.warning(
                "group %s keeps the broker's session timeout (%s): a killed member is noticed later",
                group,
                e,
            )

    def committed(self, group: str, spots: Sequence[Spot], stable: bool) -> Any:
        asked = [TopicPartition(self._prefix + s.topic, s.partition) for s in spots]

        def make(results: list[Any]) -> Mapping[Spot, Position]:
            found = {}
            for p in results[0].topic_partitions:
                if p.error is not None:
                    raise Unanswered(p.error.str())
                if p.offset >= 0:
                    spot = Spot(p.topic[len(self._prefix) :], p.partition)
                    found[spot] = Position(p.offset, p.metadata or "")
            return found

        def ask() -> Any:
            request = [ConsumerGroupTopicPartitions(group, asked)]
            futures = self._client.list_consumer_group_offsets(
                request, require_stable=stable, request_timeout=_TIMEOUT
            )
            return _Joined(list(futures.values()), make)

        return _asked(ask)

    def ends(self, spots: Sequence[Spot]) -> Any:
        return self._offsets(spots, _LATEST)

    def starts(self, spots: Sequence[Spot]) -> Any:
        return self._offsets(spots, _EARLIEST)

    def _offsets(self, spots: Sequence[Spot], spec: Any) -> Any:
        asked = {TopicPartition(self._prefix + s.topic, s.partition): spec for s in spots}

        def ask() -> Any:
            futures = self._client.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_TIMEOUT
            )
            order = [Spot(p.topic[len(self._prefix) :], p.partition) for p in futures]
            return _Joined(
                list(futures.values()),
                lambda r: {s: x.offset for s, x in zip(order, r, strict=True)},
            )

        return _asked(ask)

    def topic_ids(self, topics: Sequence[str]) -> Any:
        def ask() -> Any:
            names = TopicCollection([self._prefix + t for t in topics])
            futures = self._client.describe_topics(names, request_timeout=_TIMEOUT)
            order = [name[len(self._prefix) :] for name in futures]
            return _Joined(
                list(futures.values()),
                lambda r: {t: str(d.topic_id) for t, d in zip(order, r, strict=True)},
            )

        return _asked(ask)

    def close(self) -> None:
        """The client ends with its last reference."""


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except KafkaException as e:
        return _Failed(e)
