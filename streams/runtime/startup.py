"""What must be true before the first poll: topics that fit, the group's timeouts, the identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import Aborted, KafkaUnreachable, OutcomeUnknown, TopicMismatch
from .ports import Admin, GroupConsumer, Kafka, TransactionalProducer
from .processor import Processor
from .settings import RuntimeSettings


@dataclass(frozen=True, slots=True)
class Started:
    producer: TransactionalProducer
    consumer: GroupConsumer
    partitions: int
    global_counts: Mapping[str, int]


def start(processor: Processor, settings: RuntimeSettings, kafka: Kafka, admin: Admin) -> Started:
    """Raises `KafkaUnreachable`, `TopicMismatch`, `ProducerFenced`."""
    partitions, global_counts = check_topics(processor, settings, admin)
    group = settings.group(processor.name)
    owner = settings.transactional_id(processor.name)
    if settings.group_protocol == "consumer":
        admin.set_group_timeouts(group, settings.session_timeout_ms, settings.heartbeat_ms)
    producer = kafka.transactional_producer(owner)
    try:
        producer.start()
    except (Aborted, OutcomeUnknown) as e:
        raise KafkaUnreachable(f"Kafka does not give out transactional ids: {e}") from e
    return Started(producer, kafka.group_consumer(group, owner), partitions, global_counts)


def check_topics(
    processor: Processor, settings: RuntimeSettings, admin: Admin
) -> tuple[int, Mapping[str, int]]:
    """Inputs and changelog must have one partition count: a key's state lies where its records do."""
    joined = (*processor.sources, processor.changelog)
    counts = admin.partition_counts((*joined, *processor.global_topics))
    missing = [t for t in (*joined, *processor.global_topics) if t not in counts]
    if missing:
        names = ", ".join(settings.topic_prefix + t for t in missing)
        raise TopicMismatch(f"no such topic: {names}; run `perdure topics create`")
    if len({counts[t] for t in joined}) > 1:
        have = ", ".join(f"{t} has {counts[t]}" for t in joined)
        raise TopicMismatch(
            f"partition counts differ: {have}; they must be equal. Partitions are fixed for the life of a "
            "topic_prefix: run `perdure topics check`, or start a new topic_prefix"
        )
    return counts[processor.sources[0]], {t: counts[t] for t in processor.global_topics}
