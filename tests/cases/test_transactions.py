"""Cases of the kind "transactions/rebalance/fencing": T04, T06, T07 (T01, T02, T03: tests/chaos)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from perdure.streams.runtime.errors import RuntimeFault, StoreFailed
from perdure.streams.runtime.ports import Spot

from tests.kafka.counting import CHANGELOG, LEFT, LETTERS, OUT, RIGHT, Counting
from tests.kafka.driven import Driven
from tests.kafka.world import World, check_sequences, until

from . import inputs
from .deployment import Deployment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def world(broker: str, prefix: str) -> World:
    world = World(broker, prefix)
    world.create(LEFT, RIGHT, OUT)
    world.create(CHANGELOG, cleanup_policy="compact,delete")
    world.create(LETTERS, partitions=1)
    return world


def put(world: World, n: int, partition: int = 0) -> None:
    for _ in range(n):
        world.put(LEFT, b"v", b"k%d" % partition, partition)
    world.flush()


def committed(world: World, group: str) -> dict[tuple[str, int], int]:
    """The group's offsets, once no transaction is still about to change them."""

    def stable() -> dict[tuple[str, int], int] | None:
        request = [ConsumerGroupTopicPartitions(group)]
        asked = world.admin.list_consumer_group_offsets(request, require_stable=True)
        spots = asked[group].result(10).topic_partitions
        if any(spot.offset < 0 for spot in spots):
            return None
        return {(spot.topic, spot.partition): spot.offset for spot in spots}

    found: dict[tuple[str, int], int] = until(stable, "stable offsets")
    return found


# --- T04: no state, no work -----------------------------------------------------------------------


def stopped_by(driven: Driven) -> str:
    """Why it went no further: the fault that ended it, or what its partition 0 says."""
    try:
        driven.until(lambda: driven.health.stopped, "partition 0 stops")
    except RuntimeFault as fault:
        return str(fault)
    return driven.health.stopped[0]


def a_file(path: Path) -> None:
    path.write_text("not a store")


def nowhere(path: Path) -> None:
    path.symlink_to("/proc/self/nowhere")


@pytest.mark.parametrize("damage", [a_file, nowhere])
def test_t04_a_store_that_cannot_be_opened_stops_loudly_and_moves_no_offset(
    world: World, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 5)
    first.worked_off(5).stop()
    group = first.settings.group("counting")
    before = committed(world, group)
    path = first.settings.directory("counting") / "p0"
    first.stores.wipe(0)
    damage(path)
    put(world, 3)
    second = Driven(world, Counting(), tmp_path)
    assert "p0" in stopped_by(second)
    second.vanish()
    assert committed(world, group) == before
    assert second.health.records == 0
    path.unlink()
    third = Driven(world, Counting(), tmp_path).live().worked_off(3)
    check_sequences(world.read(OUT), {f"left-0-{m.offset()}" for m in world.read(LEFT)})
    third.stop()


def test_t04_a_store_that_fails_in_mid_restore_stops_loudly_too(
    world: World, tmp_path: Path
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 5)
    first.worked_off(5).stop()
    before = committed(world, first.settings.group("counting"))
    first.stores.wipe(0)
    second = Driven(world, Counting(), tmp_path)
    opened = second.stores.open

    def broken(partition: int) -> Any:
        store = opened(partition)
        if partition == 0:

            def write(changes: Any, meta: Any) -> None:
                raise StoreFailed("the store at p0 can't be written: no space left")

            store.write = write  # type: ignore[method-assign]
        return store

    second.stores.open = broken  # type: ignore[method-assign]
    put(world, 3)
    with pytest.raises(StoreFailed, match="p0"):
        second.until(lambda: False, "it stops")
    second.vanish()
    assert committed(world, first.settings.group("counting")) == before
    assert len(world.read(OUT)) == 5


@pytest.mark.parametrize("told", ["revoked", "lost"])
def test_t04_a_list_that_names_what_is_not_held_changes_nothing(
    world: World, tmp_path: Path, told: str
) -> None:
    driven = Driven(world, Counting(), tmp_path).live()
    odd = [Spot(LEFT, 7), Spot("nothing", 0), Spot(OUT, 1), Spot(CHANGELOG, 0)]
    getattr(driven.cycle._members, told)(odd)
    getattr(driven.cycle._members, told)([])
    driven.step()
    assert driven.health.live == (0, 1)
    put(world, 2)
    put(world, 2, 1)
    driven.worked_off(4)
    check_sequences(
        world.read(OUT), {f"left-{m.partition()}-{m.offset()}" for m in world.read(LEFT)}
    )
    driven.stop()


# --- T06: offsets that are no more ----------------------------------------------------------------


def test_t06_tasks_sent_before_the_first_start_are_taken(deployment: Deployment) -> None:
    for task in inputs.produced("T06.2"):
        assert deployment.outcome(task["task_id"])["status"] == "done"


# --- T07: somebody else's open transaction --------------------------------------------------------


def test_t07_a_foreign_open_transaction_is_named_and_holds_its_partition_only(
    deployment: Deployment,
) -> None:
    foreign = Producer(
        {
            "bootstrap.servers": deployment.bootstrap,
            "transactional.id": f"{deployment.prefix}foreign",
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    foreign.init_transactions(10)
    foreign.begin_transaction()
    hidden = {"agent": "demo", "task_id": "t07-hidden", "input": "x"}
    foreign.produce(deployment.prefix + "agent.tasks", json.dumps(hidden).encode(), partition=0)
    assert foreign.flush(10) == 0
    (task,) = inputs.produced("T07.1")
    deployment.put("agent.tasks", 0, **task)
    deployment.put("agent.tasks", 1, agent="demo", task_id="t07-other", input="x")
    assert deployment.outcome("t07-other")["status"] == "done"
    found = findings(deployment)
    (held,) = found["transactions"]
    assert held["level"] == "warn"
    assert f"{deployment.prefix}agent.tasks-0 is held by a transaction" in held["text"]
    assert "agent.tasks-0" in found["engine lag"][0]["text"]
    (worker,) = found["worker.tools"]  # its topic ends in markers, which are no work
    assert "nothing unread" in worker["text"]
    assert not deployment.topics.on("agent.outcomes", lambda seen: seen.key == task["task_id"])
    foreign.abort_transaction(10)
    assert deployment.outcome(task["task_id"])["status"] == "done"
    assert not deployment.topics.on("agent.events", lambda seen: seen.key == "t07-hidden")


def findings(deployment: Deployment) -> dict[str, list[dict[str, str]]]:
    """What `perdure doctor` finds, by name."""
    made: dict[str, list[dict[str, str]]] = {}
    for line in deployment.cli("doctor", "--json").stdout.splitlines():
        finding = json.loads(line)
        made.setdefault(finding["name"], []).append(finding)
    return made
