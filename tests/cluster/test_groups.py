"""How soon a dead member is replaced: what the broker is told, and what then happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer
from perdure.schemas import topics as table
from perdure.streams.cluster.groups import failover, judge, set_group_timeouts
from perdure.streams.cluster.topics import ensure_topics

from tests.cluster.waiting import until

MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "group.protocol": "consumer", "log_level": 0})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@pytest.mark.kafka
def test_a_killed_members_partitions_move_after_the_groups_own_timeout(
    broker: str, prefix: str
) -> None:
    ensure_topics(broker, prefix, 2)
    group, topic = table.group_id(prefix, "engine"), prefix + table.TASKS
    (in_force,) = set_group_timeouts(broker, [group], session_ms=3000)
    assert (in_force.session_ms, in_force.heartbeat_ms, in_force.problem) == (3000, 1000, "")

    command = [sys.executable, "-c", MEMBER, broker, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        try:
            assert any(line == "2\n" for line in victim.stdout)  # it has both partitions
        finally:
            os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        heir = Consumer(
            {"bootstrap.servers": broker, "group.id": group, "group.protocol": "consumer"}
        )
        heir.subscribe([topic])
        until(lambda: heir.poll(0.05) or len(heir.assignment()) == 2, "both partitions taken over")
        took = time.monotonic() - killed
        heir.close()
    assert took < 15  # 45 s by default


@pytest.mark.kafka
def test_a_timeout_below_the_brokers_least_is_raised_to_it_and_told(
    broker: str, prefix: str
) -> None:
    (found,) = set_group_timeouts(broker, [prefix + "g"], session_ms=1000)
    assert found.session_ms == 3000
    assert "group.consumer.min.session.timeout.ms=1000" in found.problem


@pytest.mark.kafka
def test_the_embedded_broker_allows_the_failover_we_promise(broker: str) -> None:
    found = failover(broker)
    assert (found.protocol, found.transaction_seconds) == ("consumer", 1)
    assert found.session_seconds <= 5
    assert found.text == "the partitions of a killed process are taken over after about 5 s"


def test_a_cluster_left_at_kafkas_defaults_is_told_what_to_set() -> None:
    found = judge(
        {
            "group.coordinator.rebalance.protocols": "classic,consumer,streams",
            "group.consumer.min.session.timeout.ms": "45000",
        }
    )
    assert found.session_seconds == 45
    assert "group.consumer.min.session.timeout.ms=5000" in found.text


def test_an_old_cluster_is_served_by_the_classic_protocol() -> None:
    found = judge({"group.min.session.timeout.ms": "6000"})
    assert (found.protocol, found.session_seconds) == ("classic", 6)
    assert "Kafka 4.0" in found.text
