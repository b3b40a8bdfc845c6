"""What only the simulated broker has: faults at every call, compaction on demand, chance by seed."""

from __future__ import annotations

from random import Random

import pytest
from perdure.streams.runtime.errors import Aborted, GroupFenced, OutcomeUnknown, ProducerFenced
from perdure.streams.runtime.ports import Position, Spot

from perdure.testing.broker import BrokerDown, Fenced, ProcessGone
from tests.contract.simulated_world import SimulatedWorld
from tests.contract.test_transactions import left_open, send, started
from tests.contract.world import Member, Reading, committed, new_group, read, spots


class Crash(BaseException):
    """The simulation's own end of a process."""


@pytest.fixture(params=[None, 1, 2, 3])
def world(request: pytest.FixtureRequest) -> SimulatedWorld:
    return SimulatedWorld(None if request.param is None else Random(request.param))


def crash_at(world: SimulatedWorld, operation: str, when: str) -> None:
    def on_call(process: str, called: str, at: str) -> None:
        if (called, at) == (operation, when):
            world.broker.on_call = None
            world.broker.kill(process)
            raise Crash

    world.broker.on_call = on_call


@pytest.mark.parametrize(("when", "there"), [("before", []), ("after", [b"v"])])
def test_a_call_crashed_before_has_no_effect_and_after_all_of_it(
    world: SimulatedWorld, when: str, there: list[bytes]
) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    producer = left_open(world, kafka, topic, b"v", by=of)
    crash_at(world, "producer.commit", when)
    with pytest.raises(Crash):
        producer.commit()
    started(world, world.process(), of)
    reading = Reading(world, world.process(), (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == there


def test_every_port_call_can_be_crashed_on_both_sides(world: SimulatedWorld) -> None:
    seen: list[tuple[str, str, str]] = []
    world.broker.on_call = lambda *what: seen.append(what)
    topic, kafka = world.topic(), world.process()
    member = Member(world, kafka, new_group(world, kafka), topic).has(spots(topic)).start()
    member.consumer.pause([Spot(topic, 0)])
    member.consumer.resume([Spot(topic, 0)])
    member.consumer.commit({Spot(topic, 0): Position(0)})
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"v")
    producer.send_offsets({Spot(topic, 0): Position(1)}, member.consumer.membership())
    producer.commit()
    producer.begin()
    producer.abort()
    producer.close()
    plain = kafka.plain_producer("plain")
    plain.send(topic, b"k", b"v")
    plain.flush(1)
    plain.close()
    Reading(world, kafka, (Spot(topic, 0), 0)).to_the_end(Spot(topic, 0)).close()
    admin = kafka.admin()
    admin.starts([Spot(topic, 0)])
    admin.topic_ids([topic])
    admin.committed(member.group, [Spot(topic, 0)], True)
    admin.partition_counts([topic])
    kafka.abort_open_transaction(world.name("id"))
    member.consumer.close()
    before = [operation for _, operation, when in seen if when == "before"]
    after = [operation for _, operation, when in seen if when == "after"]
    assert sorted(before) == sorted(after)
    assert {process for process, _, _ in seen} == {kafka.name}
    ports = {"consumer": 8, "producer": 7, "plain": 3, "reader": 3, "admin": 6, "kafka": 1}
    found = {port: len({o for o in before if o.startswith(f"{port}.")}) for port in ports}
    assert found == ports


def test_a_killed_process_can_call_nothing_more(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(), world.process()
    producer = left_open(world, kafka, topic, b"v")
    world.kill(kafka)
    with pytest.raises(ProcessGone):
        producer.commit()
    producer.close()
    assert [s.state for s in world.broker.read(topic, 0, "read_uncommitted")] == ["open"]


def test_a_commit_on_the_wire_lands_though_its_sender_is_dead(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(), world.process()
    group, spot = new_group(world, kafka), Spot(topic, 0)
    member = Member(world, kafka, group, topic).has({spot})
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"late")
    producer.send_offsets({spot: Position(5)}, member.consumer.membership())
    world.broker.commit_late(kafka, 0.5)
    world.kill(kafka)
    assert world.broker.read(topic, 0) == []
    other = world.process()
    Reading(world, other, (spot, 0)).has(b"late")
    world.until(lambda: committed(world, other, group, {spot}) == {spot: Position(5)}, "offsets")


def test_a_commit_on_the_wire_is_refused_once_the_id_is_taken(world: SimulatedWorld) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    left_open(world, kafka, topic, b"never", by=of)
    world.broker.commit_late(kafka, 0.5)
    world.kill(kafka)
    other = world.process()
    started(world, other, of)
    begun = world.now_ms()
    world.until(lambda: world.now_ms() > begun + 2_000, "later")
    reading = Reading(world, other, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == []


def test_an_outage_shorter_than_the_patience_is_waited_out(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(), world.process()
    producer = left_open(world, kafka, topic, b"v")
    broker = world.broker
    back_at = broker.now() + 8

    def see() -> None:
        if broker.now() >= back_at:
            broker.up()

    world.clock.on_wait = see
    broker.down()
    producer.commit()
    assert not broker.is_down
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == [b"v"]


@pytest.mark.parametrize(("when", "there"), [("before", []), ("after", [b"v"])])
def test_a_commit_without_an_answer_may_have_happened(
    world: SimulatedWorld, when: str, there: list[bytes]
) -> None:
    topic, kafka = world.topic(), world.process()
    producer = left_open(world, kafka, topic, b"v")

    def on_call(process: str, called: str, at: str) -> None:
        if (called, at) == ("producer.commit", when):
            world.broker.cut(process)

    world.broker.on_call = on_call
    with pytest.raises(OutcomeUnknown):
        producer.commit()
    world.broker.on_call = None
    reading = Reading(world, world.process(), (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == there


@pytest.mark.parametrize("taken", [False, True])
def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(
    world: SimulatedWorld, taken: bool
) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    producer = left_open(world, kafka, topic, b"v", by=of)
    other = world.process()

    def on_call(process: str, called: str, at: str) -> None:
        if (process, called, at) == (kafka.name, "producer.commit", "after"):
            world.broker.cut(process)

    waits: list[int] = []

    def heal() -> None:
        waits.append(len(waits))
        if taken and len(waits) == 1:
            other.abort_open_transaction(of)
        if len(waits) == 3:
            world.broker.heal(kafka)

    world.broker.on_call = on_call
    world.clock.on_wait = heal
    if taken:
        with pytest.raises(ProducerFenced):
            producer.commit()
    else:
        producer.commit()
    reading = Reading(world, other, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == [b"v"]


def test_after_an_outage_the_dead_have_a_whole_session_again(world: SimulatedWorld) -> None:
    topic, dead, kafka = world.topic(2), world.process(), world.process()
    group, both = new_group(world, kafka), spots(topic, partitions=(0, 1))
    Member(world, dead, group, topic).has(both)
    world.kill(dead)
    world.broker.down()
    begun = world.now_ms()
    world.until(lambda: world.now_ms() > begun + 8_000, "longer than a session")
    world.broker.up()
    up_at = world.now_ms()
    Member(world, kafka, group, topic).has(both)
    assert 3_000 <= world.now_ms() - up_at <= 4_500


def test_an_outage_expels_nobody_and_loses_nothing(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(2), world.process()
    both = spots(topic, partitions=(0, 1))
    group = new_group(world, kafka)
    member = Member(world, kafka, group, topic).has(both).start()
    world.put(topic, b"1")
    world.broker.down()
    with pytest.raises(BrokerDown):
        world.put(topic, b"never")
    begun = world.now_ms()
    world.until(lambda: member.poll() == [] and world.now_ms() > begun + 60_000, "a minute", 70)
    world.broker.up()
    member.has_records(b"1")
    member.consumer.commit({Spot(topic, 0): Position(1)})
    assert member.held == both
    assert "lost" not in member.words()


def test_who_was_cut_off_for_a_session_is_out(world: SimulatedWorld) -> None:
    topic, kafka, other = world.topic(2), world.process(), world.process()
    group, both = new_group(world, other), spots(topic, partitions=(0, 1))
    one = Member(world, kafka, group, topic).has(both)
    membership = one.consumer.membership()
    world.broker.cut(kafka)
    two = Member(world, other, group, topic).has(both)
    world.broker.heal(kafka)
    producer = started(world, kafka)
    producer.begin()
    with pytest.raises(GroupFenced):
        producer.send_offsets({Spot(topic, 0): Position(1)}, membership)
    world.until(
        lambda: (one.poll(), two.poll()) and len(one.held) == len(two.held) == 1, "it is back"
    )
    assert "lost" in one.words()


def test_compaction_keeps_the_newest_of_each_key_and_the_end(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(compact=True), world.process()
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1")):
        world.put(topic, value, key)
    producer = left_open(world, kafka, topic, b"never")
    producer.abort()
    Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 7)
    world.broker.compact(topic)
    reading = Reading(world, kafka, (Spot(topic, 0), 1)).to(Spot(topic, 0), 7)
    assert [(r.offset, r.value) for r in reading.records] == [(2, b"2"), (3, None), (4, b"1")]
    world.broker.compact(topic, tombstones=True, markers=True)
    reading = Reading(world, kafka, (Spot(topic, 0), 3)).to(
        Spot(topic, 0), 7
    )  # nothing at the tail
    assert [(r.offset, r.value) for r in reading.records] == [(4, b"1")]
    world.put(topic, b"3", b"a")
    reading.has(b"1", b"3")
    assert reading.records[-1].offset == 7


def test_compaction_leaves_an_open_transaction_and_what_follows_alone(
    world: SimulatedWorld,
) -> None:
    topic, kafka = world.topic(compact=True), world.process()
    world.put(topic, b"1")
    producer = left_open(world, kafka, topic, b"2")
    world.put(topic, b"3")
    world.broker.compact(topic)
    producer.abort()
    Reading(world, kafka, (Spot(topic, 0), 0)).has(b"1", b"3")


def test_a_foreign_transaction_is_one_like_any_other(world: SimulatedWorld) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    foreign = world.broker.foreign_transaction(of)
    foreign.send(topic, b"k", b"foreign", (("h", None),), 0, 1_234)
    assert [s.state for s in world.broker.read(topic, 0, "read_uncommitted")] == ["open"]
    assert read(world, kafka, topic) == []
    foreign.commit()
    Reading(world, kafka, (Spot(topic, 0), 0)).has(b"foreign")
    (seen,) = world.broker.read(topic, 0)
    assert (seen.offset, seen.timestamp, seen.headers) == (0, 1_234, (("h", None),))
    started(world, kafka, of)
    with pytest.raises(Fenced):
        foreign.send(topic, b"k", b"never", partition=0)


def test_an_abort_stands_whatever_the_client_does_next(world: SimulatedWorld) -> None:
    topic, kafka = world.topic(), world.process()
    producer = left_open(world, kafka, topic, b"never")
    producer.abort()
    with pytest.raises(Aborted):
        producer.commit()
    with pytest.raises(Aborted):
        send(producer, topic, b"never")
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == []


def test_a_dead_process_may_still_be_heard_for_a_moment() -> None:
    """Of what it had sent: nothing, a part, or all; in order, and nothing once its id is taken."""
    found = set()
    for seed in range(60):
        world = SimulatedWorld(Random(seed))
        topic, dead, of = world.topic(), world.process(), world.name("id")
        producer = started(world, dead, of)
        producer.begin()
        send(producer, topic, b"0", b"1", b"2")
        world.kill(dead)
        if seed % 2:
            started(world, world.process(), of)
        begun = world.now_ms()
        world.until(lambda: world.now_ms() > begun + 2_000, "two seconds")  # noqa: B023
        there = [s.value for s in world.broker.read(topic, 0, "read_uncommitted")]
        assert there == [b"0", b"1", b"2"][: len(there)]
        assert world.broker.read(topic, 0) == []
        found.add(len(there))
    assert found == {0, 1, 2, 3}


def run_of(seed: int) -> list[object]:
    world = SimulatedWorld(Random(seed))
    seen: list[object] = []
    world.broker.on_call = lambda *what: seen.append(what)
    topic, kafka, other = world.topic(4), world.process(), world.process()
    group = new_group(world, kafka)
    one = Member(world, kafka, group, topic).has(spots(topic, partitions=range(4))).start()
    two = Member(world, other, group, topic)
    for i in range(8):
        world.put(topic, b"%d" % i, partition=i % 4)

    def shared() -> bool:
        seen.append((one.poll(3), two.poll(3)))
        return len(two.held) == 2

    world.until(shared, "it is shared")
    producer = started(world, kafka)
    producer.begin()
    send(producer, topic, b"x", b"y", partition=1)
    producer.commit()
    reading = Reading(world, kafka, (Spot(topic, 1), 0)).to_the_end(Spot(topic, 1))
    return [*seen, reading.records, one.told, two.told, world.now_ms()]


def test_a_seed_is_a_run() -> None:
    runs = {seed: run_of(seed) for seed in (1, 2, 3)}
    assert run_of(2) == runs[2]
    assert runs[1] != runs[2] != runs[3]


def test_taking_an_id_twice_at_once_leaves_one(world: SimulatedWorld) -> None:
    of, kafka = world.name("id"), world.process()
    first, second = started(world, kafka, of), started(world, kafka, of)
    topic = world.topic()
    for producer in (first, second):
        producer.begin()
    send(second, topic, b"v")
    second.commit()
    send(first, topic, b"never")
    with pytest.raises(ProducerFenced):
        first.commit()
    assert [s.value for s in world.broker.read(topic, 0, "read_uncommitted")] == [b"v"]
