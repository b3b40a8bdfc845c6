"""What the runtime measures of itself, and the numbers it is kept in."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from perdure.streams.runtime.errors import Aborted
from perdure.streams.runtime.measures import Counter, Histogram, Names
from perdure.streams.runtime.processor import Context, Message, Undecodable

from tests.runtime.test_runtime_cycle import World, count


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    seen = Histogram("t", "", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 1, 7):
        seen.observe(value)
    assert seen.values() == {(): ([2, 4, 5], pytest.approx(8.65))}


def test_a_label_has_so_many_values_and_no_more() -> None:
    names = Names(2)
    assert [names.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]  # fmt: skip
    assert Names().of("\ud800") == "?"  # a lone surrogate has no place in a text of UTF-8


def test_no_count_of_two_threads_is_lost() -> None:
    counter = Counter("n", "", ("by",))

    def add() -> None:
        for _ in range(20_000):
            counter.add(("x",))

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.values() == {("x",): 60_000}


def families(world: World) -> dict[str, object]:
    return {family.name: family.values() for family in world.cycle._health.families}


def test_a_takeover_is_measured_with_what_was_read(tmp_path: Path) -> None:
    world = World(tmp_path, process=count).live()
    world.put(b"{}", b"{}")
    world.step()
    written = len(world.kafka.log)
    world.stores.wipe(0)
    world.kafka.committed_offsets = dict(world.kafka.positions)
    world.start()
    world.live()
    seen = families(world)
    assert seen["restored_records"] == {(): written}
    ((counts, seconds),) = seen["takeover_seconds"].values()  # type: ignore[attr-defined]
    assert counts[-1] == 1
    assert 0 < seconds < 1


def test_a_transaction_is_measured_once_it_is_answered(tmp_path: Path) -> None:
    world = World(tmp_path, process=count).live()
    before = families(world)["transaction_seconds"][()][0][-1]  # type: ignore[index]
    world.kafka.faults["commit"] = Aborted("now")
    world.put(b"{}", b"{}", b"{}")
    world.step()
    assert families(world)["transaction_seconds"][()][0][-1] == before  # type: ignore[index]
    world.step()
    seen = families(world)
    assert seen["transaction_seconds"][()][0][-1] == before + 1  # type: ignore[index]
    assert seen["batch_inputs"][()] == ([0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 3)  # type: ignore[index]
    assert seen["cycle_seconds"][()][0][-1] == 1  # type: ignore[index]


def test_dead_letters_are_counted_by_reason_and_not_for_an_aborted_cycle(tmp_path: Path) -> None:
    def bury(self: object, ctx: Context, message: Message) -> None:
        if message.record.value == b'{"n":2}':
            ctx.dead_letter(message.record, "conflict", "it is taken")
        else:
            raise Undecodable("not_json", "here")

    world = World(tmp_path, process=bury).live()
    world.kafka.faults["commit"] = Aborted("now")
    world.put(b"{}", b'{"n":2}', b"{}")
    world.step()
    assert families(world)["dead_letters"] == {}
    world.step()
    assert families(world)["dead_letters"] == {("not_json",): 2, ("conflict",): 1}
