"""Avro: schemas generated from the record structs, and the codec of stored state.

Stored values are ``<8 bytes schema fingerprint><Avro>``. The writer's schema is found by its
fingerprint among the committed ``avsc/state/*.avsc``, so state written by an older version is
read through schema resolution. `write_schemas` regenerates the files; a test compares them.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import fastavro
import msgspec
from msgspec import inspect

from .errors import RecordError

T = TypeVar("T", bound=msgspec.Struct)

DIRECTORY = Path(__file__).parent / "avsc"
JSON_TEXT = {"type": "string", "perdure": "json"}
_PLAIN: dict[type, Any] = {
    inspect.StrType: "string",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.LiteralType: "string",
    inspect.BytesType: "bytes",
}


def schema_of(kind: type[msgspec.Struct], nested: bool = True) -> dict[str, Any]:
    """The Avro schema of a struct, with its docs. ``nested`` False stores inner structs as JSON."""
    return _record(kind, nested, set())


def _record(kind: type[msgspec.Struct], nested: bool, seen: set[str]) -> dict[str, Any]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    seen.add(kind.__name__)
    fields = []
    for member in info.fields:
        text = ""
        hint = member.type
        while isinstance(hint, inspect.Metadata):
            text = text or str((hint.extra_json_schema or {}).get("description", ""))
            hint = hint.type
        made: dict[str, Any] = {
            "name": member.encode_name,
            "type": _type(hint, nested, seen),
            "doc": text,
        }
        if not member.required:
            made["default"] = _default(member, made["type"])
        fields.append(made)
    return {
        "type": "record",
        "name": kind.__name__,
        "namespace": "perdure",
        "doc": (kind.__doc__ or "").strip().split("\n")[0],
        "fields": fields,
    }


def _type(hint: Any, nested: bool, seen: set[str]) -> Any:
    while isinstance(hint, inspect.Metadata):
        hint = hint.type
    plain = _PLAIN.get(type(hint))
    if plain is not None:
        return plain
    if isinstance(hint, inspect.UnionType):
        others = [t for t in hint.types if not isinstance(t, inspect.NoneType)]
        if len(others) == 1:
            return ["null", _type(others[0], nested, seen)]
    if isinstance(hint, inspect.ListType):
        item = _type(hint.item_type, nested, seen)
        return JSON_TEXT if item == JSON_TEXT else {"type": "array", "items": item}
    if isinstance(hint, inspect.DictType) and type(hint.value_type) in (
        inspect.StrType,
        inspect.IntType,
    ):
        return {"type": "map", "values": _type(hint.value_type, nested, seen)}
    if isinstance(hint, inspect.StructType) and nested:
        return hint.cls.__name__ if hint.cls.__name__ in seen else _record(hint.cls, nested, seen)
    return JSON_TEXT


def _default(member: inspect.Field, made: Any) -> Any:
    if made == JSON_TEXT:
        value = member.default_factory() if callable(member.default_factory) else member.default
        return json.dumps(None if value is msgspec.NODEFAULT else msgspec.to_builtins(value))
    if isinstance(made, list):
        return None
    value = member.default_factory() if callable(member.default_factory) else member.default
    return msgspec.to_builtins(value)


def fingerprint(schema: dict[str, Any]) -> bytes:
    """First 8 bytes of SHA-256 over the schema without its docs (a doc changes no bytes)."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items() if key != "doc"}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    text = json.dumps(bare(schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:8]


class _Prepared(NamedTuple):
    """What encodes and decodes one struct; dear to make, never changed."""

    mark: bytes
    schema: Any
    writers: dict[bytes, Any]
    json: list[str]
    readers: dict[str, Callable[[str], Any]]


def _prepared(kind: type[msgspec.Struct], history: dict[bytes, dict[str, Any]]) -> _Prepared:
    schema = schema_of(kind, nested=False)
    mark, parsed = fingerprint(schema), fastavro.parse_schema(schema)
    writers = {
        known: fastavro.parse_schema(old)
        for known, old in history.items()
        if old["name"] == kind.__name__
    }
    # Fields that are JSON, also where Avro itself spells out the union with null.
    texts = [
        field["name"]
        for field in schema["fields"]
        if field["type"] in (JSON_TEXT, ["null", JSON_TEXT])
    ]
    hints = typing.get_type_hints(kind, include_extras=True)
    readers: dict[str, Callable[[str], Any]] = {
        name: msgspec.json.Decoder(hints[name]).decode for name in texts
    }
    return _Prepared(mark, parsed, {**writers, mark: parsed}, texts, readers)


@functools.cache
def _current(kind: type[msgspec.Struct]) -> _Prepared:
    """With the history that is committed: 40 ms less at each start of an engine."""
    return _prepared(kind, _history())


class StateCodec(Generic[T]):
    """Encodes one struct as fingerprinted Avro; inner structs and free-form values as JSON text."""

    def __init__(self, kind: type[T], history: dict[bytes, dict[str, Any]] | None = None) -> None:
        made = _current(kind) if history is None else _prepared(kind, history)
        self._kind = kind
        self._mark = made.mark
        self._schema = made.schema
        self._writers = made.writers
        self._json = made.json
        self._readers = made.readers

    def encode(self, value: T) -> bytes:
        """Stored bytes. Raises `RecordError` where a value is no JSON or does not fit its type."""
        plain = msgspec.structs.asdict(value)
        out = io.BytesIO()
        out.write(self._mark)
        try:
            for name in self._json:
                inner = plain[name]
                plain[name] = _encode_json(inner)
            fastavro.schemaless_writer(out, self._schema, plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise RecordError(
                self._kind.__name__, f"can't be stored: {error}", "not_storable"
            ) from error
        return out.getvalue()

    def decode(self, raw: bytes) -> T:
        """The value, through schema resolution when an older version wrote it."""
        writer = self._writers.get(raw[:8])
        if writer is None:
            raise RecordError(
                self._kind.__name__,
                f"stored by an unknown version (schema {raw[:8].hex()}): run the version that wrote it, or a newer one",
                "unknown_schema",
            )
        body = io.BytesIO(raw)
        body.seek(8)
        plain: Any = (
            fastavro.schemaless_reader(body, writer, None)
            if writer is self._schema
            else fastavro.schemaless_reader(body, writer, self._schema)
        )
        for name, read in self._readers.items():
            text = plain[name]
            plain[name] = None if text is None else read(text)
        return self._kind(**plain)


_json_encoder = msgspec.json.Encoder()


def _encode_json(value: Any) -> str:
    return _json_encoder.encode(value).decode()


def _struct_info(kind: type[msgspec.Struct]) -> inspect.StructType:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info


@functools.cache
def _history() -> dict[bytes, dict[str, Any]]:
    found: dict[bytes, dict[str, Any]] = {}
    for path in sorted((DIRECTORY / "state").glob("*.avsc")):
        schema = json.loads(path.read_text())
        found[fingerprint(schema)] = schema
    return found


def write_schemas(
    public: tuple[type[msgspec.Struct], ...], state: tuple[type[msgspec.Struct], ...]
) -> list[Path]:
    """Write ``avsc/<Name>.avsc`` and ``avsc/state/<Name>.<fingerprint>.avsc``; old state ones stay."""
    written = []
    (DIRECTORY / "state").mkdir(exist_ok=True)
    for kind in public:
        path = DIRECTORY / f"{kind.__name__}.avsc"
        path.write_text(render(schema_of(kind)))
        written.append(path)
    for kind in state:
        schema = schema_of(kind, nested=False)
        path = DIRECTORY / "state" / f"{kind.__name__}.{fingerprint(schema).hex()}.avsc"
        path.write_text(render(schema))
        written.append(path)
    return written


def render(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
