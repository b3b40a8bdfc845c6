"""Committed offsets: plain, in transactions, and what guards them."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.errors import Aborted, GroupFenced, Unanswered
from perdure.streams.runtime.ports import Position, Spot

from tests.contract.test_transactions import send, started
from tests.contract.world import (
    Member,
    Reading,
    World,
    committed,
    is_stable,
    new_group,
    read,
    spots,
)


def test_offsets_are_committed_with_what_is_written_beside_them(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    assert committed(world, kafka, group, both) == {}
    member = Member(world, kafka, group, topic).has(both)
    member.consumer.commit({Spot(topic, 0): Position(3, "note é")})
    assert committed(world, kafka, group, both) == {Spot(topic, 0): Position(3, "note é")}
    member.consumer.commit({Spot(topic, 0): Position(2), Spot(topic, 1): Position(0, "x" * 4_000)})
    assert committed(world, kafka, group, both, stable=True) == {
        Spot(topic, 0): Position(2),
        Spot(topic, 1): Position(0, "x" * 4_000),
    }
    member.consumer.close()
    assert committed(world, kafka, group, {Spot(topic, 0)}) == {Spot(topic, 0): Position(2)}


def test_offsets_that_cannot_be_are_refused(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic))
    with pytest.raises(Unanswered):
        member.consumer.commit({Spot(topic, 0): Position(1, "x" * 5_000)})
    with pytest.raises(Unanswered):
        member.consumer.commit({Spot("no-such-topic", 0): Position(1)})
    member.consumer.commit({Spot(topic, 0): Position(1)})
    member.consumer.close()


def test_offsets_of_a_transaction_count_with_its_commit(world: World) -> None:
    topic, out, kafka = world.topic(), world.topic(), world.process()
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has({spot})
    member.consumer.commit({spot: Position(1, "before")})
    producer = started(world, kafka)
    producer.begin()
    send(producer, out, b"v")
    producer.send_offsets({spot: Position(5, "in it")}, member.consumer.membership())
    assert committed(world, kafka, group, {spot}) == {spot: Position(1, "before")}
    producer.commit()
    world.until(
        lambda: committed(world, kafka, group, {spot}) == {spot: Position(5, "in it")}, "committed"
    )
    Reading(world, kafka, (Spot(out, 0), 0)).to(Spot(out, 0), 2)
    member.consumer.close()


def test_offsets_of_an_aborted_transaction_never_count(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has({spot})
    producer = started(world, kafka)
    producer.begin()
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    producer.abort()
    world.until(lambda: is_stable(world, kafka, group, spot), "stable again")
    assert committed(world, kafka, group, {spot}) == {}
    member.consumer.close()


def test_pending_offsets_are_unstable_until_decided(world: World) -> None:
    topic, kafka, of = world.topic(2), world.process(), world.name("id")
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has(spots(topic, partitions=(0, 1)))
    producer = started(world, kafka, of)
    producer.begin()
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    assert committed(world, kafka, group, {Spot(topic, 1)}, stable=True) == {}
    with pytest.raises(Unanswered, match="unstable"):
        committed(world, kafka, group, {spot}, stable=True)
    with pytest.raises(Unanswered, match="unstable"):  # one is enough
        committed(world, kafka, group, {spot, Spot(topic, 1)}, stable=True)
    started(world, kafka, of)  # takes the id, which aborts it
    world.until(lambda: is_stable(world, kafka, group, spot), "stable")
    assert committed(world, kafka, group, {spot}, stable=True) == {}
    member.consumer.close()


def test_who_never_was_a_member_cannot_send_offsets(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    group = new_group(world, kafka)
    member = Member(world, kafka, group, topic).has(spots(topic))
    stranger = kafka.group_consumer(group, "stranger")
    producer = started(world, kafka)
    producer.begin()
    with pytest.raises(Aborted):
        producer.send_offsets({Spot(topic, 0): Position(5)}, stranger.membership())
    producer.abort()
    stranger.close()
    member.consumer.close()


def test_who_left_is_refused_with_offsets(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic))
    membership = member.consumer.membership()
    member.consumer.close()
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"never")
    with pytest.raises(GroupFenced):
        producer.send_offsets({Spot(topic, 0): Position(1)}, membership)
    producer.abort()
    producer.begin()
    send(producer, topic, b"v")
    producer.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to_the_end(Spot(topic, 0))
    assert reading.values == [b"v"]


def test_a_refused_transaction_cannot_be_committed(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic))
    membership = member.consumer.membership()
    member.consumer.close()
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"never")
    with pytest.raises(GroupFenced):
        producer.send_offsets({Spot(topic, 0): Position(1)}, membership)
    with pytest.raises(Aborted):
        producer.commit()
    producer.abort()
    assert read(world, kafka, topic) == []


def test_a_member_may_commit_what_another_owns_in_a_transaction(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    two = Member(world, kafka, group, topic)
    world.until(lambda: one.poll() is not None and len(one.held) == 1, "one gives one up")
    two.has(both - one.held, one)
    (foreign,) = two.held
    producer = started(world, kafka)
    producer.begin()
    producer.send_offsets({foreign: Position(7)}, one.consumer.membership())
    producer.commit()
    world.until(
        lambda: committed(world, kafka, group, {foreign}) == {foreign: Position(7)}, "committed"
    )
    one.consumer.close()
    two.consumer.close()


def test_an_older_epoch_is_good_for_what_its_member_has_kept_since(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    older = one.consumer.membership()
    two = Member(world, kafka, group, topic)
    world.until(lambda: one.poll() is not None and len(one.held) == 1, "one gives one up")
    two.has(both - one.held, one)
    world.until(lambda: one.poll() is not None and one.told[-1] == ("assigned", ()), "a new epoch")
    (kept,), (given,) = one.held, two.held
    producer = started(world, kafka)
    producer.begin()
    producer.send_offsets({kept: Position(7)}, older)
    producer.commit()
    world.until(lambda: committed(world, kafka, group, {kept}) == {kept: Position(7)}, "committed")
    producer.begin()
    with pytest.raises(GroupFenced):
        producer.send_offsets({given: Position(7)}, older)
    producer.abort()
    one.consumer.close()
    two.consumer.close()


def test_a_later_plain_commit_stands_when_the_transaction_ends(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has({spot})
    producer = started(world, kafka)
    producer.begin()
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    member.consumer.commit({spot: Position(9)})
    producer.commit()
    world.until(lambda: is_stable(world, kafka, group, spot), "stable")
    assert committed(world, kafka, group, {spot}) == {spot: Position(9)}
    member.consumer.close()


def test_a_commit_may_come_after_its_member_has_left(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has({spot})
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"late")
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    member.consumer.close()
    producer.commit()
    Reading(world, kafka, (spot, 0)).has(b"late")
    world.until(lambda: committed(world, kafka, group, {spot}) == {spot: Position(5)}, "late")
