"""The line of a run: what the core says, whatever the batches are; nothing counts twice."""

from __future__ import annotations

import msgspec
import pytest
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import fold
from perdure.streams.core.policies.outcome import usage, waiting_for
from perdure.streams.views.projections.rows import Row, public, text_of
from perdure.streams.views.projector import Folded, Projector, history

from .histories import NAMES, golden, raw
from .world import DictTables


def projected(events: list[RunEvent], size: int, projector: Projector | None = None) -> DictTables:
    tables, made = DictTables(), projector or Projector()
    for first in range(0, len(events), size):
        made.take(tables, raw(events[first : first + size]))
    return tables


def row_of(tables: DictTables, run_id: str) -> Row:
    row = tables.row(run_id)
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("two\nlines", "two lines"),
        ({"order": "A-1", "amount": 2**70, "items": [1, {"a": 1}]}, f'order A-1, amount {2**70}, items [1,{{"a":1}}]'),
        ([1, 2], "[1,2]"),
        (None, ""),
        ({}, ""),
        ("x" * 500, "x" * 200),
    ],
)  # fmt: skip
def test_a_tasks_input_is_one_line_that_people_read(value: object, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("name", NAMES)
def test_the_row_says_what_the_core_says_after_every_event(name: str) -> None:
    events = golden(name)
    tables, projector = DictTables(), Projector()
    for number, event in enumerate(events, 1):
        projector.take(tables, raw([event]))
        run = fold(golden(name)[:number])
        assert run is not None
        row = row_of(tables, event.run_id)
        header = run.header
        assert (row.status, row.paused, row.version) == (header.status, header.paused, number)
        assert (row.steps_done, row.steps_total) == (header.steps_done, header.steps_total)
        assert row.current_step == header.current_step
        assert row.waiting_for == waiting_for(run)
        assert row.usage == usage(run)
        assert row.updated_at == header.updated_at
        assert row.finished_at == header.finished_at
        assert not row.gap


@pytest.mark.parametrize("name", NAMES)
def test_batches_repeats_and_forgotten_states_change_nothing(name: str) -> None:
    events = golden(name)
    run_id = events[0].run_id
    whole = row_of(projected(events, len(events)), run_id)
    forgetful = Projector(Folded(most=0))
    for size, projector in ((1, None), (7, None), (1, forgetful)):
        row = row_of(projected(events, size, projector), run_id)
        assert msgspec.structs.replace(row, chunks=whole.chunks) == whole
    tables, projector = projected(events, 5), Projector()
    before = (dict(tables.rows), dict(tables.chunks))
    assert projector.take(tables, raw(events[3:])) == []
    assert projector.take(tables, raw(events[:9])) == []
    assert (tables.rows, tables.chunks) == before


def test_a_batch_that_comes_again_after_a_death_between_its_writes_is_written_once() -> None:
    events = golden("0.1-first-plan")
    tables = projected(events[:10], 10)
    run_id = events[0].run_id
    projector = Projector()
    projector.take(tables, raw(events[10:15]))
    tables.put_row(row_of(projected(events[:10], 10), run_id))  # the row of before: never stored
    Projector().take(tables, raw(events[10:]))
    assert history(tables, row_of(tables, run_id)) == events


class Host(DictTables):
    """A store that has all, and the changelog behind it, which loses what is sent while `cut`."""

    def __init__(self) -> None:
        super().__init__()
        self.changelog = DictTables()
        self.cut: set[str] = set()

    def put_row(self, row: Row) -> None:
        super().put_row(row)
        if "rows" not in self.cut:
            self.changelog.put_row(row)

    def put_chunk(self, run_id: str, number: int, chunk: bytes) -> None:
        super().put_chunk(run_id, number, chunk)
        if "chunks" not in self.cut:
            self.changelog.put_chunk(run_id, number, chunk)


@pytest.mark.parametrize("cut", [{"rows"}, {"chunks"}, {"rows", "chunks"}])
@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_died_on_its_way_to_the_changelog_is_there_after_the_batch_came_again(
    cut: set[str], size: int, elsewhere: bool
) -> None:
    """A kill -9 between the store and the changelog: the next owner has the changelog alone."""
    events = golden("0.1-first-model_loop")
    host, run_id = Host(), events[0].run_id
    Projector().take(host, raw(events[:9]))
    host.cut = cut
    for first in range(9, 15, size):
        Projector().take(host, raw(events[first : min(first + size, 15)]))
    host.cut = set()
    owner = host.changelog if elsewhere else host  # the batch comes again, and what follows it
    projector = Projector()
    for first in range(9, len(events), size):
        projector.take(owner, raw(events[first : first + size]))
    whole = row_of(projected(events, 40), run_id)
    made = row_of(host.changelog, run_id)
    assert msgspec.structs.replace(made, chunks=whole.chunks) == whole
    assert history(host.changelog, made) == events


def test_an_id_that_begins_anew_is_the_new_run() -> None:
    """Its time had passed in the engine: contract section 6."""
    old = golden("0.1-first-model_loop", "r1", 1_750_000_000_000, user_id="old")
    new = golden("0.1-first-plan", "r1", 1_760_000_000_000, user_id="new")
    for batches in ([old, new], [old + new], [old[:9], old[4:] + new[:3], new]):
        tables, projector = DictTables(), Projector()
        for batch in batches:
            projector.take(tables, raw(batch))
        row = row_of(tables, "r1")
        fresh = row_of(projected(new, 40), "r1")
        assert msgspec.structs.replace(row, chunks=fresh.chunks) == fresh
        assert history(tables, row) == new


def test_a_run_first_seen_in_the_middle_says_so_and_follows_the_end() -> None:
    events = golden("0.1-first-model_loop")
    tables = projected(events[5:], 4)
    row = row_of(tables, events[0].run_id)
    assert row.gap
    assert (row.status, row.version, row.finished_at) == ("done", events[-1].version, events[-1].at)
    shown = public(row, complete=None, quarantined=False)
    assert shown["incomplete"] is True
    assert set(shown) & {"gap", "chunks", "first", "minutes", "calls"} == set()


def test_a_missing_event_is_a_gap_and_no_wrong_state() -> None:
    events = golden("0.1-first-plan")
    tables = projected(events[:8] + events[9:], 3)
    row = row_of(tables, events[0].run_id)
    assert row.gap
    assert (row.status, row.version) == (fold(events).header.status, len(events))  # type: ignore[union-attr]


def test_an_event_of_a_newer_version_does_not_stop_the_view() -> None:
    events = golden("0.1-first-plan")
    events[4].type = "something_new"
    row = row_of(projected(events, 3), events[0].run_id)
    assert row.gap
    assert row.version == len(events)


def test_what_is_no_event_is_counted_and_left_out() -> None:
    projector = Projector()
    assert projector.take(DictTables(), [b"{", b"[]", None, b"\xff"]) == []
    assert (projector.bad, projector.events) == (4, 0)


def test_minutes_hold_each_step_and_end_once() -> None:
    events = golden("0.1-first-model_loop", at=60_000_000)
    row = row_of(projected(events, 3), events[0].run_id)
    sums = [sum(counts) for counts in zip(*row.minutes.values(), strict=True)]
    run = fold(events)
    assert run is not None
    assert sums[:4] == [1, 1, 0, run.header.step]
    assert sums[4] == run.header.input_tokens + run.header.output_tokens
