from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.streams.runtime.offsets import (
    MAX_DONE_TEXT,
    HeldRecord,
    InputOffsets,
    OffsetNote,
    read_note,
    unpack_done,
)


def hold(offsets: InputOffsets, offset: int) -> HeldRecord:
    held = HeldRecord("t", offset, offsets.finish)
    offsets.hold(held)
    offsets.advance(offset + 1)
    return held


def test_the_committed_offset_is_the_lowest_unfinished() -> None:
    offsets = InputOffsets(10)
    first, second = hold(offsets, 10), hold(offsets, 11)
    offsets.advance(13)  # 12 was done at once
    assert (offsets.committed, offsets.position, offsets.span) == (10, 13, 3)
    assert unpack_done(10, offsets.done()) == {12}
    second.finish()
    assert unpack_done(10, offsets.done()) == {11, 12}
    first.finish()
    first.finish()
    assert (offsets.committed, offsets.done(), offsets.unfinished) == (13, "", 0)


def test_a_new_owner_does_not_hand_out_what_is_finished() -> None:
    offsets = InputOffsets(10, {11, 13, 14})
    assert not offsets.is_done(10)
    hold(offsets, 10)
    assert offsets.position == 12  # 11 is passed with it
    assert unpack_done(10, offsets.done()) == {11, 13, 14}
    hold(offsets, 12)
    assert offsets.position == 15
    assert unpack_done(10, offsets.done()) == {11, 13, 14}


def test_a_rewound_cycle_leaves_no_trace() -> None:
    offsets = InputOffsets(10, {12})
    kept = hold(offsets, 10)
    offsets.settle()
    void = hold(offsets, 11)
    assert offsets.position == 13
    offsets.rewind()
    assert (offsets.position, offsets.unfinished, offsets.is_done(12)) == (11, 1, True)
    again = hold(offsets, 11)
    void.finish()  # belongs to the aborted cycle: the record was taken again
    assert offsets.unfinished == 2
    again.finish()
    kept.finish()
    assert offsets.committed == 13


def test_the_note_carries_the_owner_and_stays_small() -> None:
    offsets = InputOffsets(0)
    hold(offsets, 0)
    offsets.advance(100_000)
    note = offsets.note("p.engine.host")
    assert len(note) < MAX_DONE_TEXT + 100
    assert read_note(note).id == "p.engine.host"
    assert 1 in unpack_done(0, read_note(note).done)


@pytest.mark.parametrize("metadata", ["", "{", "[]", '{"id": 1}', "\udc80", "another tool's"])
def test_metadata_of_others_is_an_empty_note(metadata: str) -> None:
    assert read_note(metadata) == OffsetNote()


@given(st.integers(0, 2**40), st.sets(st.integers(0, 1_000)), st.integers(1, 1_000))
def test_what_is_packed_is_unpacked(base: int, finished: set[int], span: int) -> None:
    offsets = InputOffsets(base)
    held = [hold(offsets, base + i) for i in range(span)]
    for i in finished:
        if 0 < i < span:
            held[i].finish()
    expected = {base + i for i in finished if 0 < i < span}
    assert unpack_done(base, offsets.done()) == expected
