"""A broker that does not answer: what each call says, and that it says so in time."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.errors import KafkaUnreachable, OutcomeUnknown, Unanswered
from perdure.streams.runtime.ports import Spot

from tests.contract.world import Member, World


def test_questions_end_unanswered_and_no_id_is_given_out(world: World) -> None:
    kafka = world.unreachable()
    admin = kafka.admin()
    spot = Spot("topic", 0)
    questions = [
        admin.ends([spot]),
        admin.starts([spot]),
        admin.topic_ids(["topic"]),
        admin.committed("group", [spot], True),
    ]
    assert not any(q.done() for q in questions)
    with pytest.raises(KafkaUnreachable):
        admin.partition_counts(["topic"])
    with pytest.raises(OutcomeUnknown):
        kafka.transactional_producer(world.name("id")).start()
    for question in questions:
        world.until(question.done, "an answer", 20)
        with pytest.raises(Unanswered):
            question.result()


def test_nothing_is_polled_and_nothing_is_sent(world: World) -> None:
    kafka = world.unreachable()
    member = Member(world, kafka, world.name("group"), "topic")
    reader = kafka.reader("contract")
    reader.add(Spot("topic", 0), 0)
    producer = kafka.plain_producer("contract")
    producer.send("topic", b"k", b"v")
    assert member.poll() == []
    assert reader.poll(10, 0.02) == []
    assert producer.flush(0.1) == 1
    assert member.told == []
    member.consumer.close()
    reader.close()
    producer.close()
