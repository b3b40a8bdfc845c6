"""Whether the inputs are those that were read: the last entry of a changelog says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from perdure.streams.runtime.offsets import StoredOffsets, encode_stored
from perdure.streams.runtime.store import OFFSETS_KEY

from perdure.cli import topics
from perdure.settings import Settings
from perdure.topics_reader import NoTopic, Raw


def entry(topic_id: str) -> bytes:
    return encode_stored(StoredOffsets(2, 1, {}, {"agent.tasks": topic_id}))


class Log:
    """A changelog of two partitions, read from where it is asked to."""

    def __init__(self, *values: tuple[int, bytes, bytes | None]) -> None:
        self.records = [
            Raw("c", partition, at, 0, key, value)
            for at, (partition, key, value) in enumerate(values)
        ]

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], int]:
        return {(names[0], 0): len(self.records), (names[0], 1): len(self.records)}

    def scan(self, names: Sequence[str], starts: Any) -> Iterator[Raw | None]:
        for raw in self.records:
            if raw.offset >= starts[names[0], raw.partition]:
                yield raw
        yield None


def test_the_last_entry_of_the_partition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TAIL", 4)
    log = Log(
        (0, OFFSETS_KEY, entry("old")),
        (0, b"r/x", b"1"),
        (0, OFFSETS_KEY, entry("new")),
        (1, OFFSETS_KEY, entry("other")),
        (0, b"r/y", None),
    )
    found = topics.last_offsets(log, "c", 0)  # type: ignore[arg-type]
    assert found is not None
    assert found.topic_ids == {"agent.tasks": "new"}
    assert topics.last_offsets(Log((1, OFFSETS_KEY, entry("other"))), "c", 0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "anew"), [(entry("id-1"), False), (entry("id-0"), True), (None, True)]
)
def test_an_input_is_told_from_one_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch, stored: bytes | None, anew: bool
) -> None:
    class Kafka:
        """Whose topics all have one id."""

        def __init__(self, _: Any) -> None: ...

        def admin(self) -> Kafka:
            return self

        def topic_ids(self, names: Sequence[str]) -> Kafka:
            return self

        def result(self) -> dict[str, str]:
            return {"agent.tasks": "id-1"}

    log = Missing() if stored is None else Log((0, OFFSETS_KEY, stored))
    monkeypatch.setattr(topics, "ConfluentKafka", Kafka)
    monkeypatch.setattr(topics, "Scanner", lambda *_: log)
    made = Settings(bootstrap_servers="x:1")
    assert topics._made_anew(made, "engine", "agent.tasks", 0) is anew


class Missing:
    def ends(self, names: Sequence[str]) -> None:
        raise NoTopic("gone")
