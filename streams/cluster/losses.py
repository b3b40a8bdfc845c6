"""Going on after a loss: a person's word, kept where every process finds it.

A partition whose inputs or state are gone stops and names what is lost. Accepting the loss
commits, with all members of the group stopped, an offset without our note: the log's start for
an input, the same offsets for a lost changelog. An offset without a note is an operator's, and
is taken as it is; so it accepts this loss and no later one. Of our note stays which records above
the offset are finished: they are not handed out again. (Kafka's own
``kafka-consumer-groups.sh --reset-offsets`` does the same.)

Where nothing is lost, nothing is accepted: the log's start would be records that were taken long ago.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from perdure.schemas import topics
from perdure.streams.cluster.admin import Admin, Connection
from perdure.streams.cluster.errors import Refused

_INPUTS = (topics.TASKS, topics.RESULTS, topics.APPROVALS, topics.CONTROL, topics.FORWARDED)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where a processor goes on."""

    group: str
    topic: str
    partition: int
    offset: int


def accept_loss(
    connection: Connection,
    prefix: str,
    name: str,
    made_anew: Callable[[str, str, int], bool],
    timeout: float = 30,
) -> list[Accepted]:
    """``name``: ``<topic>-<partition>`` as the stopped partition gave it. ``made_anew`` of a processor, an
    input and a partition: the offsets may be of a topic that was deleted. Raises `Refused`.
    """
    topic, _, number = name.rpartition("-")
    if not topic or not number.isdecimal():
        raise Refused(f"{name}: give <topic>-<partition>, as in agent.tasks-0")
    partition = int(number)
    processor, inputs, of_state = _concerned(topic, name)
    admin = Admin(connection, timeout)
    group = f"{prefix}perdure.{processor}"
    present = admin.members(group)
    if present:
        raise Refused(
            f"the group {group} has {present} members: stop them first, then accept the loss"
        )
    spots = [TopicPartition(prefix + each, partition) for each in inputs]
    if of_state:
        where = admin.committed(group, spots)
    else:
        where = admin.starts(spots)
        kept = _kept(admin, group, where[0])
        if kept is not None and not made_anew(processor, topic, partition):
            raise Refused(
                f"nothing is lost of {name}: the group {group} goes on at offset {kept}. Give the "
                "partition that a process has stopped and named"
            )
    admin.set_offsets(
        group,
        [TopicPartition(s.topic, s.partition, s.offset, _finished(s.metadata)) for s in where],
    )
    return [Accepted(group, s.topic.removeprefix(prefix), s.partition, s.offset) for s in where]


def _kept(admin: Admin, group: str, start: TopicPartition) -> int | None:
    """Where the group goes on by itself: at an offset that the log still has."""
    spot = TopicPartition(start.topic, start.partition)
    found = admin.committed(group, [spot])
    (end,) = admin.ends([spot])
    if not found or not start.offset <= found[0].offset <= end.offset:
        return None
    accepted = not found[0].metadata and found[0].offset == start.offset
    return None if accepted else found[0].offset


def _finished(note: str | None) -> str:
    """Of our note beside an offset, the finished records above it, and not whose it is."""
    try:
        done = json.loads(note or "{}").get("done")
    except (ValueError, AttributeError):
        done = None
    return json.dumps({"done": done}) if done else ""


def _concerned(topic: str, name: str) -> tuple[str, tuple[str, ...], bool]:
    """The processor, its inputs that are set, and whether it is its state that was lost."""
    if topic in _INPUTS:
        return topics.ENGINE, (topic,), False
    if topic.startswith(topics.commands("")):
        return f"worker.{topic.removeprefix(topics.commands(''))}", (topic,), False
    if topic == topics.changelog(topics.ENGINE):
        return topics.ENGINE, _INPUTS, True
    start, end = topics.changelog("worker.").split("worker.")
    if topic.startswith(f"{start}worker.") and topic.endswith(end):
        processor = topic.removeprefix(start).removesuffix(end)
        return processor, (topics.commands(processor.removeprefix("worker.")),), True
    raise Refused(f"{name}: {topic} is no input and no changelog of Perdure's")


def read_again(
    connection: Connection, prefix: str, topic: str, partitions: int, since: int
) -> None:
    """The engines take an input again from ``since`` (ms) on; none may be running."""
    admin = Admin(connection)
    spots = [TopicPartition(prefix + topic, number) for number in range(partitions)]
    admin.set_offsets(f"{prefix}perdure.{topics.ENGINE}", admin.at_time(spots, since))
