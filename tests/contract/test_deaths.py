"""Processes that are killed or stopped, and what the group and the log make of it."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.errors import GroupFenced, ProducerFenced
from perdure.streams.runtime.ports import Position, Spot

from tests.contract.test_transactions import left_open, started
from tests.contract.world import Member, Reading, World, committed, is_stable, new_group, spots

STOPPED_FOR_MS = 6_000  # a session of 3 s, and until the others are told


def test_what_a_killed_member_held_is_free_after_its_session(world: World) -> None:
    topic, kafka, dead = world.topic(2), world.process(), world.process(apart=True)
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    Member(world, dead, group, topic).has(both)
    killed_at = world.now_ms()
    world.kill(dead)
    heir = Member(world, kafka, group, topic).has(both)
    assert 1_500 <= world.now_ms() - killed_at <= STOPPED_FOR_MS
    heir.consumer.close()


def test_a_killed_members_transaction_leaves_its_offsets_unstable(world: World) -> None:
    topic, kafka, dead = world.topic(), world.process(), world.process(apart=True)
    group, spot, of = new_group(world, kafka), Spot(topic, 0), world.name("id")
    member = Member(world, dead, group, topic).has({spot})
    producer = started(world, dead, of)
    producer.begin()
    producer.send(topic, b"k", b"never", (), 0)
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    world.kill(dead)
    assert committed(world, kafka, group, {spot}) == {}
    assert not is_stable(world, kafka, group, spot)
    kafka.abort_open_transaction(of)
    world.until(lambda: is_stable(world, kafka, group, spot), "aborted")
    assert committed(world, kafka, group, {spot}) == {}


def test_a_stopped_member_is_expelled_and_guarded_by_offsets_alone(world: World) -> None:
    topic, out, kafka = world.topic(2), world.topic(), world.process()
    asleep = world.process(apart=True)
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, asleep, group, topic).has(both)
    with_offsets = started(world, asleep)
    with_offsets.begin()
    with_offsets.send(out, b"k", b"never", (), 0)
    without = started(world, asleep)
    without.begin()
    without.send(out, b"k", b"committed all the same", (), 0)
    world.stop(asleep)
    two = Member(world, kafka, group, topic).has(both)
    world.resume(asleep)
    with pytest.raises(GroupFenced):
        with_offsets.send_offsets({Spot(topic, 0): Position(5)}, one.consumer.membership())
    with_offsets.abort()
    resumed = world.now_ms()
    world.until(lambda: two.poll() is not None and world.now_ms() >= resumed + 1_500, "heartbeats")
    with_offsets.begin()  # heartbeats have learned of it by now, but nothing is told but in a poll
    with pytest.raises(GroupFenced):
        with_offsets.send_offsets({Spot(topic, 0): Position(5)}, one.consumer.membership())
    with_offsets.abort()
    without.commit()
    with pytest.raises(GroupFenced):
        one.consumer.commit({Spot(topic, 0): Position(5)})
    assert committed(world, kafka, group, both) == {}
    assert "lost" not in one.words()
    world.until(lambda: one.poll() is not None and "lost" in one.words(), "it learns it in a poll")
    assert ("lost", tuple(sorted(both))) in one.told
    world.until(
        lambda: (one.poll(), two.poll()) and len(one.held) == len(two.held) == 1, "it is back"
    )
    Reading(world, kafka, (Spot(out, 0), 0)).has(b"committed all the same")
    one.consumer.commit(dict.fromkeys(one.held, Position(6)))
    assert committed(world, kafka, group, one.held) == dict.fromkeys(one.held, Position(6))
    two.consumer.close()


def test_a_member_stopped_for_less_than_its_session_stays(world: World) -> None:
    topic, kafka, asleep = world.topic(2), world.process(), world.process(apart=True)
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, asleep, group, topic).has(both)
    world.stop(asleep)
    begun = world.now_ms()
    world.until(lambda: world.now_ms() > begun + 1_000, "a second")
    world.resume(asleep)
    one.consumer.commit({Spot(topic, 0): Position(5)})
    one.poll()
    assert one.held == both


def test_what_was_aborted_for_a_stopped_process_fences_it(world: World) -> None:
    topic, kafka, asleep = world.topic(), world.process(), world.process(apart=True)
    of, spot = world.name("id"), Spot(topic, 0)
    producer = left_open(world, asleep, topic, b"never", by=of)
    world.stop(asleep)
    kafka.abort_open_transaction(of)
    reading = Reading(world, kafka, (spot, 0)).to(spot, 2)
    world.resume(asleep)
    with pytest.raises(ProducerFenced):
        producer.commit()
    assert reading.records == []
