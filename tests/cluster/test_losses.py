"""A loss is accepted only where there is one: the log's start may be work that was done long ago."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from perdure.streams.cluster import losses
from perdure.streams.cluster.errors import Refused

NAME = "agent.tasks-0"


class Group:
    """An admin that knows one partition: its log, and the group's offset with its note."""

    def __init__(self, start: int, end: int, committed: int | None, note: str = "{}") -> None:
        self.log = (start, end)
        self.at, self.note = committed, note
        self.set: int | None = None

    def __call__(self, *_: Any) -> Group:
        return self

    def members(self, group: str) -> int:
        return 0

    def _spot(self, spots: Sequence[TopicPartition], offset: int) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, offset) for each in spots]

    def starts(self, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        return self._spot(spots, self.log[0])

    def ends(self, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        return self._spot(spots, self.log[1])

    def committed(self, group: str, spots: Sequence[TopicPartition]) -> list[TopicPartition]:
        if self.at is None:
            return []
        return [TopicPartition(s.topic, s.partition, self.at, self.note) for s in spots]

    def set_offsets(self, group: str, spots: Sequence[TopicPartition]) -> None:
        (spot,) = spots
        self.set = spot.offset


@pytest.fixture
def accept(monkeypatch: pytest.MonkeyPatch) -> Any:
    def ask(group: Group, made_anew: bool = False) -> list[losses.Accepted]:
        monkeypatch.setattr(losses, "Admin", group)
        return losses.accept_loss("x:1", "", NAME, lambda *_: made_anew)

    return ask


@pytest.mark.parametrize("at", [3, 7, 10])
def test_where_nothing_is_lost_nothing_is_rewound(accept: Any, at: int) -> None:
    group = Group(3, 10, at)
    with pytest.raises(Refused, match=rf"nothing is lost of {NAME}.* goes on at offset {at}"):
        accept(group)
    assert group.set is None


@pytest.mark.parametrize("at", [None, 2, 11])
def test_an_offset_that_the_log_has_no_more_is_lost(accept: Any, at: int | None) -> None:
    group = Group(3, 10, at)
    (accepted,) = accept(group)
    assert (accepted.offset, group.set) == (3, 3)


def test_an_offset_of_a_topic_that_was_deleted_is_lost(accept: Any) -> None:
    group = Group(0, 10, 7)
    accept(group, made_anew=True)
    assert group.set == 0


def test_a_loss_may_be_accepted_twice(accept: Any) -> None:
    group = Group(3, 10, 3, note="")
    accept(group)
    assert group.set == 3
