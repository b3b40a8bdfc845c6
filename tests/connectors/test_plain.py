from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from perdure.connectors.errors import ResultError
from perdure.connectors.plain import plain
from pydantic import BaseModel


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Model(BaseModel):
    when: datetime.date


class Row(msgspec.Struct):
    a: int


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        (None, None),
        (2**80, 2**80),
        ((1, "a", True, 1.5), [1, "a", True, 1.5]),
        ({"b", "a"}, ["a", "b"]),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
        (datetime.timedelta(minutes=1), 60.0),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        ({1: "a"}, {"1": "a"}),
        (Point(2), {"x": 2}),
        (Model(when=datetime.date(2026, 1, 2)), {"when": "2026-01-02"}),
        (Row(3), {"a": 3}),
        (defaultdict(int, a=1), {"a": 1}),
    ],
)
def test_conversions(value: Any, is_json: Any) -> None:
    assert plain(value) == is_json


def _deep(depth: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(depth):
        out = [out]
    return out


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"rows": [{"when": object()}]}, "$.result.rows[0].when: object has no JSON form"),
        ({"a": b"x"}, "$.result.a: bytes"),
        ([1, float("nan")], "$.result[1]: nan"),
        ([float("inf")], "$.result[0]: inf"),
        ({"a": "\ud800"}, "$.result.a: a text with half a character"),
        ({(1, 2): 1}, "the key (1, 2) is no text"),
        ({1: "a", "1": "b"}, "the key '1' is there twice"),
        (_deep(91), "nested deeper than 90"),
    ],
)
def test_refusals_name_the_place(value: Any, says: str) -> None:
    with pytest.raises(ResultError) as raised:
        plain(value)
    assert says in str(raised.value)


class Lazy:
    """What reads its rows when it is made JSON, and then has no connection."""

    def model_dump(self) -> Any:
        raise ConnectionRefusedError("no database")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Mute:
    def model_dump(self) -> Any:
        raise Unspeakable


class Keyed:
    def __repr__(self) -> str:
        raise LookupError("nor this")


class Rows(list[Any]):
    def __iter__(self) -> Any:
        raise TimeoutError("no rows")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"rows": [Lazy()]}, "$.result.rows[0]: Lazy can't be read: ConnectionRefusedError"),
        ({"a": Mute()}, "$.result.a: Mute can't be read: Unspeakable"),
        ({"a": {Keyed(): 1}}, "$.result.a: dict can't be read: LookupError: nor this"),
        (Rows([1]), "$.result: Rows can't be read: TimeoutError: no rows"),
    ],
)
def test_what_raises_when_it_is_read_is_refused_too(value: Any, says: str) -> None:
    with pytest.raises(ResultError, match="can't be read") as raised:
        plain(value)
    assert says in str(raised.value)
