"""A tool's result as plain JSON: documented conversions, and an error that names the place.

| Python | JSON |
|---|---|
| None, bool, int (any size), str, finite float | as they are |
| dict (text keys; whole-number keys become text), list, tuple | object, list |
| set, frozenset | list, sorted where that is possible |
| datetime, date, time | ISO 8601 text |
| timedelta | seconds |
| Decimal, UUID, Path | text |
| Enum | its value |
| dataclass, pydantic model, msgspec Struct | object |
| NaN, Infinity, bytes, half characters, depth over 90, anything else | refused |
| what raises when it is read (a lazy row, a property) | refused |
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import pathlib
import uuid
from decimal import Decimal
from typing import Any

import msgspec

from .errors import ResultError, describe

MAX_DEPTH = 90
"""A record holds at most 100, and the result lies some levels down in it."""


def plain(value: Any, path: str = "$.result", depth: int = 0) -> Any:
    """The value as JSON's own types. Raises `ResultError` that names the path, and nothing else: an
    exception out of the value itself says nothing of the call, which has returned."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _refuse(path, "a text with half a character (a lone surrogate)") from None
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _refuse(path, f"{value} is not JSON")
        return value
    if depth >= MAX_DEPTH:
        raise _refuse(path[:200], f"nested deeper than {MAX_DEPTH}")
    try:
        if kind is dict:
            return _object(value, path, depth)
        if kind is list or kind is tuple:
            return [plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return _converted(value, path, depth)
    except ResultError:
        raise
    except Exception as error:
        raise _refuse(path, f"{kind.__name__} can't be read: {describe(error)}") from error


def _object(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, inner in value.items():
        name = key
        if type(key) is not str:
            if isinstance(key, enum.Enum):
                key = key.value
            if isinstance(key, bool) or not isinstance(key, int | str):
                raise _refuse(path, f"the key {key!r:.60} is no text")
            name = str(key)
        if name in out:
            raise _refuse(path, f"the key {name!r:.60} is there twice")
        plain(name, path)
        out[name] = plain(inner, f"{path}.{name}", depth + 1)
    return out


def _converted(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, enum.Enum):
        return plain(value.value, path, depth + 1)
    if isinstance(value, Decimal | uuid.UUID | pathlib.PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        items = [plain(item, f"{path}[...]", depth + 1) for item in value]
        try:
            return sorted(items)
        except TypeError:
            return items
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return _object(fields, path, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _object(fields, path, depth)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return plain(dump(), path, depth + 1)
    bases: tuple[Any, ...] = (dict, str, int, float)
    for base in bases:
        if isinstance(value, base):  # a subclass, such as a defaultdict
            return plain(base(value), path, depth)
    if isinstance(value, list | tuple):
        return [plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise _refuse(
        path, f"{type(value).__name__} has no JSON form: return text, numbers, lists, objects"
    )


def _refuse(path: str, text: str) -> ResultError:
    return ResultError(f"{path}: {text}", "bad_result")
