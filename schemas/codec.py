"""Records to bytes and back (contract section 3): JSON on the topics, strict at the edge.

A record is recognised by its first byte: ``{`` is JSON, ``0x00`` Confluent framing (Avro).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from . import canonical, records
from .errors import RecordError

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()

_INBOUND = (records.Task, records.ApprovalDecision, records.ControlRequest, records.ActionResult)
_OUR_DEPTH = 3 * canonical.MAX_DEPTH
"""What we write wraps what came in: a result inside arguments inside a command."""

_PATTERNS = {
    records.ID_PATTERN: "must be 1 to 200 characters of letters, digits and - _ . : @ (~ in ids made by Perdure), and neither `.` nor `..`",
    records.USER_ID_PATTERN: "must be 1 to 200 characters of letters, digits and - _ . : @, and neither `.` nor `..`",
    records.NAME_PATTERN: "must be 1 to 60 characters of letters, digits and _ - .",
    records.APPROVAL_ID_PATTERN: "must be <run_id>/a<n>, such as r-17/a1",
    records.ACTION_ID_PATTERN: "must be <run_id>/<n>, such as r-17/3",
}


def encode(record: msgspec.Struct) -> bytes:
    """JSON bytes of a record. Raises `RecordError` where a free-form value is no JSON."""
    try:
        return _encoder.encode(record)
    except (TypeError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise RecordError("", f"is not JSON: {error}", "not_json") from error


def document(raw: bytes | None, depth: int = canonical.MAX_DEPTH) -> dict[str, Any]:
    """The JSON object in a record's value. Raises `RecordError` for everything else."""
    if raw is None:
        raise RecordError("", "the record has no value (null)", "null")
    if not raw:
        raise RecordError("", "the record's value is empty", "empty")
    if raw[0] == 0:
        raise RecordError(
            "",
            "the record is framed Avro, but wire_format is json here: set schema_registry_url",
            "avro",
        )
    value = canonical.parse(raw, depth)
    if not isinstance(value, dict):
        raise RecordError("", f"must be a JSON object, not {_json_name(value)}", "not_an_object")
    return value


def convert(value: Any, kind: type[T]) -> T:
    """A typed record from plain JSON values. Raises `RecordError` that names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind) from None
    except RecursionError as error:
        raise RecordError("", "nested too deep", "too_deep") from error


def decode(raw: bytes | None, kind: type[T]) -> T:
    """A typed record from a topic's bytes. Raises `RecordError`."""
    depth = canonical.MAX_DEPTH if kind in _INBOUND else _OUR_DEPTH
    return convert(document(raw, depth), kind)


def _json_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else "a number"


def _explain(text: str, kind: type[msgspec.Struct]) -> RecordError:
    """msgspec's message as a sentence and a path."""
    message, _, path = text.partition(" - at `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".")
    if message.startswith("Object missing required field `"):
        name = message.split("`")[1]
        return RecordError(f"{field}.{name}" if field else name, "is required", "missing")
    if message.startswith("Object contains unknown field `"):
        name = message.split("`")[1]
        known = ", ".join(kind.__struct_fields__)
        return RecordError(
            f"{field}.{name}" if field else name,
            f"is not a field here; known: {known}",
            "unknown_field",
        )
    if message.startswith("Invalid enum value"):
        return RecordError(
            field,
            f"{message[19:]} is not one of {', '.join(_choices(kind, field))}",
            "unknown_value",
        )
    for pattern, sentence in _PATTERNS.items():
        if repr(pattern) in message or f"'{pattern}'" in message:
            return RecordError(field, sentence, "bad_id")
    return RecordError(field, message[0].lower() + message[1:].replace("`", ""), "wrong_type")


def _choices(kind: type[msgspec.Struct], path: str) -> list[str]:
    """The allowed words of the field at ``path``, for the error text."""
    info: Any = msgspec.inspect.type_info(kind)
    for part in path.replace("[...]", "").split("."):
        name = part.split("[")[0]
        while isinstance(
            info, msgspec.inspect.Metadata | msgspec.inspect.ListType | msgspec.inspect.UnionType
        ):
            info = _inner(info)
        if not isinstance(info, msgspec.inspect.StructType):
            return []
        info = next((f.type for f in info.fields if f.encode_name == name), None)
    while isinstance(info, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        info = _inner(info)
    return (
        [str(value) for value in info.values]
        if isinstance(info, msgspec.inspect.LiteralType)
        else []
    )


def _inner(info: Any) -> Any:
    if isinstance(info, msgspec.inspect.Metadata):
        return info.type
    if isinstance(info, msgspec.inspect.ListType):
        return info.item_type
    return next(t for t in info.types if not isinstance(t, msgspec.inspect.NoneType))
