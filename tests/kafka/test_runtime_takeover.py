"""Taking over a partition: from the dead, from the late, from oneself, and onto damaged stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from perdure.streams.runtime.errors import Aborted, TopicMismatch
from perdure.streams.runtime.rocksdb import RocksStores
from perdure.streams.runtime.store import StoreMeta

from tests.kafka.counting import CHANGELOG, LEFT, LETTERS, OUT, RIGHT, Counting
from tests.kafka.driven import Died, Driven
from tests.kafka.world import World, check_sequences, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(broker: str, prefix: str) -> World:
    world = World(broker, prefix)
    world.create(LEFT, RIGHT, OUT)
    world.create(CHANGELOG, cleanup_policy="compact,delete")
    world.create(LETTERS, partitions=1)
    return world


def put(world: World, n: int, topic: str = LEFT, partition: int = 0, key: bytes = b"k") -> None:
    for _ in range(n):
        world.put(topic, b"v", key, partition)
    world.flush()


def inputs(world: World) -> set[str]:
    return {f"{t}-{m.partition()}-{m.offset()}" for t in (LEFT, RIGHT) for m in world.read(t)}


def die(_: object) -> None:
    raise Died


def test_while_the_dead_owners_transaction_is_open(world: World, tmp_path: Path) -> None:
    first = Driven(world, Counting(), tmp_path, "one").live()
    put(world, 10)
    first.worked_off(10)
    put(world, 5)
    put(world, 5, RIGHT)
    first.faults.commit = die
    with pytest.raises(Died):
        first.worked_off(100)
    first.vanish()
    second = Driven(world, Counting(), tmp_path, "two").live()
    second.worked_off(10)
    check_sequences(world.read(OUT), inputs(world))
    assert second.health.records == 10
    second.stop()


def test_while_the_former_owner_commits_late(world: World, tmp_path: Path) -> None:
    first = Driven(world, Counting(), tmp_path, "one").live()
    put(world, 10)
    first.faults.commit = die
    with pytest.raises(Died):
        first.worked_off(100)
    first.vanish()
    second = Driven(world, Counting(), tmp_path, "two", stall_ms=60_000)
    second.until(
        lambda: "unstable" in second.health.restoring.get(0, ""), "waiting for stable offsets"
    )
    first.cycle._producer.commit()
    second.live()
    put(world, 3)
    second.worked_off(3)
    check_sequences(world.read(OUT), inputs(world))
    assert second.health.records == 3  # the ten were committed, if late
    second.stop()


def test_when_the_dead_owner_had_not_come_to_its_offsets(world: World, tmp_path: Path) -> None:
    """Offsets are stable then; it is the changelog that stands still before its end."""
    first = Driven(world, Counting(), tmp_path, "one").live()
    put(world, 10)
    producer = first.cycle._producer
    producer.send_offsets = lambda positions, membership: die(producer._producer.flush())  # type: ignore[method-assign]
    with pytest.raises(Died):
        first.worked_off(100)
    first.vanish()
    second = Driven(world, Counting(), tmp_path, "two").live().worked_off(10)
    check_sequences(world.read(OUT), inputs(world))
    second.stop()


def test_an_aborted_cycle_takes_its_batch_again(world: World, tmp_path: Path) -> None:
    def abort(_: object) -> None:
        raise Aborted("as the test wants it")

    first = Driven(world, Counting(), tmp_path).live()
    put(world, 10)
    first.faults.commit = abort
    first.until(
        lambda: first.health.aborts == 1 and first.health.commits, "aborted, then committed"
    )
    put(world, 5, RIGHT)
    first.worked_off(15)
    check_sequences(world.read(OUT), inputs(world))
    first.stop()


def restored(world: World, tmp_path: Path, expected: int) -> None:
    """Partition 0 comes back in seconds, with the state of the last commit."""
    again = Driven(world, Counting(), tmp_path).live()
    put(world, 1)
    again.worked_off(1)
    assert json.loads(world.read(OUT)[-1].value())["n"] == expected + 1
    again.stop()


@pytest.mark.parametrize("tail", ["commit marker", "aborted batch"])
def test_a_lost_store_is_restored_whatever_the_changelog_ends_with(
    world: World, tmp_path: Path, tail: str
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 7)
    first.worked_off(7).stop()
    if tail == "aborted batch":
        foreign = Producer(
            {"bootstrap.servers": world.bootstrap, "transactional.id": world.prefix + "foreign"}
        )
        foreign.init_transactions(10)
        foreign.begin_transaction()
        for _ in range(5):
            foreign.produce(world.prefix + CHANGELOG, b"999", b"n/k", 0)
        foreign.flush()
        foreign.abort_transaction(10)
    RocksStores(first.settings.directory("counting")).wipe(0)
    restored(world, tmp_path, 7)


def test_state_that_is_lost_is_named_at_once_and_gone_on_without_on_a_persons_word(
    world: World, tmp_path: Path
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 7)
    first.worked_off(7).stop()
    delete_all(world, CHANGELOG)  # empty, with an end offset above 0
    RocksStores(first.settings.directory("counting")).wipe(0)
    second = Driven(world, Counting(), tmp_path)
    second.until(lambda: 0 in second.health.stopped, "stopped", 10)
    assert "holds no state, but the inputs have been read (left up to 7" in second.health.stopped[0]
    assert "--accept-loss counting.changelog-0" in second.health.stopped[0]
    second.until(lambda: second.health.live == (1,), "the other one is live")
    second.stop()
    group = second.settings.group("counting")  # what --accept-loss does
    for topic in Counting.sources:
        at = TopicPartition(world.prefix + topic, 0, 7 if topic == LEFT else 0)
        until(lambda at=at: set_offset(world, group, at), "the group empty")
    restored(world, tmp_path, 0)


def delete_all(world: World, topic: str) -> None:
    end = world.ends(topic, 2)[0]
    target = TopicPartition(world.prefix + topic, 0, end)
    for future in world.admin.delete_records([target]).values():
        future.result(10)


@pytest.mark.parametrize("damage", ["ahead", "dirt", "foreign", "old", "corrupt", "behind"])
def test_a_store_that_is_not_the_changelog_is_dropped(
    world: World, tmp_path: Path, damage: str
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 7)
    first.worked_off(7).stop()
    stores = RocksStores(first.settings.directory("counting"))
    store = stores.open(0)
    meta = store.meta()
    assert meta is not None
    if damage == "ahead":
        store.write({b"n/k": b"99"}, StoreMeta(meta.offset + 1_000, meta.topic_id, meta.written_at))
    elif damage == "dirt":  # an image of the future: another changelog of the same name
        store.write({b"n/k": b"99"}, StoreMeta(meta.offset, "another", meta.written_at))
    elif damage == "foreign":
        store.write({b"n/k": b"99", b"n/x": b"1"}, StoreMeta(0, "", meta.written_at))
    elif damage == "old":
        store.write(
            {b"n/k": b"99"}, StoreMeta(meta.offset, meta.topic_id, meta.written_at - 4 * 86_400_000)
        )
    elif damage == "behind":  # an old image is fine: the rest comes from the changelog
        store.write({b"n/k": b"3"}, StoreMeta(0, meta.topic_id, meta.written_at))
    store.close()
    if damage == "corrupt":
        for file in (first.settings.directory("counting") / "p0").glob("MANIFEST-*"):
            file.write_bytes(b"garbage")
    restored(world, tmp_path, 7)


def test_a_group_without_offsets_goes_on_from_those_in_the_changelog(
    world: World, tmp_path: Path
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 7)
    first.worked_off(7).stop()
    group = first.settings.group("counting")
    until(lambda: gone(world, group), "group deleted")
    put(world, 2)
    again = Driven(world, Counting(), tmp_path).live().worked_off(2)
    assert again.health.records == 2
    check_sequences(world.read(OUT), inputs(world))
    again.stop()


def gone(world: World, group: str) -> bool:
    return all(
        f.exception(10) is None for f in world.admin.delete_consumer_groups([group]).values()
    )


def set_offset(world: World, group: str, at: TopicPartition) -> bool:
    request = ConsumerGroupTopicPartitions(group, [at])
    (future,) = world.admin.alter_consumer_group_offsets([request]).values()
    try:
        return all(spot.error is None for spot in future.result(10).topic_partitions)
    except KafkaException:
        return False


def test_lost_records_stop_their_partition_and_are_named(world: World, tmp_path: Path) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 4)
    first.worked_off(4).stop()
    put(world, 6)
    delete_all(world, LEFT)
    put(world, 1)
    put(world, 1, partition=1)
    second = Driven(world, Counting(), tmp_path).live(1).worked_off(1)
    second.until(lambda: second.health.stopped, "stopped")
    assert "records 4 to 9 of left-0 are gone" in second.health.stopped[0]
    assert "--accept-loss left-0" in second.health.stopped[0]
    second.stop()
    offset = TopicPartition(world.prefix + LEFT, 0, 10)  # what --accept-loss does
    until(lambda: set_offset(world, second.settings.group("counting"), offset), "the group empty")
    third = Driven(world, Counting(), tmp_path).live().worked_off(1)
    assert world.values(OUT)[-1] == {"n": 5, "of": "left-0-10"}
    third.stop()


def test_records_lost_while_it_runs_stop_it_too(world: World, tmp_path: Path) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    members = first.cycle._members
    first.cycle._consumer.pause(members.owned[0].spots())
    put(world, 2_000)
    delete_all(world, LEFT)
    put(world, 1)
    first.cycle._consumer.resume(members.owned[0].spots())
    first.until(lambda: 0 in first.health.stopped, "stopped")
    assert "are gone" in first.health.stopped[0]
    assert first.health.live == (1,)
    first.stop()


def test_an_input_made_anew_under_its_name_is_not_read_with_the_old_offsets(
    world: World, tmp_path: Path
) -> None:
    first = Driven(world, Counting(), tmp_path).live()
    put(world, 4)
    first.worked_off(4).stop()
    world.delete(LEFT)
    until(lambda: created(world, LEFT), "topic created again")
    put(world, 9)
    second = Driven(world, Counting(), tmp_path)
    second.until(lambda: 0 in second.health.stopped, "stopped")
    second.stop()


def created(world: World, topic: str) -> bool:
    """A topic of this name may still be under deletion."""
    try:
        world.create(topic)
    except KafkaException:
        return False
    return True


def test_partition_counts_that_differ_are_refused(world: World, tmp_path: Path) -> None:
    from confluent_kafka.admin import NewPartitions

    first = Driven(world, Counting(), tmp_path).live()
    for future in world.admin.create_partitions([NewPartitions(world.prefix + LEFT, 3)]).values():
        future.result(10)
    with pytest.raises(TopicMismatch, match="more partitions"):
        first.until(lambda: False, "noticed while it runs", 60)
    first.vanish()
    with pytest.raises(TopicMismatch, match="left has 3, right has 2"):
        Driven(world, Counting(), tmp_path)
