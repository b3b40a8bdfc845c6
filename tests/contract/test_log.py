"""Records, their order and their ends, as a reader is given them."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.partitioner import partition_of
from perdure.streams.runtime.ports import Spot

from tests.contract.world import Reading, World, ends, read, starts


def test_a_record_is_read_as_it_was_written(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    world.put(topic, b"v", b"k", headers=[("a", b"1"), ("b", None), ("a", b"")], timestamp=1_234)
    world.put(topic, None, None)
    world.put(topic, b"", b"")
    first, second, third = read(world, kafka, topic)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 1_234)
    assert list(first.headers) == [("a", b"1"), ("b", None), ("a", b"")]
    assert (second.offset, second.key, second.value, list(second.headers)) == (1, None, None, [])
    assert (third.offset, third.key, third.value) == (2, b"", b"")


def test_a_topic_may_set_the_time_itself(world: World) -> None:
    topic, kafka = world.topic(append_time=True), world.process()
    before = world.now_ms()
    world.put(topic, timestamp=1_234)
    (record,) = read(world, kafka, topic)
    assert before <= record.timestamp <= world.now_ms()


def test_an_end_is_told_once_where_nothing_is(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    reading = Reading(world, kafka, (Spot(topic, 0), 0)).to(Spot(topic, 0), 0)
    world.put(topic)
    reading.to(Spot(topic, 0), 1)
    assert reading.values == [b"v"]


def test_a_poll_keeps_its_limit_and_loses_nothing(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    for i in range(10):
        world.put(topic, b"%d" % i)
    reading = Reading(world, kafka, (Spot(topic, 0), 0))

    def polled() -> bool:
        assert len(reading.poll(3)) <= 3
        return Spot(topic, 0) in reading.ends

    world.until(polled, "the end")
    assert reading.values == [b"%d" % i for i in range(10)]


def test_reading_begins_exactly_where_it_should(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    for i in range(5):
        world.put(topic, b"%d" % i, partition=i % 2)
    reading = Reading(world, kafka, (Spot(topic, 0), 2), (Spot(topic, 1), 2))
    reading.to(Spot(topic, 0), 3).to(Spot(topic, 1), 2)
    assert reading.values == [b"4"]


def test_what_is_not_read_any_more_does_not_come(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    reading = Reading(world, kafka, (Spot(topic, 0), 0), (Spot(topic, 1), 0))
    reading.to(Spot(topic, 0), 0).to(Spot(topic, 1), 0)
    reading.reader.remove(Spot(topic, 0))
    world.put(topic, b"never", partition=0)
    world.put(topic, b"read", partition=1)
    reading.to(Spot(topic, 1), 1)
    assert reading.values == [b"read"]


def test_a_key_has_its_partition_for_every_client(world: World) -> None:
    topic, kafka = world.topic(4), world.process()
    producer = kafka.plain_producer("contract")
    keys = [f"run-{i}" for i in range(8)]
    for key in keys:
        world.put(topic, b"foreign", key.encode(), None)
        producer.send(topic, key.encode(), b"ours")
    world.until(lambda: producer.flush(0.1) == 0, "all sent")
    for partition in range(4):
        found = sorted((r.key, r.value) for r in read(world, kafka, topic, partition))
        mine = [k.encode() for k in sorted(keys) if partition_of(k, 4) == partition]
        assert found == [(k, v) for k in mine for v in (b"foreign", b"ours")]
    producer.close()


def test_a_record_without_a_key_goes_anywhere(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    world.put(topic, b"v", None, None)
    found = ends(world, kafka, Spot(topic, 0), Spot(topic, 1))
    assert sorted(found.values()) == [0, 1]


@pytest.mark.parametrize("at", [1, 9])
def test_a_position_outside_the_log_is_lost(world: World, at: int) -> None:
    topic, kafka = world.topic(), world.process()
    for _ in range(4):
        world.put(topic)
    world.delete_records(topic, 0, 2)
    assert starts(world, kafka, Spot(topic, 0)) == {Spot(topic, 0): 2}
    assert ends(world, kafka, Spot(topic, 0)) == {Spot(topic, 0): 4}
    reading = Reading(world, kafka, (Spot(topic, 0), at))
    world.until(lambda: reading.poll() and reading.troubles, "trouble")
    assert [(t.topic, t.partition, t.lost) for t in reading.troubles] == [(topic, 0, True)]
    assert reading.records == []
    reading.reader.remove(Spot(topic, 0))
    reading.reader.add(Spot(topic, 0), 2)
    reading.to(Spot(topic, 0), 4)
    assert [r.offset for r in reading.records] == [2, 3]


def test_a_log_that_was_emptied_ends_where_it_did(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    for _ in range(4):
        world.put(topic)
    world.delete_records(topic, 0, 4)
    assert starts(world, kafka, Spot(topic, 0)) == ends(world, kafka, Spot(topic, 0))
    Reading(world, kafka, (Spot(topic, 0), 4)).to(Spot(topic, 0), 4)


def test_a_topic_made_anew_has_another_id(world: World) -> None:
    topic, kafka = world.topic(2), world.process()
    admin = kafka.admin()

    def id_now() -> str:
        answer = admin.topic_ids([topic])
        world.until(answer.done, "the id")
        return answer.result()[topic]

    world.put(topic)
    first = id_now()
    assert id_now() == first
    assert admin.partition_counts([topic, "no-such-topic"]) == {topic: 2}
    world.delete_topic(topic)
    assert admin.partition_counts([topic]) == {}
    world.topic(3, name=topic)
    assert id_now() != first
    assert admin.partition_counts([topic]) == {topic: 3}
    assert ends(world, kafka, Spot(topic, 0)) == {Spot(topic, 0): 0}


def test_questions_about_what_does_not_exist_are_not_answered(world: World) -> None:
    kafka = world.process()
    admin, nowhere = kafka.admin(), Spot("no-such-topic", 0)
    for answer in (admin.ends([nowhere]), admin.starts([nowhere]), admin.topic_ids([nowhere[0]])):
        world.until(answer.done, "an answer")
        with pytest.raises(Unanswered):
            answer.result()


def test_a_reader_of_what_was_made_anew_starts_where_it_is_told(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    for _ in range(3):
        world.put(topic, b"old")
    world.delete_topic(topic)
    world.topic(name=topic)
    world.put(topic, b"new")
    assert [r.value for r in read(world, kafka, topic)] == [b"new"]
