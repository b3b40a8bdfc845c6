"""The admin client and its errors, as one message each.

Connection settings are what the Kafka clients take: a plain address or their whole
configuration (security included), passed on as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from perdure.streams.cluster.errors import Refused, Unreachable

Connection = str | Mapping[str, Any]
SPREAD_SECONDS = 5

_COORDINATOR_COMES = {  # a broker that has just started, or a group's log that is being loaded
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_NO_ANSWER = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.REQUEST_TIMED_OUT,
}


class Admin:
    """Blocking calls with one deadline; raises `Unreachable` or `Refused`."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        conf = dict(connection) if isinstance(connection, Mapping) else {}
        if isinstance(connection, str):
            conf["bootstrap.servers"] = connection
        self.bootstrap = str(conf["bootstrap.servers"])
        self.timeout = timeout
        self._last_error = ""
        # The client reports a lost connection here and, unasked, on stderr.
        settings: dict[str, Any] = {"error_cb": self._remember, "log_level": 0}
        self._client = AdminClient(_admin_settings(conf) | settings)

    def _remember(self, error: KafkaError) -> None:
        self._last_error = str(error.str())

    def metadata(self) -> ClusterMetadata:
        with self._told("read the cluster's metadata"):
            return self._client.list_topics(timeout=self.timeout)

    def create(self, topics: Sequence[NewTopic]) -> list[str]:
        """Creates what is not there; returns the names that this call created."""
        created = []
        futures = self._client.create_topics(list(topics), request_timeout=self.timeout)
        for name, future in futures.items():
            with self._told(f"create the topic {name}"):
                try:
                    future.result()
                    created.append(name)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        self._await_leaders({topic.topic for topic in topics})
        return created

    def _await_leaders(self, names: set[str]) -> None:
        """The controller knows a topic before the brokers do; a producer would stumble."""
        deadline = time.monotonic() + self.timeout
        while True:
            known = self.metadata().topics
            led = {
                name
                for name in names & known.keys()
                if all(part.leader >= 0 for part in known[name].partitions.values())
                and known[name].partitions
            }
            if led == names:
                return
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"created, but without a leader after {self.timeout:.0f} s: "
                    f"{', '.join(sorted(names - led))}; are enough brokers up?"
                )
            time.sleep(0.05)

    def configs(self, kind: ResourceType, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """The effective settings of each; brokers are asked one by one, as Kafka wants it."""
        found: dict[str, dict[str, str]] = {}
        batches = [[name] for name in names] if kind is ResourceType.BROKER else [list(names)]
        for batch in filter(None, batches):
            resources = [ConfigResource(kind, name) for name in batch]
            futures = self._client.describe_configs(resources, request_timeout=self.timeout)
            for resource, future in futures.items():
                with self._told(f"read the settings of {resource.name}"):
                    found[resource.name] = {
                        name: str(entry.value)
                        for name, entry in future.result().items()
                        if entry.value is not None
                    }
        return found

    def set_configs(self, kind: ResourceType, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Sets these and leaves all others as they are; returns when the brokers know them."""
        resources = [
            ConfigResource(
                kind,
                name,
                incremental_configs=[
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in entries.items()
                ],
            )
            for name, entries in settings.items()
        ]
        if not resources:
            return
        futures: dict[ConfigResource, Future[Any]] = self._client.incremental_alter_configs(
            resources, request_timeout=self.timeout
        )
        for resource, future in futures.items():
            with self._told(f"change the settings of {resource.name}"):
                future.result()
        deadline = time.monotonic() + SPREAD_SECONDS
        while time.monotonic() < deadline:  # the controller knows them a moment sooner
            found = self.configs(kind, list(settings))
            if all(entries.items() <= found[name].items() for name, entries in settings.items()):
                return
            time.sleep(0.02)

    def members(self, group: str) -> int:
        """How many processes are in a group now; 0 for one that is not known."""
        deadline = time.monotonic() + self.timeout
        while True:
            future = self._client.describe_consumer_groups([group], request_timeout=self.timeout)
            with self._told(f"look at the group {group}"):
                try:
                    return len(future[group].result().members)
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == KafkaError.GROUP_ID_NOT_FOUND:
                        return 0
                    if code not in _COORDINATOR_COMES or time.monotonic() > deadline:
                        raise
            time.sleep(0.2)

    def committed(self, group: str, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets; those it has none of are left out."""
        request = ConsumerGroupTopicPartitions(group, list(spots))
        with self._told(f"read the offsets of the group {group}"):
            future = self._client.list_consumer_group_offsets(
                [request], request_timeout=self.timeout
            )[group]
            return [s for s in future.result().topic_partitions if s.offset >= 0]

    def starts(self, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where the logs begin."""
        return self._offsets(spots, OffsetSpec.earliest())

    def ends(self, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where the logs end."""
        return self._offsets(spots, OffsetSpec.latest())

    def at_time(self, spots: Sequence[TopicPartition], since: int) -> list[TopicPartition]:
        """Of the first records at or after ``since`` (ms); the end where there is none."""
        found = self._offsets(spots, OffsetSpec.for_timestamp(since))
        late = [TopicPartition(s.topic, s.partition) for s in found if s.offset < 0]
        return [s for s in found if s.offset >= 0] + self._offsets(late, OffsetSpec.latest())

    def _offsets(self, spots: Sequence[TopicPartition], which: OffsetSpec) -> list[TopicPartition]:
        if not spots:
            return []
        futures = self._client.list_offsets(
            dict.fromkeys(spots, which), request_timeout=self.timeout
        )
        found = []
        for spot, future in futures.items():
            with self._told(f"find an offset of {spot.topic}-{spot.partition}"):
                found.append(TopicPartition(spot.topic, spot.partition, future.result().offset))
        return found

    def set_offsets(self, group: str, spots: Sequence[TopicPartition]) -> None:
        """Commit offsets, without a note, for a group that nobody is in."""
        if not spots:
            return
        request = ConsumerGroupTopicPartitions(group, list(spots))
        with self._told(f"set offsets of the group {group}"):
            future = self._client.alter_consumer_group_offsets(
                [request], request_timeout=self.timeout
            )[group]
            for spot in future.result().topic_partitions:
                if spot.error is not None:
                    raise KafkaException(spot.error)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if failure.code() in _NO_ANSWER:
                self._client.poll(0)  # serves error_cb, whose text names the cause
                cause = self._last_error or failure.str()
                raise Unreachable(
                    f"no Kafka answers at {self.bootstrap}: {cause}. Is it running, and is the "
                    "address right? (--bootstrap-servers, PERDURE_BOOTSTRAP_SERVERS; security "
                    "settings go under `kafka.`)"
                ) from error
            raise Refused(
                f"Kafka at {self.bootstrap} refused to {what}: {failure.str()}"
                f"{_ADVICE.get(failure.code(), '')}"
            ) from error


_RIGHTS = "; `perdure topics acls` lists the rights each role needs"
_ADVICE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.INVALID_REPLICATION_FACTOR: "; the cluster has too few brokers for this replication",
}

_CLIENT_ONLY = ("transactional.", "group.", "enable.", "auto.", "isolation.", "linger.", "acks")


def _admin_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """What concerns only producers or consumers makes the admin client print warnings."""
    return {name: value for name, value in conf.items() if not name.startswith(_CLIENT_ONLY)}
