"""What came over HTTP, checked: ids, numbers, bodies; and the errors that say what to do."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from perdure.schemas import codec
from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ID_PATTERN, NAME_PATTERN, USER_ID_PATTERN, Task
from perdure.schemas.tasks import check_task

from ..access import Caller
from ..projections.exact import NotExact, inward, outward

T = TypeVar("T", bound=msgspec.Struct)

MAX_BODY: Final = 4_000_000
_SMALL: Final = 64_000
"""A larger body is parsed beside the loop, which answers everybody else meanwhile."""
_parsing: Final = ThreadPoolExecutor(2, thread_name_prefix="bodies")
CALLER: Final = web.RequestKey("caller", Caller)
_json = msgspec.json.Encoder()


class Problem(Exception):
    """An answer that is an error: status, code, and a sentence that says what to do."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def bad(message: str, code: str = "bad_request") -> Problem:
    return Problem(400, code, message)


def encoded(value: Any) -> bytes:
    """JSON whose integers a browser can hold."""
    return _json.encode(outward(value))


def answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=encoded(value), status=status, content_type="application/json")


def raw_answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def problem(found: Problem) -> web.Response:
    return answer({"error": {"code": found.code, "message": found.message}}, found.status)


_RULES: Final = {
    "run_id": (ID_PATTERN, "a run's id is 1 to 200 letters, digits and - _ . : @ ~, not . or .."),
    "agent": (NAME_PATTERN, "an agent's name is 1 to 60 letters, digits and _ - ."),
    "user_id": (USER_ID_PATTERN, "a user's id is 1 to 200 letters, digits and - _ . : @"),
    "session_id": (ID_PATTERN, "a session's id is 1 to 200 letters, digits and - _ . : @ ~"),
    "tenant": (USER_ID_PATTERN, "a tenant is 1 to 200 letters, digits and - _ . : @"),
    "approver": (USER_ID_PATTERN, "an approver is 1 to 200 letters, digits and - _ . : @"),
    "approval": (r"^a[1-9][0-9]{0,8}$(?!\n)", "a question is a1, a2, ... of its run"),
    "kind": (r"^[a-z_]{1,30}$(?!\n)", "a kind is a word such as action or handover"),
}


def checked(rule: str, value: str) -> str:
    """The value if the one rule for such ids allows it. Raises `Problem` (400)."""
    pattern, sentence = _RULES[rule]
    if not re.match(pattern, value):
        raise bad(sentence, "bad_id")
    return value


def in_path(request: web.Request, name: str, rule: str) -> str:
    return checked(rule, request.match_info[name])


def word(request: web.Request, name: str) -> str | None:
    """A query parameter that is an id of its name's kind; None where it is not given."""
    value = request.query.get(name)
    return None if not value else checked(name, value)


def number(
    request: web.Request, name: str, default: int | None, least: int, most: int
) -> int | None:
    value = request.query.get(name)
    if value is None or value == "":
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", value) or not least <= int(value) <= most:
        raise bad(f"{name} must be a whole number from {least} to {most}")
    return int(value)


def flag(request: web.Request, name: str) -> bool:
    value = request.query.get(name, "")
    if value not in ("", "0", "1"):
        raise bad(f"{name} must be 1, or left out")
    return value == "1"


def cursor_of(place: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(request: web.Request) -> tuple[int, str] | None:
    """Where the page before ended: a time, and a run's id or a question's. Raises `Problem` (400)."""
    text = request.query.get("cursor")
    if not text:
        return None
    try:
        if len(text) > 1000:
            raise ValueError
        at, id_ = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(id_, str):
            raise ValueError
        if isinstance(at, bool) or not isinstance(at, int) or abs(at) > 2**62:
            raise ValueError
        run_id, slash, question = id_.partition("/")
        checked("run_id", run_id)
        if slash:
            checked("approval", question)
        return at, id_
    except (ValueError, TypeError, RecursionError, Problem):
        raise bad("the cursor is none that was given here: start again without it") from None


async def body_of(request: web.Request, most: int = MAX_BODY) -> dict[str, Any]:
    """The JSON object that was sent. Raises `Problem` (400, 413, 415)."""
    if request.content_type != "application/json":
        raise Problem(415, "not_json", "send JSON, with Content-Type: application/json")
    raw = await _sent(request, most)
    if len(raw) <= _SMALL:
        return _object(raw)
    return await asyncio.get_running_loop().run_in_executor(_parsing, _object, raw)


async def _sent(request: web.Request, most: int) -> bytes:
    raw = b""
    try:
        while request.can_read_body and len(raw) <= most and not request.content.at_eof():
            raw += await request.content.read(most + 1 - len(raw))
    except ConnectionResetError:
        raise bad("the connection ended before all of it had come", "cut_off") from None
    except web.RequestPayloadError:
        raise bad("the body is not encoded as its headers say", "bad_encoding") from None
    if len(raw) > most:
        raise Problem(413, "too_large", f"at most {most} bytes are taken")
    return raw


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = inward(parse(raw))
    except (RecordError, NotExact) as error:
        raise bad(str(error), "not_json") from None
    except RecursionError:
        raise bad("nested too deep", "too_deep") from None
    if not isinstance(value, dict):
        raise bad("must be a JSON object", "not_an_object")
    return value


def record(value: dict[str, Any], kind: type[T]) -> T:
    """A typed record. Raises `Problem` (400) naming the field."""
    try:
        return codec.convert(value, kind)
    except RecordError as error:
        raise bad(str(error), "bad_record") from None


def sound(task: Task) -> Task:
    """A task that the engine's edge takes: one that it refuses may get no outcome. Raises `Problem` (400)."""
    try:
        check_task(task)
    except RecordError as error:
        raise bad(str(error), error.code) from None
    return task


def caller(request: web.Request) -> Caller:
    return request[CALLER]


def needs(role: str) -> Callable[[web.Request], Caller]:
    """Who calls, if they have that role. Raises `Problem` (403)."""

    def check(request: web.Request) -> Caller:
        found = caller(request)
        if not found.may(role):
            text = (
                f"this needs the role {role}, and {found.user} has {', '.join(sorted(found.roles))}"
            )
            raise Problem(403, "forbidden", text)
        return found

    return check


viewer = needs("viewer")
operator = needs("operator")
approver = needs("approver")
