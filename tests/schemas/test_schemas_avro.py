"""Stored state is Avro with a fingerprint: it survives a version, and the files are the structs'."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from perdure.schemas import avro, records
from perdure.schemas.errors import RecordError
from perdure.schemas.generate import stored
from perdure.streams.core import state

COMMITTED = sorted(avro.DIRECTORY.rglob("*.avsc"))

HEADER = state.Header(
    run_id="r1",
    agent="demo",
    user_id="uma",
    session_id="s",
    tenant="t",
    metadata={"a": "b"},
    ending=state.Ending(to="cancelled", reason="x"),
    timers={"act/1": 2**52},
    open=[1, 2],
    budget=records.Budget(steps=3),
    answer={"n": 2**70, "é": [None, 1.5]},
    cost=0.25,
)
SAMPLES: list[msgspec.Struct] = [
    HEADER,
    state.Start(
        input=[2**64, "x"],
        plan=[records.PlanStep(id="a", tool="t", arguments={"$": "1"})],
        definition=records.AgentSpec(name="demo", tools=["t"]),
        tools={"t": records.ToolSpec(name="t", parameters={"type": "object"})},
        digest="d",
    ),
    state.Action(n=3, arguments={"a": [1]}, result=None, error={"kind": "business"}, attempt=2),
    state.Action(n=4, arguments=None, result="text", progress=0),
    state.Message(role="assistant", content="hi", calls=[{"id": "c", "arguments": {}}]),
    state.Approval(n=1, kind="action", arguments={"x": 1}, decisions=[{"decision": "approve"}]),
]


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: type(value).__name__)
def test_state_survives_the_way_in_and_out(value: msgspec.Struct) -> None:
    codec = avro.StateCodec(type(value))
    raw = codec.encode(value)
    assert codec.decode(raw) == value
    assert raw[:8] == avro.fingerprint(avro.schema_of(type(value), nested=False))


@pytest.mark.parametrize("kind", state.STATE, ids=lambda kind: kind.__name__)
def test_the_least_state_survives_too(kind: type[msgspec.Struct]) -> None:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    least = {
        member.name: 1 if isinstance(member.type, msgspec.inspect.IntType) else "x"
        for member in info.fields
        if member.required
    }
    value = kind(**least)
    codec = avro.StateCodec(kind)
    assert codec.decode(codec.encode(value)) == value


def older(change: Any) -> tuple[avro.StateCodec[state.Header], bytes]:
    """A codec that knows an older schema, and a header stored by it."""
    schema = copy.deepcopy(avro.schema_of(state.Header, nested=False))
    change(schema["fields"])
    mark = avro.fingerprint(schema)
    stored = io.BytesIO()
    stored.write(mark)
    plain = {name: getattr(HEADER, name) for name in state.Header.__struct_fields__}
    for field in schema["fields"]:
        if field["type"] in (avro.JSON_TEXT, ["null", avro.JSON_TEXT]):
            plain[field["name"]] = msgspec.json.encode(plain.get(field["name"])).decode()
    plain["since_gone"] = "old"
    fastavro.schemaless_writer(stored, fastavro.parse_schema(copy.deepcopy(schema)), plain)
    return avro.StateCodec(state.Header, {mark: schema}), stored.getvalue()


def test_a_field_that_is_new_gets_its_default() -> None:
    """State of a version that did not have it yet."""
    new = ("paused", "timers", "cost", "answer", "ending")
    codec, raw = older(
        lambda fields: fields.__setitem__(
            slice(None), [field for field in fields if field["name"] not in new]
        )
    )
    found = codec.decode(raw)
    assert (found.paused, found.timers, found.cost) == (False, {}, 0.0)
    assert (found.answer, found.ending) == (None, None)
    assert (found.run_id, found.open, found.budget) == ("r1", [1, 2], records.Budget(steps=3))


def test_a_field_that_is_gone_is_left_out() -> None:
    gone = {"name": "since_gone", "type": "string", "doc": "was there once"}
    codec, raw = older(lambda fields: fields.insert(3, gone))
    assert codec.decode(raw) == HEADER


def test_fields_in_another_order_are_read_by_name() -> None:
    codec, raw = older(lambda fields: fields.reverse())
    assert codec.decode(raw) == HEADER


def test_a_doc_changes_no_fingerprint_and_a_field_does() -> None:
    schema = avro.schema_of(state.Header, nested=False)
    other = copy.deepcopy(schema)
    other["fields"][0]["doc"] = "said better"
    assert avro.fingerprint(other) == avro.fingerprint(schema)
    other["fields"].pop()
    assert avro.fingerprint(other) != avro.fingerprint(schema)


def test_state_of_an_unknown_version_is_refused_by_name() -> None:
    codec = avro.StateCodec(state.Header)
    with pytest.raises(RecordError, match="unknown version") as caught:
        codec.decode(b"\x00" * 8 + codec.encode(HEADER)[8:])
    assert caught.value.code == "unknown_schema"


@pytest.mark.parametrize(
    "value",
    [
        state.Message(role=5),  # type: ignore[arg-type]
        state.Message(role="user", content=object()),
        state.Action(n=2**70),
        state.Action(n=1, result={"a": {object}}),
    ],
)
def test_what_does_not_fit_its_schema_is_not_stored(value: msgspec.Struct) -> None:
    with pytest.raises(RecordError, match="can't be stored"):
        avro.StateCodec(type(value)).encode(value)


# --- the committed files ---------------------------------------------------------------------


def expected() -> dict[Path, str]:
    made = {
        avro.DIRECTORY / f"{kind.__name__}.avsc": avro.render(avro.schema_of(kind))
        for kind in records.PUBLIC
    }
    for kind in stored():
        schema = avro.schema_of(kind, nested=False)
        mark = avro.fingerprint(schema).hex()
        made[avro.DIRECTORY / "state" / f"{kind.__name__}.{mark}.avsc"] = avro.render(schema)
    return made


@pytest.mark.parametrize("path", expected(), ids=lambda path: path.name)
def test_the_committed_file_is_the_structs(path: Path) -> None:
    assert path.exists(), "run `python -m perdure.schemas.generate` and commit what it writes"
    assert path.read_text() == expected()[path], "run `python -m perdure.schemas.generate`"


def test_every_public_file_belongs_to_a_record() -> None:
    names = {path.stem for path in avro.DIRECTORY.glob("*.avsc")}
    assert names == {kind.__name__ for kind in records.PUBLIC}


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_file_is_avro_and_named_by_its_content(path: Path) -> None:
    schema = json.loads(path.read_text())
    fastavro.parse_schema(copy.deepcopy(schema))
    name, *mark = path.stem.split(".")
    assert schema["name"] == name
    assert mark in ([], [avro.fingerprint(schema).hex()])


def undocumented(schema: Any, where: str) -> list[str]:
    if isinstance(schema, list):
        return [found for inner in schema for found in undocumented(inner, where)]
    if not isinstance(schema, dict):
        return []
    if schema.get("type") != "record":
        return undocumented(schema.get("items"), where) + undocumented(schema.get("values"), where)
    found = [] if schema["doc"] else [where]
    for field in schema["fields"]:
        here = f"{where}.{field['name']}"
        found += ([] if field["doc"] else [here]) + undocumented(field["type"], here)
    return found


@pytest.mark.parametrize("kind", records.PUBLIC, ids=lambda kind: kind.__name__)
def test_every_field_has_a_doc(kind: type[msgspec.Struct]) -> None:
    assert not undocumented(avro.schema_of(kind), kind.__name__)


@pytest.mark.parametrize("kind", records.PUBLIC, ids=lambda kind: kind.__name__)
def test_every_field_that_is_not_required_has_a_default(kind: type[msgspec.Struct]) -> None:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    required = {member.name for member in info.fields if member.required}
    bare = {field["name"] for field in avro.schema_of(kind)["fields"] if "default" not in field}
    assert bare == required
