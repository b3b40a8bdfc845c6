"""Canonical JSON and strict JSON: one record, one reading of it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from perdure.schemas import canonical
from perdure.schemas.errors import RecordError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": {"d": [], "c": None}}, '{"a":{"c":null,"d":[]},"b":1}'),
        ({"\U0001f600": 1, "\uffff": 2, "a": 3}, '{"a":3,"\uffff":2,"\U0001f600":1}'),
        ({"é": "ü"}, '{"é":"ü"}'),
        ([2**63 - 1, 2**64, 2**70, -(2**63) - 1], f"[{2**63 - 1},{2**64},{2**70},{-(2**63) - 1}]"),
        (10**40, "1" + "0" * 40),
        ([0.1, 100.0, 1e16, 1e22, 5e-324, -0.0], "[0.1,100.0,1e16,1e22,5e-324,-0.0]"),
        (0.1 + 0.2, "0.30000000000000004"),
        ("a\nb\x00\u2028", '"a\\nb\\u0000\u2028"'),
    ],
)  # fmt: skip
def test_canonical_text(value: Any, text: str) -> None:
    assert canonical.canonical(value).decode() == text
    assert canonical.parse(canonical.canonical(value)) == value


def test_the_order_of_keys_does_not_change_a_digest() -> None:
    first = canonical.digest({"a": 1, "b": [{"x": 1, "y": 2}]})
    assert first == canonical.digest({"b": [{"y": 2, "x": 1}], "a": 1})
    assert first == hashlib.sha256(b'{"a":1,"b":[{"x":1,"y":2}]}').hexdigest()


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, "\ud800", {"a": {1, object}}])
def test_what_is_no_json_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(RecordError):
        canonical.canonical(value)


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (b'{"a":1,"a":2}', "duplicate_key", "a: the key is there twice"),
        (b'{"x":{"b":1,"c":2,"b":1}}', "duplicate_key", "b: "),
        (b'{"a":NaN}', "not_a_number", "NaN is not JSON"),
        (b"[Infinity]", "not_a_number", "Infinity"),
        (b"[-Infinity]", "not_a_number", "-Infinity"),
        (b'{"f":1e400}', "number_range", "1e400 is beyond a double"),
        (b'{"f":-1e400}', "number_range", "beyond a double"),
        (b"[" + b"9" * 5000 + b"]", "number_range", "5000 digits"),
        (b'{"a":"\\ud800"}', "surrogate", "lone surrogate"),
        (b'{"\\uDFFF":1}', "surrogate", "lone surrogate"),
        (b'["ok",["\\ud83dx"]]', "surrogate", "lone surrogate"),
        (b"[" * 101 + b"]" * 101, "too_deep", "deeper than 100"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "too_deep", "deeper than 100"),
        (b"[" * 100_000, "too_deep", "deeper"),
        (b"\xff\xfe\x80\x06not utf8", "not_utf8", "byte 0"),
        (b'{"task_id":"m01-bad","input":', "not_json", "not JSON"),
        (b"", "not_json", "not JSON"),
        (b"{} {}", "not_json", "not JSON"),
        (b"{'a':1}", "not_json", "not JSON"),
        (b"[1,]", "not_json", "not JSON"),
        (b"nul", "not_json", "not JSON"),
        (b"[01]", "not_json", "not JSON"),
        (b'"a\nb"', "not_json", "not JSON"),
    ],
)
def test_strict_json_refuses_by_name(raw: bytes, code: str, words: str) -> None:
    with pytest.raises(RecordError) as caught:
        canonical.parse(raw)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"[" * 100 + b"]" * 100, None),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\ud800"', "\\ud800"),
        (b"[1e-400]", [0.0]),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b" \n{} ", {}),
        (b'["{{{{", "[[["]', ["{{{{", "[[["]),
    ],
)
def test_strict_json_takes_what_is_json(raw: bytes, value: Any) -> None:
    found = canonical.parse(raw)
    assert value is None or found == value


def test_brackets_in_texts_are_not_nesting() -> None:
    assert canonical.parse(b'"' + b"[" * 500 + b'"') == "[" * 500
