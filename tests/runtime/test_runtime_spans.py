"""Ids of spans are made of names, and headers are read as W3C Trace Context says."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.spans import Trace, is_sampled, span_id, trace_id, trace_of

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_ids_are_the_same_on_every_machine_and_in_every_version() -> None:
    assert trace_id("r/0a0a0a0a") == "16fc14daba2a8dba22321b53bde3524e"
    assert span_id("r/1") == "cb6c25a5d19ae4b5"
    assert span_id("r/1") != span_id("r/2")


def test_a_header_is_read_and_written() -> None:
    trace = trace_of(GOOD.encode())
    assert trace == Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
    assert trace.header == GOOD
    off = trace_of(GOOD[:-2] + "00")
    assert off is not None
    assert not off.sampled
    assert trace_of("01" + GOOD[2:] + "-more") == trace  # of a later version what is known


@pytest.mark.parametrize(
    "header",
    [
        None, b"\xff", "", "00-1", GOOD + "-more", GOOD.upper(), "ff" + GOOD[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    ],
)  # fmt: skip
def test_what_is_no_header_is_none(header: str | bytes | None) -> None:
    assert trace_of(header) is None


def test_a_share_of_traces_is_the_same_share_everywhere() -> None:
    ids = [trace_id(str(n)) for n in range(1_000)]
    assert sum(is_sampled(one, 0.25) for one in ids) == pytest.approx(250, abs=50)
    assert all(is_sampled(one, 1.0) for one in ids)
    assert not any(is_sampled(one, 0.0) for one in ids)
