"""What a transaction shows, and to whom, before and after it is decided."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from perdure.streams.runtime.errors import Aborted, DoesNotFit, ProducerFenced
from perdure.streams.runtime.ports import Kafka, Position, Spot, TransactionalProducer

from tests.contract.world import Reading, World, ends, read, spots

SHORT = 3_000


def started(world: World, kafka: Kafka, transactional_id: str = "") -> TransactionalProducer:
    producer = kafka.transactional_producer(transactional_id or world.name("id"))
    producer.start()
    return producer


def send(producer: TransactionalProducer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.send(topic, b"k", value, (), partition)


def left_open(
    world: World, kafka: Kafka, topic: str, *values: bytes, by: str = ""
) -> TransactionalProducer:
    """Begun, sent and known to be in the log."""
    producer = started(world, kafka, by)
    before = ends(world, kafka, Spot(topic, 0))[Spot(topic, 0)]
    producer.begin()
    send(producer, topic, *values)
    world.until(
        lambda: ends(world, kafka, Spot(topic, 0))[Spot(topic, 0)] >= before + len(values),
        "in the log",
    )
    return producer


def test_what_is_committed_is_read_and_its_marker_is_passed(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = started(world, kafka)
    told: list[int] = []
    producer.begin()
    for value in (b"1", b"2", b"3"):
        producer.send(topic, b"k", value, (("h", b"x"),), 0, told.append)
    producer.commit()
    assert told == [0, 1, 2]
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 4)
    assert reading.values == [b"1", b"2", b"3"]
    assert list(reading.records[0].headers) == [("h", b"x")]


def test_one_after_the_other_from_one_producer(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    producer = started(world, kafka)
    for i in range(6):
        producer.begin()
        send(producer, topic, b"%d" % i, partition=i % 2)
        producer.commit()
    for p in (0, 1):
        reading = Reading(world, kafka, (Spot(topic, p), 0)).to(Spot(topic, p), 6)
        assert reading.values == [b"%d" % i for i in range(6) if i % 2 == p]
        assert [r.offset for r in reading.records] == [0, 2, 4]


def test_what_is_aborted_is_never_read_and_the_end_is_past_it(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    world.put(topic, b"before")
    producer = left_open(world, kafka, topic, b"never", b"never")
    producer.abort()
    Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 4)
    producer.begin()
    send(producer, topic, b"after")
    producer.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 6)
    assert [(r.offset, r.value) for r in reading.records] == [(0, b"before"), (4, b"after")]


def test_an_abort_before_anything_arrived_leaves_the_producer_usable(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = started(world, kafka)
    producer.begin()
    producer.abort()
    producer.begin()
    producer.commit()
    producer.begin()
    send(producer, topic, b"v")
    producer.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    assert reading.values == [b"v"]


def test_an_open_transaction_holds_readers_back_and_ends_too(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    world.put(topic, b"before")
    producer = left_open(world, kafka, topic, b"open")
    world.put(topic, b"behind")
    assert ends(world, kafka, Spot(topic, 0)) == {Spot(topic, 0): 3}  # the true end
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 1)
    assert reading.values == [b"before"]
    producer.commit()
    reading.to(Spot(topic, 0), 4)
    assert reading.values == [b"before", b"open", b"behind"]


def test_the_oldest_open_transaction_counts(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    first = left_open(world, kafka, topic, b"first")
    second = left_open(world, kafka, topic, b"second")
    second.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 0)
    first.abort()
    reading.to(Spot(topic, 0), 4)
    assert reading.values == [b"second"]


def test_a_reader_behind_the_last_stable_offset_is_told_nothing_yet(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = left_open(world, kafka, topic, b"1", b"2")
    reading, begun = Reading(world, kafka, (Spot(topic, 0), 1)), world.now_ms()
    world.until(
        lambda: reading.poll() is not None and world.now_ms() > begun + 500, "several fetches"
    )
    assert (reading.records, reading.ends, reading.troubles) == ([], {}, [])
    producer.commit()
    reading.to(Spot(topic, 0), 3)
    assert reading.values == [b"2"]


# Who holds the id


def test_taking_the_id_fences_its_holder_and_aborts_what_it_had_open(world: World) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    former = left_open(world, kafka, topic, b"never", by=of)
    latter = started(world, world.process(), of)
    Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    with pytest.raises(ProducerFenced):
        former.commit()
    latter.begin()
    send(latter, topic, b"v")
    latter.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 4)
    assert reading.values == [b"v"]


@pytest.mark.parametrize("call", ["commit", "abort", "send_offsets"])
def test_every_later_call_of_a_fenced_producer_says_so(world: World, call: str) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    former = left_open(world, kafka, topic, b"never", by=of)
    started(world, world.process(), of)
    group = kafka.group_consumer(world.name("group"), "contract")
    calls: dict[str, Callable[[], None]] = {
        "commit": former.commit,
        "abort": former.abort,
        "send_offsets": lambda: former.send_offsets(
            {Spot(topic, 0): Position(1)}, group.membership()
        ),
    }
    with pytest.raises(ProducerFenced):
        calls[call]()
    with pytest.raises(ProducerFenced):
        former.begin()
    group.close()


def test_a_fenced_producer_learns_it_also_in_a_transaction_begun_later(world: World) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    former = started(world, kafka, of)
    started(world, world.process(), of)

    def one_more() -> None:
        former.begin()
        send(former, topic, b"never")
        former.commit()

    with pytest.raises(ProducerFenced):
        one_more()
    Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 0)


def test_what_another_left_open_can_be_aborted_in_passing(world: World) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    former = left_open(world, kafka, topic, b"never", by=of)
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 0)
    world.process().abort_open_transaction(of)
    reading.to(Spot(topic, 0), 2)
    assert reading.records == []
    with pytest.raises(ProducerFenced):
        former.commit()


def test_what_is_open_too_long_is_aborted_and_its_producer_fenced(world: World) -> None:
    topic = world.topic()
    kafka = world.process(transaction_timeout_ms=SHORT)
    producer = left_open(world, kafka, topic, b"never")
    Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 2)
    with pytest.raises(ProducerFenced):
        producer.commit()


def test_a_dead_process_leaves_its_transaction_open_until_its_id_is_taken(world: World) -> None:
    topic, kafka, of = world.topic(), world.process(), world.name("id")
    dead = world.process(apart=True)
    left_open(world, dead, topic, b"never", by=of)
    world.kill(dead)
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 0)
    started(world, kafka, of)
    reading.to(Spot(topic, 0), 2)
    assert reading.records == []


# What Kafka refuses


@pytest.mark.parametrize("what", ["topic", "partition", "size", "client's size", "key"])
def test_a_refused_record_voids_its_transaction_only(world: World, what: str) -> None:
    topic, kafka = world.topic(), world.process()
    small = world.topic(max_bytes=2_000, compact=what == "key")
    producer = started(world, kafka)
    value = Random(1).randbytes(10_000)  # not to be compressed away

    def refused() -> None:
        producer.begin()
        send(producer, topic, b"never")
        if what == "topic":
            producer.send("no-such-topic", b"k", b"v", (), 0)
        elif what == "partition":
            producer.send(small, b"k", b"v", (), 7)
        elif what == "key":
            producer.send(small, None, b"v", (), 0)
        else:
            producer.send(small, b"k", value * (1 if what == "size" else 500), (), 0)
        producer.commit()

    with pytest.raises(Aborted) as raised:
        refused()
    assert type(raised.value) is (DoesNotFit if "size" in what else Aborted)
    producer.abort()
    producer.begin()
    send(producer, topic, b"v")
    producer.commit()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to_the_end(Spot(topic, 0))
    assert reading.values == [b"v"]
    assert read(world, kafka, small) == []


def test_offsets_with_too_long_a_note_void_the_transaction(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = started(world, kafka)
    group = kafka.group_consumer(world.name("group"), "contract")
    producer.begin()
    with pytest.raises(Aborted):
        producer.send_offsets({Spot(topic, 0): Position(0, "x" * 5_000)}, group.membership())
    producer.abort()
    group.close()


def test_tombstones_and_order_over_partitions(world: World) -> None:
    topic, kafka = world.topic(2, compact=True), world.process()
    producer = started(world, kafka)
    producer.begin()
    for i in range(4):
        producer.send(topic, b"k%d" % i, None if i == 3 else b"v", (), i % 2)
    producer.commit()
    reading = Reading(world, kafka, *((s, 0) for s in spots(topic, partitions=(0, 1))))
    reading.to(Spot(topic, 0), 3).to(Spot(topic, 1), 3)
    assert [r.value for r in reading.records if r.partition == 1] == [b"v", None]
