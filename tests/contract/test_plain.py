"""The plain producer: no transaction, answers later."""

from __future__ import annotations

from random import Random

import pytest
from perdure.streams.runtime.errors import Unanswered

from tests.contract.world import World, read


def test_what_was_sent_is_answered_and_in_order(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = kafka.plain_producer("contract")
    answers: list[Exception | None] = []
    for i in range(20):
        producer.send(topic, b"k", b"%d" % i, (("n", b"%d" % i),), 0, answers.append)
    world.until(lambda: len(answers) == 20, "answers, without a flush")
    assert set(answers) == {None}
    found = read(world, kafka, topic)
    assert [r.value for r in found] == [b"%d" % i for i in range(20)]
    assert list(found[3].headers) == [("n", b"3")]
    producer.close()


def test_a_flush_waits_for_all_answers(world: World) -> None:
    topic, kafka = world.topic(), world.process()
    producer = kafka.plain_producer("contract")
    answers: list[Exception | None] = []
    producer.send(topic, None, b"v", done=answers.append)
    producer.send(topic, None, b"v")
    world.until(lambda: producer.flush(1) == 0, "all answered")
    world.until(lambda: answers == [None], "told")
    assert len(read(world, kafka, topic)) == 2
    producer.close()


@pytest.mark.parametrize("what", ["topic", "partition", "size", "client's size", "key"])
def test_what_is_refused_is_said_and_the_rest_goes_on(world: World, what: str) -> None:
    topic, kafka = world.topic(), world.process()
    small = world.topic(max_bytes=2_000, compact=what == "key")
    producer = kafka.plain_producer("contract")
    errors: list[Exception | None] = []
    value = Random(1).randbytes(10_000)
    try:
        if what == "topic":
            producer.send("no-such-topic", b"k", b"v", done=errors.append)
        elif what == "partition":
            producer.send(small, b"k", b"v", (), 7, errors.append)
        elif what == "key":
            producer.send(small, None, b"v", (), 0, errors.append)
        else:
            large = value * (1 if what == "size" else 500)
            producer.send(small, b"k", large, (), 0, errors.append)
    except Unanswered as e:  # the client knows it by itself
        errors.append(e)
    answers: list[Exception | None] = []
    producer.send(topic, b"k", b"v", (), 0, answers.append)
    world.until(lambda: errors and answers, "answers")
    assert [type(e) for e in errors] == [Unanswered]
    assert answers == [None]
    assert [r.value for r in read(world, kafka, topic)] == [b"v"]
    producer.close()


def test_of_a_killed_process_what_was_answered_is_there(world: World) -> None:
    topic, kafka, dead = world.topic(), world.process(), world.process(apart=True)
    producer = dead.plain_producer("contract")
    answers: list[Exception | None] = []
    producer.send(topic, b"k", b"0", (), 0, answers.append)
    world.until(lambda: producer.flush(1) == 0, "answered")
    for i in range(1, 4):
        producer.send(topic, b"k", b"%d" % i, (), 0)
    world.kill(dead)
    found = [r.value for r in read(world, kafka, topic)]
    assert found == [b"%d" % i for i in range(len(found))]
    assert found
