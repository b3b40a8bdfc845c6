"""Topics on a real broker: made once by many, judged against the contract, mended where that is safe."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType
from perdure.schemas import topics as table
from perdure.streams.cluster.admin import Admin
from perdure.streams.cluster.errors import Refused, Unreachable
from perdure.streams.cluster.topics import (
    CLUSTER,
    Ensured,
    Problem,
    check_topics,
    ensure_topics,
    fix_topics,
)


def create(broker: str, name: str, partitions: int, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    new = NewTopic(name, partitions, 1, config=config)
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.create_topics([new]).values():
        future.result(20)
    end = time.monotonic() + 10  # the controller has it; the broker hears of it a moment later
    while name not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < end, f"{name} was created and is not there"
        threading.Event().wait(0.01)


def about(problems: list[Problem], topic: str) -> list[Problem]:
    return [problem for problem in problems if problem.topic == topic]


@pytest.mark.kafka
def test_topics_are_made_with_the_contracts_settings_by_several_at_once(
    broker: str, prefix: str
) -> None:
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: ensure_topics(broker, prefix, 2), range(3)))
    assert all(one.partitions == 2 for one in made)
    wanted = table.all_topics()
    assert sorted(name for one in made for name in one.created) == sorted(
        prefix + topic.name for topic in wanted
    )
    settings = Admin(broker).configs(ResourceType.TOPIC, [prefix + t.name for t in wanted])
    for topic in wanted:
        found = settings[prefix + topic.name]
        assert topic.config() == {name: found[name] for name in topic.config()}, topic.name
    assert [problem.topic for problem in check_topics(broker, prefix)] == [CLUSTER]


@pytest.mark.kafka
def test_what_comes_later_gets_the_partitions_that_are_in_force(broker: str, prefix: str) -> None:
    ensure_topics(broker, prefix, 2)
    more = ensure_topics(broker, prefix, 6, queues=("gpu",), processors=("worker.gpu",))
    created = (prefix + "agent.commands.gpu", prefix + "agent.worker.gpu.changelog")
    assert more == Ensured(created, partitions=2, replication=1)
    assert about(check_topics(broker, prefix), created[0]) == []


@pytest.mark.kafka
def test_departures_are_told_and_mended_but_for_partition_counts(broker: str, prefix: str) -> None:
    results, events, queue = (
        prefix + name for name in ("agent.results", "agent.events", "agent.commands.gpu")
    )
    create(broker, results, 6)
    create(broker, events, 3, retention_ms="1000", cleanup_policy="compact")
    create(broker, queue, 3, max_message_bytes="2000")
    create(broker, prefix + "agent.tasks", 3, retention_ms="-1", max_message_bytes="9000000")

    problems = check_topics(broker, prefix)
    assert about(problems, prefix + "agent.tasks") == []  # more than the contract asks is no fault
    assert about(problems, prefix + "agent.control") == [
        Problem(
            prefix + "agent.control",
            "error",
            f"{prefix}agent.control is missing: run `perdure topics create`",
            fixable=True,
        )
    ]
    (counts,) = about(problems, results)
    assert (
        f"{prefix}agent.tasks has 3 partitions and {results} 6; they must be equal" in counts.text
    )
    assert (counts.level, counts.fixable) == ("error", False)
    levels = {
        problem.text.split()[2].partition("=")[0]: problem.level
        for problem in about(problems, events)
    }
    assert levels == {"cleanup.policy": "error", "retention.ms": "warning"}
    assert [problem.level for problem in about(problems, queue)] == ["error"]
    errors = [problem.level == "error" for problem in problems]
    assert errors == sorted(errors, reverse=True)

    left = fix_topics(broker, prefix, 12)
    assert [(problem.topic, problem.fixable) for problem in left] == [
        (results, False),
        (CLUSTER, False),
    ]
    assert len(Admin(broker).metadata().topics[prefix + "agent.control"].partitions) == 3


@pytest.mark.kafka
def test_more_copies_than_brokers_are_refused_with_the_reason(broker: str, prefix: str) -> None:
    with pytest.raises(Refused, match="too few brokers") as error:
        ensure_topics(broker, prefix, 1, replication=7)
    assert error.value.exit_code == 1


def test_an_address_where_nothing_listens_is_told_with_its_cause() -> None:
    with pytest.raises(Unreachable, match=r"no Kafka answers at 127\.0\.0\.1:1: ") as error:
        ensure_topics({"bootstrap.servers": "127.0.0.1:1"}, "", 1, timeout=0.2)
    assert error.value.exit_code == 3
