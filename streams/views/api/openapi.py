"""The description of the API (OpenAPI 3.1), made from the records' own schemas; a test drives it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from perdure.schemas.records import (
    ID_PATTERN,
    NAME_PATTERN,
    USER_ID_PATTERN,
    Task,
    Verdict,
)

_ID: Final = ID_PATTERN.removesuffix(r"(?!\n)")
_USER: Final = USER_ID_PATTERN.removesuffix(r"(?!\n)")
_NAME: Final = NAME_PATTERN.removesuffix(r"(?!\n)")
_STATUS: Final = ["running", "waiting_approval", "compensating", "done", "failed", "cancelled"]


def _object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final = {"type": "string"}
_INT: Final = {"type": "integer"}
_ANY: Final[dict[str, Any]] = {}
_NULLABLE_INT: Final = {"type": ["integer", "null"]}
_NULLABLE_TEXT: Final = {"type": ["string", "null"]}
_FREE: Final = {"type": "object"}

_ROW: Final = _object(
    run_id=_TEXT, agent=_TEXT, user_id=_TEXT, session_id=_TEXT, tenant=_TEXT,
    status={"enum": _STATUS}, paused={"type": "boolean"}, quarantined={"type": "boolean"},
    title=_TEXT, current_step=_TEXT, steps_done=_INT, steps_total=_NULLABLE_INT,
    waiting_for=_list(_FREE), usage=_FREE, errors=_INT, complete={"type": ["boolean", "null"]},
    incomplete={"type": "boolean"}, version=_INT, started_at=_INT, updated_at=_INT,
    finished_at=_NULLABLE_INT,
)  # fmt: skip

_ERROR: Final = _object(error=_object(code=_TEXT, message=_TEXT))


def _path(name: str, pattern: str | None = None) -> dict[str, Any]:
    schema = {"type": "string", **({"pattern": pattern} if pattern else {"minLength": 1})}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: dict[str, Any], text: str = "") -> dict[str, Any]:
    """An empty parameter is one that is left out."""
    if "pattern" in schema or schema.get("type") in ("integer", "number"):
        schema = {"anyOf": [{"const": ""}, schema]}
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_RUN_ID: Final = _path("run_id", _ID)
_APPROVAL: Final = _path("approval", r"^a[1-9][0-9]{0,8}$")
_LIMIT: Final = _query("limit", _whole(1, 200))
_CURSOR: Final = _query("cursor", _TEXT, "`next` of the page before")
_FLAG: Final = {"enum": ["", "0", "1"]}
_TIME: Final = _whole(0, 10**15)


def _answers(
    schema: dict[str, Any], status: int = 200, *others: int, kind: str = "application/json"
) -> dict[str, Any]:
    error = {"description": "says what to do", "content": {"application/json": {"schema": _ERROR}}}
    found = {str(code): error for code in (400, 401, 403, 429, 500, 503, *others)}
    good = {"description": "as asked", "content": {kind: {"schema": schema}}}
    return {**found, str(status): good}


def _get(
    text: str, schema: dict[str, Any], *parameters: dict[str, Any], others: tuple[int, ...] = (404,)
) -> dict[str, Any]:
    return {
        "get": {
            "summary": text,
            "parameters": list(parameters),
            "responses": _answers(schema, 200, *others),
        }
    }


def _post(
    text: str,
    body: dict[str, Any],
    schema: dict[str, Any],
    *parameters: dict[str, Any],
    status: int = 202,
) -> dict[str, Any]:
    return {
        "post": {
            "summary": text,
            "parameters": list(parameters),
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": _answers(schema, status, 404, 409, 413, 415),
        }
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_DECISION: Final = {
    **_object(
        ["decision"],
        decision={
            "enum": [
                "approve", "modify", "reject", "answer", "retry", "mark_done", "mark_not_done",
                "extend", "cancel_run",
            ]
        },
        reason=_or_null({"type": "string", "maxLength": 20000}),
        arguments=_or_null(_FREE),
        answer=_ANY,
        budget=_or_null(_ref("Budget")),
        digest=_NULLABLE_TEXT,
        request_id=_or_null({"type": "string", "minLength": 1, "maxLength": 500}),
    ),
    "additionalProperties": False,
}  # fmt: skip
_CONTROL: Final = {
    **_object(
        ["command"],
        command={"enum": ["cancel", "pause", "resume", "message", "extend", "retry", "release"]},
        request_id=_or_null({"type": "string", "minLength": 1, "maxLength": 500}),
        reason=_or_null({"type": "string", "maxLength": 20000}),
        expected_version=_or_null(_whole(0, 2**53)),
        compensate={"type": "boolean"},
        content=_ANY,
        budget=_or_null(_ref("Budget")),
    ),
    "additionalProperties": False,
}


def _paths() -> dict[str, Any]:
    run = "/api/runs/{run_id}"
    asked = "/api/approvals/{run_id}/{approval}"
    page = _object(runs=_list(_ref("Row")), next=_NULLABLE_TEXT, total=_INT)
    detail = _object(run=_ref("Row"), outcome={"type": ["object", "null"]}, approvals=_list(_FREE))
    entry = _object(
        version=_INT, at=_INT, type=_TEXT, actor=_TEXT, step=_INT, action_id=_NULLABLE_TEXT,
        title=_TEXT, tone={"enum": ["plain", "good", "bad", "wait", "person", "model"]}, data=_FREE,
    )  # fmt: skip
    return {
        "/api/me": _get("Who calls", _object(user=_TEXT, roles=_list(_TEXT), dev={"type": "boolean"}), others=()),
        "/api/runs": _get(
            "Runs, the newest change first", page,
            {**_query("status", _list({"enum": _STATUS})), "style": "form", "explode": True},
            _query("agent", {"type": "string", "pattern": _NAME}),
            _query("user_id", {"type": "string", "pattern": _USER}),
            _query("session_id", {"type": "string", "pattern": _ID}),
            _query("tenant", {"type": "string", "pattern": _USER}),
            _query("since", _TIME, "ms, of the last change"), _query("until", _TIME),
            _query("q", {"type": "string", "maxLength": 200}, "beginning of the id, or words of the title"),
            _query("stuck", _FLAG), _query("quarantined", _FLAG), _LIMIT, _CURSOR, others=(),
        ),
        run: _get("One run", detail, _RUN_ID),
        f"{run}/timeline": _get(
            "What happened, in lines", _object(entries=_list(entry), next=_NULLABLE_INT), _RUN_ID,
            _query("after", _whole(0, 2**53)), _query("limit", _whole(1, 2000)),
        ),
        f"{run}/actions": _get("Its calls with their attempts", _object(actions=_list(_FREE)), _RUN_ID),
        f"{run}/events/{{version}}": _get(
            "One event whole", _FREE, _RUN_ID,
            {"name": "version", "in": "path", "required": True, "schema": _whole(1, 10**14)},
            _query("uncover", _FLAG, "sensitive values too; role approver, audited"),
        ),
        f"{run}/control": _post("Cancel, pause, resume, ...", _CONTROL, _object(request_id=_TEXT), _RUN_ID),
        "/api/approvals": _get(
            "Open questions, what expires first at the front",
            _object(approvals=_list(_FREE), next=_NULLABLE_TEXT, total=_INT),
            _query("approver", {"type": "string", "pattern": _USER}),
            _query("kind", {"type": "string", "pattern": "^[a-z_]{1,30}$"}),
            _query("agent", {"type": "string", "pattern": _NAME}), _LIMIT, _CURSOR, others=(),
        ),
        asked: _get("One question, open or closed", _FREE, _RUN_ID, _APPROVAL),
        f"{asked}/decisions": _post(
            "Decide, as who the token belongs to", _DECISION, _object(request_id=_TEXT), _RUN_ID, _APPROVAL
        ),
        "/api/tasks": _post("Submit a task", _ref("Task"), _object(task_id=_TEXT)),
        "/api/verdicts/{run_id}/{request_id}": _get(
            "The answer to a request", _ref("Verdict"), _RUN_ID,
            {**_path("request_id"), "schema": {"type": "string", "minLength": 1, "maxLength": 500}},
            _query("wait", {"type": "number", "minimum": 0, "maximum": 30}, "seconds"),
        ),
        "/api/agents": _get("Agents with their runs", _object(agents=_list(_FREE)), others=()),
        "/api/tools": _get("Tools with their calls", _object(tools=_list(_FREE)), others=()),
        "/api/stats": _get(
            "Totals and rates",
            _object(totals=_FREE, waiting=_FREE, rates=_list(_FREE), stuck=_INT, quarantined=_INT),
            others=(),
        ),
        "/api/health": _get("How the processors keep up", _FREE, others=()),
    }  # fmt: skip


def document() -> dict[str, Any]:
    (_, components) = msgspec.json.schema_components(
        (Task, Verdict), ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure views",
            "version": "1",
            "description": 'Integers beyond ±(2^53 - 1) travel as {"$int": digits} in free-form values. '
            "`GET /api/changes` is a stream of server-sent events: run, approval, stats, reset.",
        },
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_bare(components), "Row": _ROW},
        },
    }


def _bare(value: Any) -> Any:
    """Patterns as ECMA-262 takes them; descriptions as they are."""
    if isinstance(value, dict):
        return {
            key: inner.removesuffix(r"(?!\n)")
            if key == "pattern" and isinstance(inner, str)
            else _bare(inner)
            for key, inner in value.items()
        }
    return [_bare(inner) for inner in value] if isinstance(value, list) else value
