"""How far the processors of a deployment are behind, as the page's health has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.ports import Position
from perdure.streams.views.ports import Unavailable

from perdure.cli.view_watch import KafkaWatch, queues_of
from tests.cli.test_metrics import RESULTS, TASKS, Kafka


class Deployment(Kafka):
    """A topic of tasks and one of results, a partition each."""

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        return {topic: 1 for topic in topics if topic == TASKS.topic}


def watch(kafka: Deployment) -> KafkaWatch:
    return KafkaWatch(kafka, "perdure.{}".format, lambda: 3, now_ms=lambda: 12_007)  # type: ignore[arg-type]


def test_what_waits_and_how_long_the_oldest_task_has_waited() -> None:
    kafka = Deployment()
    seen = watch(kafka)
    found = seen.look()
    assert found["lag"][TASKS.topic] == 3
    assert found["lag"][RESULTS.topic] == 0
    assert found["processors"]["engine"]["started"] is True
    assert found["processors"]["worker.tools"] == {"behind": 0, "started": False}
    assert found["oldest_task_age_seconds"] == 7.0
    assert found["dead_letters"] == 3
    kafka.committed_offsets = {TASKS: Position(10), RESULTS: Position(10)}
    assert seen.look()["oldest_task_age_seconds"] == 0.0


def test_a_queue_of_the_users_own_is_seen_as_soon_as_it_is_there() -> None:
    names = ["p.agent.tasks", "p.agent.commands.tools", "agent.commands.other"]
    seen = KafkaWatch(Deployment(), "perdure.{}".format, lambda: 0, lambda: queues_of(names, "p."))  # type: ignore[arg-type]
    assert "worker.gpu" not in seen.look()["processors"]
    names.append("p.agent.commands.gpu")
    assert set(seen.look()["processors"]) == {
        "engine", "views", "worker.tools", "worker.models", "worker.gpu",
    }  # fmt: skip


def test_an_age_that_cannot_be_read_is_not_made_up() -> None:
    kafka = Deployment()
    kafka.records, kafka.end = False, 8  # an open transaction holds the rest
    assert watch(kafka).look()["oldest_task_age_seconds"] is None


def test_kafka_that_does_not_answer_is_said() -> None:
    kafka = Deployment()
    kafka.committed_offsets = Unanswered("nobody there")
    with pytest.raises(Unavailable, match="does not say how far"):
        watch(kafka).look()
