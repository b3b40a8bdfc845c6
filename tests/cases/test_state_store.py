"""Cases of the kind "state store" on a real broker: D01c and D05 (D06: test_state_growth)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.kafka.counting import CHANGELOG, LEFT, LETTERS, OUT, RIGHT, Counting
from tests.kafka.driven import Driven
from tests.kafka.world import World, until

from . import inputs
from .deployment import Deployment
from .model_server import ModelServer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


# --- D01c: the tail is compacted away -------------------------------------------------------------


@pytest.fixture
def quick_cleaner(broker: str, prefix: str) -> Iterator[World]:
    """The broker's log cleaner looks every 0.1 s instead of every 15 s; changelogs roll at once."""
    world = World(broker, prefix)
    world.create(LEFT, RIGHT, OUT)
    world.create(
        CHANGELOG,
        cleanup_policy="compact",
        segment_ms="50",
        min_cleanable_dirty_ratio="0.0",
        delete_retention_ms="0",
        max_compaction_lag_ms="1",
    )
    world.create(LETTERS, partitions=1)
    cleaner(world, AlterConfigOpType.SET)
    yield world
    cleaner(world, AlterConfigOpType.DELETE)


def cleaner(world: World, operation: AlterConfigOpType) -> None:
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
    (broker,) = world.admin.list_topics(timeout=10).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    for future in world.admin.incremental_alter_configs([resource]).values():
        future.result(10)


def worked(world: World, driven: Driven, records: int) -> None:
    """So many cycles, each a transaction of its own in a segment of its own."""
    done = driven.health.records
    for number in range(1, records + 1):
        world.put(LEFT, b"v", b"k", 0)
        world.flush()
        driven.worked_off(done + number)


def roll(world: World) -> None:
    """An aborted batch in a new segment: what is before it may be cleaned, its end is no record."""
    foreign = Producer(
        {"bootstrap.servers": world.bootstrap, "transactional.id": world.prefix + "foreign"}
    )
    foreign.init_transactions(10)
    foreign.begin_transaction()
    foreign.produce(world.prefix + CHANGELOG, b"999", b"n/k", 0)
    foreign.flush()
    foreign.abort_transaction(10)


def left(world: World) -> list[bytes]:
    """Keys of partition 0 that the cleaner has left, but for the aborted ones."""
    return [m.key() for m in world.read(CHANGELOG, 1)]


@pytest.mark.parametrize("tail", ["overwritten", "deleted"])
def test_d01_a_changelog_whose_tail_is_compacted_away_is_restored_to_its_end(
    quick_cleaner: World, tmp_path: Path, tail: str
) -> None:
    world = quick_cleaner
    first = Driven(world, Counting(), tmp_path).live()
    worked(world, first, 5)
    first.stop()
    expected, keys = 5, set(left(world))
    assert b"n/k" in keys
    if tail == "deleted":
        world.put(CHANGELOG, None, b"n/k", 0)
        world.flush()
        expected, keys = 0, keys - {b"n/k"}

    def cleaned() -> bool:
        roll(world)
        return sorted(left(world)) == sorted(keys)

    until(cleaned, f"cleaned down to {keys}", 60)
    end = world.ends(CHANGELOG, 1)[0]
    offsets = [m.offset() for m in world.read(CHANGELOG, 1)]
    assert max(offsets, default=0) < end - 1
    first.stores.wipe(0)
    second = Driven(world, Counting(), tmp_path).live()  # or not within 20 s
    worked(world, second, 1)
    assert json.loads(world.read(OUT)[-1].value())["n"] == expected + 1
    second.stop()


# --- D05: other partition counts ------------------------------------------------------------------


class Alone:
    """An engine and nothing else: its catalog is written by the test, its questions are read."""

    def __init__(self, deployment: Deployment, world: World) -> None:
        self._deployment = deployment
        self.world = world
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "perdure", "engine", "--log-level", "INFO"]
        with (self._deployment.directory / "engine.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, *self._deployment.where], stderr=log, stdout=log, text=True
            )
        return self._process

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(30) == 0

    def refused(self) -> str:
        """It must end by itself; what it said."""
        process = self.start()
        assert process.wait(60) != 0
        return self.log()

    def log(self) -> str:
        return (self._deployment.directory / "engine.log").read_text()

    def catalog(self, *tools: dict[str, Any]) -> None:
        specs = [{"effect": "external", "approval": "never", **tool} for tool in tools]
        self._put("agent.catalog", {f"tool/{spec['name']}": spec for spec in specs})
        agent = {"name": "demo", "tools": [spec["name"] for spec in specs]}
        self._put("agent.catalog", {"agent/demo": agent})

    def task(self, task: dict[str, Any], tool: str) -> str:
        plan = [{"id": "a", "tool": tool}]
        self._put("agent.tasks", {task["task_id"]: {**task, "plan": plan}})
        return str(task["task_id"])

    def _put(self, topic: str, values: dict[str, Any]) -> None:
        for key, value in values.items():
            self.world.put(topic, json.dumps(value).encode(), key.encode())
        self.world.flush()

    def question(self, run_id: str) -> Any:
        def found() -> Any:
            for message in self.world.read("agent.approvals.pending", 1):
                if message.key().decode().startswith(run_id + "/"):
                    return json.loads(message.value())
            return None

        return until(found, f"a question of {run_id}; log:\n{self.log()[-2000:]}", 30)


@pytest.fixture
def alone(broker: str, prefix: str, tmp_path: Path) -> Iterator[Alone]:
    deployment = Deployment(tmp_path, broker, prefix, ModelServer())
    deployment.create_topics()
    made = Alone(deployment, World(broker, prefix))
    yield made
    made.stop()


def grow(world: World, count: int, *topics: str) -> None:
    wanted = [NewPartitions(world.prefix + topic, count) for topic in topics]
    for future in world.admin.create_partitions(wanted).values():
        future.result(10)


def test_d05_an_engine_refuses_partition_counts_that_differ_and_says_which(alone: Alone) -> None:
    alone.catalog({"name": "pay", "approval": "always"}, {"name": "odd", "queue": "odd"})
    odd = alone.world.prefix + "agent.commands.odd"
    alone.world.admin.create_topics([NewTopic(odd, 1, 1)])[odd].result(10)  # as auto-created
    alone.start()
    (task,) = inputs.produced("D05.1")
    run_id = alone.task(task, "pay")
    question = alone.question(run_id)

    # a queue with another count is never sent to
    other = alone.question(alone.task({**task, "task_id": "d05-odd"}, "odd"))
    assert other["kind"] == "handover"
    assert "agent.commands.odd has 1 partitions and agent.tasks 2" in json.dumps(other)
    assert alone.world.read("agent.commands.odd", 1) == []
    alone.stop()

    # one input grown: refused, named, with a way out
    grow(alone.world, 4, "agent.tasks")
    said = alone.refused()
    assert "agent.tasks has 4" in said
    assert "agent.results has 2" in said
    assert "topic_prefix" in said

    # all of them grown: the state was made with two
    rest = ["results", "approvals", "control", "forwarded", "engine.changelog"]
    grow(alone.world, 4, *(f"agent.{name}" for name in rest))
    said = alone.refused()
    assert "4 partitions; this deployment's state was made with 2" in said

    # and the run is as it was
    assert alone.question(run_id) == question
    assert alone.world.read("agent.outcomes", 2) == []
