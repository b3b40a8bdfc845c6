from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.memory import MemoryStore
from perdure.streams.runtime.ports import Spot
from perdure.streams.runtime.store import StoreMeta
from perdure.streams.runtime.timers import (
    HELD_BACK_MS,
    PATIENCE_MS,
    PREFIX,
    Timers,
    parse_timer,
    timer_key,
)

INPUT = Spot("tasks", 0)


class Ends:
    """The broker's answer to where the inputs end."""

    def __init__(self) -> None:
        self.end: int | None = 5  # None: not answered yet
        self.fails = False
        self.asked = 0

    def __call__(self) -> Ends:
        self.asked += 1
        return self

    def done(self) -> bool:
        return self.end is not None

    def result(self) -> Mapping[Spot, int]:
        if self.fails:
            raise Unanswered("broker is away")
        assert self.end is not None
        return {INPUT: self.end}


class Partition:
    def __init__(self, *due: int) -> None:
        self.store = MemoryStore()
        self.write({timer_key(d, b"run/%d" % d): b"\x01" for d in due})
        self.ends = Ends()
        self.position = 5
        self.timers = Timers(self.scan, self.ends)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.store.write(changes, StoreMeta(0, "", 0))

    def scan(self, start: bytes) -> Iterator[bytes]:
        return (k for k, _ in self.store.scan(PREFIX, start))

    def due(self, now: int) -> list[int]:
        return [due for due, _ in self.timers.due(now, lambda spot: self.position) or ()]

    def fire(self, now: int) -> list[int]:
        fired = self.due(now)
        self.write({timer_key(d, b"run/%d" % d): None for d in fired})
        self.timers.done(now, False)
        return fired


@given(st.integers(0, 2**62), st.binary())
def test_keys_are_read_back_and_byte_order_is_time_order(due: int, key: bytes) -> None:
    assert parse_timer(timer_key(due, key)) == (due, key)
    assert timer_key(due, key) < timer_key(due + 1, b"")


def test_due_timers_fire_in_order_once_the_inputs_are_read() -> None:
    partition = Partition(300, 100, 200)
    assert partition.due(99) == []
    partition.position = 4
    assert partition.due(250) == []
    partition.position = 5
    assert partition.fire(260) == [100, 200]
    assert partition.timers.wake_at == 300
    assert partition.fire(1_000) == [300]
    assert partition.timers.wake_at is None


def test_a_timer_waits_for_what_lay_there_when_it_was_first_seen_due() -> None:
    partition = Partition(100)
    partition.ends.end, partition.position = 9, 5
    assert partition.due(100) == []
    partition.ends.end = 1_000  # more came meanwhile: it does not wait for that
    partition.position = 9
    assert partition.due(101) == [100]
    assert partition.ends.asked == 1


def test_one_that_comes_due_later_asks_anew() -> None:
    partition = Partition(100, 200)
    assert partition.fire(150) == [100]
    partition.ends.end = 7
    assert partition.fire(200) == []
    partition.position = 7
    assert partition.fire(201) == [200]


@pytest.mark.parametrize("end", [None, 1_000])
def test_after_a_minute_it_fires_all_the_same(end: int | None) -> None:
    partition = Partition(100)
    partition.ends.end = end
    assert partition.due(100) == []
    assert partition.due(100 + PATIENCE_MS - 1) == []
    assert partition.fire(100 + PATIENCE_MS) == [100]


def test_a_failed_question_is_asked_again() -> None:
    partition = Partition(100)
    partition.ends.fails = True
    assert partition.due(100) == []
    partition.ends.fails = False
    assert partition.due(101) == [100]


def test_a_timer_set_earlier_than_all_others_is_noticed() -> None:
    partition = Partition(500)
    partition.write({timer_key(100, b"run/100"): b"\x01"})
    partition.timers.set(100)
    assert partition.fire(100) == [100]


def test_a_cancelled_timer_does_not_fire() -> None:
    partition = Partition(100, 200)
    partition.write({timer_key(100, b"run/100"): None})
    assert partition.fire(100) == []
    assert partition.timers.wake_at == 200


def test_one_held_back_is_looked_at_again_soon() -> None:
    partition = Partition(100)
    assert partition.due(100) == [100]
    partition.timers.done(100, True)
    assert partition.due(101) == []
    assert partition.timers.wake_at == 100 + HELD_BACK_MS
    assert partition.fire(100 + HELD_BACK_MS) == [100]
