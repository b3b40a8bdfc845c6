"""Canonical JSON, strict JSON and digests (contract sections 1 and 3).

Canonical: UTF-8, keys sorted by code point, no blanks, integers exact, floats in shortest form.
Strict: duplicate keys, NaN, Infinity, numbers beyond a double, lone surrogates and nesting
deeper than 100 are refused by name, so that no two readers can see two different records.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import msgspec

from .errors import RecordError

MAX_DEPTH = 100
_MAX_DIGITS = 4000  # an integer longer than this is an attack, not a number

_encoder = msgspec.json.Encoder(order="sorted")
_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> bytes:
    """The canonical JSON of plain values and record structs. Raises `RecordError` for others."""
    try:
        return _encoder.encode(value)
    except (TypeError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise RecordError("", f"is not JSON: {error}", "not_json") from error


def digest(value: Any) -> str:
    """SHA-256 over the canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RecordError(_short(key), "the key is there twice", "duplicate_key")
            seen.add(key)
    return record


def _constant(name: str) -> Any:
    raise RecordError("", f"{name} is not JSON", "not_a_number")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise RecordError("", f"the number {_short(text)} is beyond a double", "number_range")
    return number


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise RecordError("", f"an integer of {len(text)} digits", "number_range")
    return int(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_constant=_constant,
    parse_float=_float,
    parse_int=_int,
)


def parse(raw: bytes | str, depth: int = MAX_DEPTH) -> Any:
    """Strict JSON. Raises `RecordError` that says what is wrong and where."""
    if isinstance(raw, bytes):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RecordError("", f"not UTF-8 at byte {error.start}", "not_utf8") from error
    else:
        text = raw
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise RecordError(
            "", f"not JSON: {error.msg} at character {error.pos}", "not_json"
        ) from error
    except RecursionError as error:
        raise RecordError("", f"nested deeper than {depth}", "too_deep") from error
    if text.count("[") + text.count("{") > depth:
        check_depth(value, depth)
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        _check_surrogates(value)
    return value


def check_depth(value: Any, depth: int = MAX_DEPTH) -> None:
    """Raise `RecordError` when nested deeper than ``depth``."""
    level: list[Any] = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (
                outer.values()
                if isinstance(outer, dict)
                else outer
                if isinstance(outer, list)
                else ()
            )
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecordError("", f"nested deeper than {depth}", "too_deep")


def _check_surrogates(value: Any) -> None:
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise RecordError("", "a text holds half a character (a lone surrogate)", "surrogate")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_surrogates(key)
            _check_surrogates(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_surrogates(inner)


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
