"""Members, and the partitions they are given and asked to give up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.ports import End, Position, Spot

from tests.contract.world import Member, World, committed, new_group, spots


def test_a_partition_comes_paused_and_starts_exactly_where_it_is_told(world: World) -> None:
    one, two, kafka = world.topic(2), world.topic(2), world.process()
    for i in range(4):
        world.put(one, b"%d" % i)
    member = Member(world, kafka, new_group(world, kafka), one, two)
    member.has(spots(one, two, partitions=(0, 1)))
    assert set(member.words()) == {"assigned"}
    member.consumer.start({Spot(one, 1): 0})
    world.until(lambda: member.poll() and member.ends == {Spot(one, 1): 0}, "only what was started")
    assert member.records == []
    member.consumer.start({Spot(one, 0): 2, Spot(two, 0): 0})
    member.has_records(b"2", b"3")
    world.until(
        lambda: member.poll() is not None and member.ends.get(Spot(one, 0)) == 4 and Spot(two, 0) in member.ends,
        "ends",
    )  # fmt: skip
    member.consumer.close()


def test_nothing_comes_while_paused_and_it_goes_on_where_it_stopped(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    both = spots(topic, partitions=(0, 1))
    member = Member(world, kafka, new_group(world, kafka), topic).has(both).start()
    world.put(topic, b"1")
    member.has_records(b"1")
    member.consumer.pause([Spot(topic, 0)])
    world.put(topic, b"2", partition=0)
    world.put(topic, b"3", partition=1)
    member.has_records(b"1", b"3")
    member.consumer.resume([Spot(topic, 0)])
    member.has_records(b"1", b"3", b"2")
    member.consumer.close()


def test_an_end_is_told_again_after_a_pause(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    spot = Spot(topic, 0)
    member = Member(world, kafka, new_group(world, kafka), topic).has({spot}).start()
    world.until(lambda: member.poll() and member.ends == {spot: 0}, "the end")
    member.consumer.pause([spot])
    member.ends.clear()
    member.consumer.resume([spot])
    world.until(lambda: member.poll() and member.ends == {spot: 0}, "the end again")
    member.consumer.close()


def test_starting_again_goes_back_or_forth(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    spot = Spot(topic, 0)
    for i in range(3):
        world.put(topic, b"%d" % i)
    member = Member(world, kafka, new_group(world, kafka), topic).has({spot}).start()
    member.has_records(b"0", b"1", b"2")
    member.consumer.pause([spot])
    member.consumer.start({spot: 1})
    member.has_records(b"0", b"1", b"2", b"1", b"2")
    member.consumer.close()


def test_what_is_not_held_cannot_be_started(world: World) -> None:
    topic, other, kafka = world.topic(), world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic))
    with pytest.raises(Unanswered):
        member.consumer.start({Spot(other, 0): 0})
    member.consumer.close()


def test_a_position_that_left_the_log_is_lost_and_can_be_started_anew(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    spot = Spot(topic, 0)
    for i in range(4):
        world.put(topic, b"%d" % i)
    world.delete_records(topic, 0, 2)
    member = Member(world, kafka, new_group(world, kafka), topic).has({spot})
    member.consumer.start({spot: 1})
    world.until(lambda: member.poll() is not None and member.troubles, "trouble")
    assert {(t.topic, t.partition, t.lost) for t in member.troubles} == {(topic, 0, True)}
    assert member.records == []
    member.consumer.start({spot: 2})

    def done() -> bool:
        member.poll_or_start_again(2)
        return len(member.records) >= 2

    world.until(done, "what is left")
    assert [r.offset for r in member.records[-2:]] == [2, 3]
    member.consumer.close()


def test_a_start_in_a_log_that_was_cut_is_exact_and_without_trouble(world: World) -> None:
    """A partition is assigned at an offset that only stands for one. Where that is below the log's
    start the client says so, before or after it is started: nobody has lost anything."""
    topic, kafka = world.topic(8), world.process()
    eight = spots(topic, partitions=range(8))
    for p in range(8):
        for i in range(4):
            world.put(topic, b"%d" % i, partition=p)
        world.delete_records(topic, p, 2)
    member = Member(world, kafka, new_group(world, kafka), topic).has(eight)
    member.start(3)
    world.until(
        lambda: member.poll() is not None and len({r.partition for r in member.records}) == 8, "all"
    )
    assert {r.offset for r in member.records} == {3}
    assert member.troubles == []
    member.consumer.close()


def test_a_partition_is_given_only_after_its_holder_has_given_it_up(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    two = Member(world, kafka, group, topic)
    seen_inside: list[set[Spot]] = []

    def last_words(going: Sequence[Spot]) -> None:
        one.consumer.commit({spot: Position(7, "last words") for spot in going})
        two.poll()
        seen_inside.append(set(two.held))

    one.on_revoke = last_words
    world.until(lambda: one.poll() is not None and len(one.held) == 1, "one partition is given up")
    two.has(both - one.held, one)
    assert seen_inside == [set()]
    assert one.words().count("revoked") == 1
    one_more = ("assigned", ())  # what follows a revocation is told, though it be nothing
    world.until(lambda: one.poll() is not None and one.told[-1] == one_more, "the answer to it")
    assert committed(world, kafka, group, two.held) == dict.fromkeys(
        two.held, Position(7, "last words")
    )
    one.consumer.close()
    two.consumer.close()


def test_a_holder_that_does_not_poll_keeps_what_it_has(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    two = Member(world, kafka, group, topic)
    begun = world.now_ms()
    world.until(
        lambda: two.poll() is not None and world.now_ms() > begun + 1_500, "three heartbeats"
    )
    assert two.held == set()
    assert one.held == both
    one.consumer.commit({Spot(topic, p): Position(1) for p in (0, 1)})
    world.until(lambda: one.poll() is not None and len(one.held) == 1, "one partition is given up")
    two.has(both - one.held, one)
    one.consumer.close()
    two.consumer.close()


def test_range_gives_the_same_partitions_of_all_topics_to_one_member(world: World) -> None:
    first, second, kafka = world.topic(4), world.topic(4), world.process()
    group = new_group(world, kafka)
    one = Member(world, kafka, group, first, second)
    two = Member(world, kafka, group, first, second)
    world.until(
        lambda: (one.poll(), two.poll()) and len(one.held) == len(two.held) == 4, "half each"
    )
    for member in (one, two):
        assert len({s.partition for s in member.held}) == 2
        assert {s.partition for s in member.held} in ({0, 1}, {2, 3})
    one.consumer.close()
    two.consumer.close()


def test_who_closes_is_asked_to_give_up_and_the_others_get_it(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    one.on_revoke = lambda going: one.consumer.commit(dict.fromkeys(going, Position(3)))
    one.consumer.close()
    assert one.told[-1] == ("revoked", tuple(sorted(both)))
    assert committed(world, kafka, group, both) == dict.fromkeys(both, Position(3))
    two = Member(world, kafka, group, topic).has(both)
    two.consumer.close()


def test_what_a_listener_raises_comes_out_of_the_poll(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    group = new_group(world, kafka)
    one = Member(world, kafka, group, topic).has(spots(topic, partitions=(0, 1)))

    def fail(going: Sequence[Spot]) -> None:
        raise ValueError("as the test wants it")

    one.on_revoke = fail
    two = Member(world, kafka, group, topic)

    def both_poll() -> bool:
        one.poll()
        two.poll()
        return False

    with pytest.raises(ValueError, match="as the test wants it"):
        world.until(both_poll, "the listener's error")
    world.until(
        lambda: two.poll() is not None and len(two.held) == 1, "it was given up all the same"
    )
    one.on_revoke = lambda going: None
    one.consumer.close()
    two.consumer.close()


def test_a_topic_created_later_comes_later(world: World) -> None:
    first, second, kafka = world.topic(2), world.name("later"), world.process()
    second = second.rpartition(".")[2]
    member = Member(world, kafka, new_group(world, kafka), first, second)
    member.has(spots(first, partitions=(0, 1)))
    world.topic(2, name=second)
    member.has(spots(first, second, partitions=(0, 1)))
    assert "revoked" not in member.words()
    member.consumer.close()


def test_partitions_added_later_come_later(world: World) -> None:
    topic, kafka = world.topic(1), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic))
    world.add_partitions(topic, 2)
    member.has(spots(topic, partitions=(0, 1)))
    assert "revoked" not in member.words()
    member.consumer.close()


def test_members_with_different_subscriptions_split_a_partition(world: World) -> None:
    shared, other, kafka = world.topic(2), world.topic(2), world.process()
    group = new_group(world, kafka)
    one = Member(world, kafka, group, shared)
    two = Member(world, kafka, group, shared, other)
    world.until(
        lambda: (one.poll(), two.poll()) and len(one.held) == 1 and len(two.held) == 3, "split"
    )
    (mine,) = one.held
    assert Spot(other, mine.partition) in two.held  # partition i of two topics on two members
    one.consumer.close()
    two.consumer.close()


def test_a_deleted_topic_is_taken_away(world: World) -> None:
    first, second, kafka = world.topic(), world.topic(), world.process()
    group = new_group(world, kafka)
    member = Member(world, kafka, group, first, second).has(spots(first, second)).start()
    member.consumer.commit({Spot(second, 0): Position(0)})
    world.delete_topic(second)
    member.has(spots(first))
    world.until(lambda: committed(world, kafka, group, {Spot(second, 0)}) == {}, "offsets go too")
    world.put(first, b"v")
    member.has_records(b"v")
    member.consumer.close()


def test_a_poll_with_nothing_to_say_says_nothing(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic)).start()
    world.until(lambda: any(isinstance(i, End) for i in member.poll()), "the end")
    assert member.poll() == []
    member.consumer.close()
