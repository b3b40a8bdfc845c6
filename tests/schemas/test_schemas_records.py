"""Records at the edge: every error names its field, and nothing odd comes through."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from perdure.schemas import codec, records
from perdure.schemas.errors import RecordError

TASK: dict[str, Any] = {"agent": "demo", "task_id": "t1", "input": "x"}
DECISION: dict[str, Any] = {"approval_id": "r1/a1", "decision": "approve", "approver": "ann"}
CONTROL: dict[str, Any] = {"run_id": "r1", "command": "cancel"}
RESULT: dict[str, Any] = {"run_id": "r1", "action_id": "r1/1", "attempt": 1, "status": "succeeded"}
STEP: dict[str, Any] = {"id": "a", "tool": "t"}
GOOD: dict[type[msgspec.Struct], dict[str, Any]] = {
    records.Task: TASK,
    records.ApprovalDecision: DECISION,
    records.ControlRequest: CONTROL,
    records.ActionResult: RESULT,
}


def raw(record: dict[str, Any], **changed: Any) -> bytes:
    return json.dumps({**record, **changed}).encode()


def error(kind: type[msgspec.Struct], value: bytes | None) -> RecordError:
    with pytest.raises(RecordError) as caught:
        codec.decode(value, kind)
    assert len(str(caught.value)) < 500
    return caught.value


@pytest.mark.parametrize("kind", GOOD)
def test_the_least_record_is_taken_and_survives_the_way_out_and_in(
    kind: type[msgspec.Struct],
) -> None:
    record = codec.decode(raw(GOOD[kind]), kind)
    assert codec.decode(codec.encode(record), kind) == record


REQUIRED = [
    (records.Task, ["agent"]),
    (records.ApprovalDecision, ["approval_id", "decision", "approver"]),
    (records.ControlRequest, ["run_id", "command"]),
    (records.ActionResult, ["run_id", "action_id", "attempt", "status"]),
]


@pytest.mark.parametrize(("kind", "fields"), REQUIRED)
def test_required_fields_are_those_of_the_contract(
    kind: type[msgspec.Struct], fields: list[str]
) -> None:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    assert [member.name for member in info.fields if member.required] == fields
    for field in fields:
        less = {name: value for name, value in GOOD[kind].items() if name != field}
        found = error(kind, raw(less))
        assert (found.field, found.code, str(found)) == (field, "missing", f"{field}: is required")


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (None, "null", "no value"),
        (b"", "empty", "empty"),
        (b"\x00\x00\x00\x00\x01abc", "avro", "schema_registry_url"),
        (b"[1,2,3]", "not_an_object", "not a list"),
        (b'"just text"', "not_an_object", "not a text"),
        (b"7", "not_an_object", "not a number"),
        (b"true", "not_an_object", "not true or false"),
        (b"null", "not_an_object", "not null"),
        (b"\xff\xfe", "not_utf8", "UTF-8"),
        (b"\xef\xbb\xbf{}", "not_json", "not JSON"),
        (b"{" + b" " * 10, "not_json", "not JSON"),
    ],
)
def test_what_is_no_record_is_refused_by_name(value: bytes | None, code: str, words: str) -> None:
    found = error(records.Task, value)
    assert found.code == code
    assert words in str(found)


@pytest.mark.parametrize(
    ("kind", "changed", "field"),
    [
        (records.Task, {"agent": 5}, "agent"),
        (records.Task, {"agent": None}, "agent"),
        (records.Task, {"plan": {}}, "plan"),
        (records.Task, {"plan": [{**STEP, "tool": 7}]}, "plan[0].tool"),
        (records.Task, {"plan": [STEP, "x"]}, "plan[1]"),
        (records.Task, {"plan": [{"id": "a"}]}, "plan[0].tool"),
        (records.Task, {"plan": [{**STEP, "depends_on": "b"}]}, "plan[0].depends_on"),
        (records.Task, {"plan": [{**STEP, "approval": "never"}]}, "plan[0].approval"),
        (records.Task, {"messages": ["hi"]}, "messages[0]"),
        (records.Task, {"metadata": {"a": 1}}, "metadata[...]"),
        (records.Task, {"budget": {"steps": -1}}, "budget.steps"),
        (records.Task, {"budget": {"steps": 1.5}}, "budget.steps"),
        (records.Task, {"budget": {"tokens": "5"}}, "budget.tokens"),
        (records.Task, {"budget": {"cost": -0.1}}, "budget.cost"),
        (records.Task, {"budget": {"seconds": True}}, "budget.seconds"),
        (records.Task, {"fork_of": {"run_id": "r", "version": 1}}, "fork_of.hash"),
        (records.ApprovalDecision, {"decision": "aprove"}, "decision"),
        (records.ApprovalDecision, {"decision": "APPROVE"}, "decision"),
        (records.ApprovalDecision, {"arguments": []}, "arguments"),
        (records.ApprovalDecision, {"request_id": ""}, "request_id"),
        (records.ApprovalDecision, {"reason": "x" * 20001}, "reason"),
        (records.ControlRequest, {"command": "kill"}, "command"),
        (records.ControlRequest, {"expected_version": -1}, "expected_version"),
        (records.ControlRequest, {"compensate": "yes"}, "compensate"),
        (records.ActionResult, {"status": "ok"}, "status"),
        (records.ActionResult, {"attempt": 0}, "attempt"),
        (records.ActionResult, {"attempt": True}, "attempt"),
        (records.ActionResult, {"attempt": 1.5}, "attempt"),
        (records.ActionResult, {"attempt": 2**70}, "attempt"),
        (records.ActionResult, {"error": "boom"}, "error"),
        (records.ActionResult, {"error": {"kind": "odd"}}, "error.kind"),
        (records.ActionResult, {"error": {"kind": "unknown", "retry_after_seconds": -1}}, "error.retry_after_seconds"),
        (records.ActionResult, {"usage": {"cost": -1}}, "usage.cost"),
        (records.ActionResult, {"usage": {"input_tokens": 2**60}}, "usage.input_tokens"),
    ],
)  # fmt: skip
def test_an_error_names_its_field(
    kind: type[msgspec.Struct], changed: dict[str, Any], field: str
) -> None:
    found = error(kind, raw(GOOD[kind], **changed))
    assert found.field == field
    assert str(found).startswith(f"{field}: ")


def test_an_unknown_word_is_told_with_the_known_ones() -> None:
    found = error(records.ApprovalDecision, raw(DECISION, decision="aprove"))
    assert "'aprove' is not one of answer, approve" in str(found)
    found = error(records.ActionResult, raw(RESULT, error={"kind": "odd"}))
    assert "transient" in str(found)


@pytest.mark.parametrize("kind", [records.Task, records.ActionResult])
def test_unknown_fields_are_ignored(kind: type[msgspec.Struct]) -> None:
    codec.decode(raw(GOOD[kind], meta={"n": 1}, policy=5), kind)


@pytest.mark.parametrize("kind", [records.ApprovalDecision, records.ControlRequest])
def test_unknown_fields_of_a_request_are_refused(kind: type[msgspec.Struct]) -> None:
    found = error(kind, raw(GOOD[kind], argument={}))
    assert (found.field, found.code) == ("argument", "unknown_field")


TRICKS = [
    "", ".", "..", "../x", "a/../b", "/etc/passwd", "a/b", "a\\b", "C:\\x", "%2e%2e%2f", "a b", " a",
    "a\n", "a\r", "\n", "a\x00", "a\u200b", "\u202ea", "ä", "a" * 201, "~/.ssh/$(id)", "a;b", "a*", "a?b", "a#b",
]  # fmt: skip
WHOLE = [
    (records.Task, "task_id"),
    (records.Task, "session_id"),
    (records.Task, "user_id"),
    (records.Task, "tenant"),
    (records.ApprovalDecision, "approver"),
    (records.ApprovalDecision, "run_id"),
    (records.ControlRequest, "run_id"),
    (records.ControlRequest, "by"),
    (records.ActionResult, "run_id"),
]


@pytest.mark.parametrize("value", TRICKS)
@pytest.mark.parametrize(("kind", "field"), WHOLE)
def test_an_id_is_no_path(kind: type[msgspec.Struct], field: str, value: str) -> None:
    found = error(kind, raw(GOOD[kind], **{field: value}))
    assert (found.field, found.code) == (field, "bad_id")
    assert "1 to 200 characters" in str(found)


@pytest.mark.parametrize("value", ["a", "a" * 200, "...", ".a", "a.", "o'".replace("'", ":"), "u@x.org", "-_.:@"])  # fmt: skip
@pytest.mark.parametrize(("kind", "field"), WHOLE)
def test_an_id_of_the_allowed_letters_is_taken(
    kind: type[msgspec.Struct], field: str, value: str
) -> None:
    codec.decode(raw(GOOD[kind], **{field: value}), kind)


def test_a_tilde_is_for_ids_that_we_make() -> None:
    codec.decode(raw(TASK, task_id="t~12345678-0-17"), records.Task)
    assert error(records.Task, raw(TASK, user_id="t~1")).code == "bad_id"


@pytest.mark.parametrize(
    "value",
    ["r1", "r1/", "/a1", "r1/a", "r1/a0", "r1/a01", "r1/a-1", "r1/a1\n", "../a1", "./a1", "r1/x/a1", "r1/a1 ", "r1/a٣", "r1/a1234567890", "r1/A1", 7, None],
)  # fmt: skip
def test_an_approval_id_is_a_run_and_a_number(value: Any) -> None:
    assert error(records.ApprovalDecision, raw(DECISION, approval_id=value)).field == "approval_id"


@pytest.mark.parametrize(
    "value", ["r1", "r1/0", "r1/01", "r1/a1", "r1/1\n", "../1", "r1/2/1", "r1/1234567890", "r1/-1"]
)
def test_an_action_id_is_a_run_and_a_number(value: str) -> None:
    found = error(records.ActionResult, raw(RESULT, action_id=value))
    assert (found.field, found.code) == ("action_id", "bad_id")


@pytest.mark.parametrize("value", ["", "a" * 61, "a b", "a/b", "..\n", "a\n", "x{y}"])
def test_a_name_is_short_and_plain(value: str) -> None:
    assert error(records.Task, raw(TASK, agent=value)).code == "bad_id"


# --- times (case C01) ------------------------------------------------------------------------

TIMES: list[Any] = [
    -1, -5, 253_402_300_800_000, 9223372036854775807, 10**18, 2**70, 1e18, 1.5, True, "5",
    "1700000000000", "P10000Y", "2024-04-31T10:00:00Z", "2024-02-30", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "2030-01-01T00:00:00", [], {},
]  # fmt: skip


@pytest.mark.parametrize("value", TIMES)
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    assert error(records.Task, raw(TASK, deadline_at=value)).field == "deadline_at"
    assert error(records.ApprovalDecision, raw(DECISION, decided_at=value)).field == "decided_at"
    assert error(records.ActionResult, raw(RESULT, started_at=value)).field == "started_at"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("field", ['"deadline_at"', '"budget":{"seconds"'])
def test_a_time_that_is_no_number_is_refused(field: str, text: str) -> None:
    close = "}}" if "{" in field else "}"
    found = error(records.Task, f'{{"agent":"demo",{field}:{text}{close}'.encode())
    assert found.code in ("not_a_number", "number_range")


@pytest.mark.parametrize("value", [0, 1, 1_700_000_000_000, 253_402_300_799_999, None])
def test_a_time_is_taken_from_the_epoch_to_the_year_9999(value: Any) -> None:
    assert codec.decode(raw(TASK, deadline_at=value), records.Task).deadline_at == value


@pytest.mark.parametrize("value", [-5, 1e18, 315_360_001, "5", True, "P1D"])
def test_a_duration_is_at_most_ten_years(value: Any) -> None:
    assert error(records.Task, raw(TASK, budget={"seconds": value})).field == "budget.seconds"


@pytest.mark.parametrize("value", [0, -5, 1e18, 9223372036854775807, "5", True, None])
def test_an_approval_expires_at_some_time(value: Any) -> None:
    rule = {"name": "demo", "approvals": [{"within_seconds": value}]}
    found = error(records.AgentSpec, json.dumps(rule).encode())
    assert found.field == "approvals[0].within_seconds"


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**53 + 1, 2512292042121000001, 2**64, 10**30, -(2**70)])
def test_integers_are_exact(number: int) -> None:
    task = codec.decode(raw(TASK, input={"n": [number]}), records.Task)
    assert codec.decode(codec.encode(task), records.Task).input == {"n": [number]}
    assert str(number).encode() in codec.encode(task)


def test_a_record_too_deep_is_refused() -> None:
    deep = b'{"agent":"demo","input":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert error(records.Task, deep).code == "too_deep"


def test_a_record_with_the_same_key_twice_is_refused() -> None:
    found = error(records.Task, b'{"agent":"demo","agent":"other"}')
    assert (found.field, found.code) == ("agent", "duplicate_key")


@pytest.mark.parametrize("value", [{1, object()}, object(), {"a": [object]}, {(1, 2): 3}, "\ud800"])
def test_a_value_that_is_no_json_is_not_sent(value: Any) -> None:
    with pytest.raises(RecordError, match="is not JSON"):
        codec.encode(records.Task(agent="demo", input={"x": value}))


def test_what_was_taken_can_be_read_back_inside_our_own_records() -> None:
    value = json.loads("[" * 99 + "]" * 99)
    task = codec.decode(raw(TASK, input=value), records.Task)
    names = dict.fromkeys(("run_id", "agent", "user_id", "session_id", "tenant"), "x")
    event = records.RunEvent(
        **names,
        version=1,
        type="run_started",
        at=1,
        actor="engine",
        data={"input": task.input},
        previous_hash="",
    )
    assert codec.decode(codec.encode(event), records.RunEvent) == event
