"""Forwarding and dead letters, as bytes."""

from __future__ import annotations

import hashlib

import pytest
from perdure.streams.runtime.dead_letters import KEPT, dead_letter
from perdure.streams.runtime.forwarding import Misrouted, forward, unwrap
from perdure.streams.runtime.processor import Record

RECORD = Record(
    "agent.tasks",
    3,
    17,
    1_700_000_000_000,
    b"\xff no utf-8",
    b"{}",
    [("traceparent", b"00-1"), ("none", None)],
)


def arrived(output: tuple) -> Record:
    topic, key, value, headers, partition = output
    return Record(topic, partition, 99, 5, key, value, headers)


@pytest.mark.parametrize("key", [b"k", b"", None])
@pytest.mark.parametrize("value", [b"v", b"", None, b"x" * 4_000_000])
def test_a_forwarded_record_arrives_as_it_was(key: bytes | None, value: bytes | None) -> None:
    record = Record("agent.tasks", 3, 17, 1_700_000_000_000, key, value, RECORD.headers)
    output = forward(record, "agent.forwarded", "run-1", 5)
    assert (output[0], output[1], output[4]) == ("agent.forwarded", b"run-1", 5)
    found = unwrap(arrived(output))
    assert (found.topic, found.partition, found.offset, found.timestamp) == (
        "agent.tasks",
        3,
        17,
        1_700_000_000_000,
    )
    assert (found.key, found.value, list(found.headers)) == (key, value, list(RECORD.headers))


def test_headers_put_there_by_a_producer_do_not_pass_for_ours() -> None:
    forged = [("perdure-origin-topic", b"agent.approvals"), ("perdure-origin-offset", b"1")]
    record = Record("agent.tasks", 0, 2, 3, b"k", b"v", forged)
    found = unwrap(arrived(forward(record, "agent.forwarded", "run-1", 5)))
    assert (found.topic, found.offset, list(found.headers)) == ("agent.tasks", 2, forged)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        [("perdure-origin-topic", b"t")],
        [("perdure-origin-topic", None), ("perdure-origin-partition", b"0"), ("perdure-origin-offset", b"0"), ("perdure-origin-timestamp", b"0"), ("perdure-origin-key", None)],
        [("perdure-origin-topic", b"t"), ("perdure-origin-partition", b"x"), ("perdure-origin-offset", b"0"), ("perdure-origin-timestamp", b"0"), ("perdure-origin-key", None)],
        [("perdure-origin-topic", b"\xff"), ("perdure-origin-partition", b"0"), ("perdure-origin-offset", b"0"), ("perdure-origin-timestamp", b"0"), ("perdure-origin-key", None)],
    ],
)  # fmt: skip
def test_a_record_nobody_forwarded_is_misrouted(headers: list) -> None:
    with pytest.raises(Misrouted):
        unwrap(Record("agent.forwarded", 0, 0, 0, b"k", b"v", headers))


def test_a_dead_letter_says_what_and_where() -> None:
    topic, key, value, headers, _ = dead_letter(RECORD, "malformed", "line 1: \udc80")
    assert (topic, key, value) == ("agent.dead-letters", RECORD.key, RECORD.value)
    assert dict(headers) == {
        "reason": b"malformed",
        "detail": b"line 1: ?",
        "topic": b"agent.tasks",
        "partition": b"3",
        "offset": b"17",
        "timestamp": b"1700000000000",
    }


def test_one_that_does_not_fit_is_cut_and_says_so() -> None:
    big = b"x" * 1_000_001
    *_, value, headers, _ = dead_letter(Record("t", 0, 0, 0, big, big), "too_large", "d")
    assert value == big[:KEPT]
    assert dict(headers)["length"] == b"1000001"
    assert dict(headers)["sha256"] == hashlib.sha256(big).hexdigest().encode()
    assert dict(headers)["key_length"] == b"1000001"


def test_a_null_value_is_kept_null() -> None:
    assert dead_letter(Record("t", 0, 0, 0, None, None), "empty", "")[1:3] == (None, None)
