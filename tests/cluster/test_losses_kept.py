"""What stays of the note beside an offset when a loss is accepted."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from perdure.streams.cluster import losses
from perdure.streams.runtime.offsets import HeldRecord, InputOffsets, read_note, unpack_done


class FakeAdmin:
    """A group that nobody is in."""

    def __init__(self, note: str) -> None:
        self._note = note
        self.set: list[TopicPartition] = []

    def members(self, group: str) -> int:
        return 0

    def committed(self, group: str, spots: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(s.topic, s.partition, 100, self._note) for s in spots]

    def starts(self, spots: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(s.topic, s.partition, 150) for s in spots]

    def ends(self, spots: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(s.topic, s.partition, 200) for s in spots]

    def set_offsets(self, group: str, spots: list[TopicPartition]) -> None:
        self.set = spots


def accepted(monkeypatch: pytest.MonkeyPatch, note: str, name: str) -> TopicPartition:
    admin = FakeAdmin(note)
    monkeypatch.setattr(losses, "Admin", lambda *_: admin)
    losses.accept_loss("nowhere:9092", "", name, lambda *_: False)
    return admin.set[0]


def worker_note() -> str:
    """100 is unfinished, 101 to 139 are done."""
    offsets = InputOffsets(100)
    held = HeldRecord("t", 100, lambda _: None)
    offsets.hold(held)
    offsets.advance(140)
    return offsets.note("worker.tools.a")


def test_finished_commands_stay_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    at = accepted(monkeypatch, worker_note(), "agent.worker.tools.changelog-0")
    kept = read_note(at.metadata)
    assert at.offset == 100
    assert unpack_done(100, kept.done) == set(range(101, 140))
    assert kept.id == "", "an operator's word has no owner"


@pytest.mark.parametrize("note", ["", "not ours", "[]", '{"id":"worker.tools.a"}'])
def test_where_none_are_nothing_stays(monkeypatch: pytest.MonkeyPatch, note: str) -> None:
    assert not accepted(monkeypatch, note, "agent.worker.tools.changelog-0").metadata


def test_of_lost_inputs_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    at = accepted(monkeypatch, worker_note(), "agent.commands.tools-0")
    assert (at.offset, at.metadata or "") == (150, "")
