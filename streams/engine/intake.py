"""Inbound records to messages: what can be read, whose it is, and what is refused at the edge.

Runs where a record is first seen, which need not be the run's owner, so it looks at nothing but
the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeGuard

from msgspec import Struct
from perdure.schemas import codec, records, topics
from perdure.schemas.canonical import canonical, digest
from perdure.schemas.errors import RecordError
from perdure.streams.core.arguments import RESERVED, RESERVED_TEXT, holds_reserved
from perdure.streams.runtime.processor import Message, Record, Undecodable

_ESCAPED: Final = b"\\u00"
"""How a key may be written that is not seen in the bytes."""
_URL_SAFE: Final = str.maketrans("+/", "-_")


class NewTask(Struct):
    """A task with its id; ``digest`` tells two tasks of one id apart."""

    run_id: str
    task: records.Task
    digest: str


class RefusedTask(Struct):
    """A task that breaks the contract, but whose id can be read."""

    run_id: str
    error: RecordError


class RefusedRequest(Struct):
    """A decision or control request that breaks the contract, but whose run can be read."""

    run_id: str
    request_id: str
    reason: str
    given: bool


class Intake:
    """Reads the engine's topics. ``topic_id`` gives a topic's Kafka id (a UUID text)."""

    def __init__(self, topic_id: Callable[[str], str]) -> None:
        self._topic_id = topic_id
        self._readers: dict[str, Callable[[Record], Message]] = {
            topics.TASKS: self._task,
            topics.RESULTS: self._result,
            topics.APPROVALS: self._decision,
            topics.CONTROL: self._control,
        }

    def read(self, record: Record) -> Message:
        """The message of a record. Raises `Undecodable`."""
        try:
            return self._readers[record.topic](record)
        except RecordError as error:
            raise Undecodable(error.code, str(error)) from error

    def default_run_id(self, record: Record) -> str:
        """``t~<first 8 of the topic's id>-<partition>-<offset>``.

        The topic's id as Kafka's own tools write it: librdkafka's has ``+`` and ``/``, which no run
        id may have.
        """
        topic_id = self._topic_id(record.topic)[:8].translate(_URL_SAFE)
        return f"t~{topic_id}-{record.partition}-{record.offset}"

    def _task(self, record: Record) -> Message:
        plain = codec.document(record.value)
        try:
            _refuse_reserved(record, plain)
            task = codec.convert(plain, records.Task)
            if task.task_id is not None and "~" in task.task_id and task.fork_of is None:
                raise RecordError("task_id", "~ is for ids made by Perdure", "bad_id")
            if len(canonical(task.metadata)) > 16_000:
                raise RecordError(
                    "metadata", "must be under 16 kB: it travels on every record", "too_large"
                )
        except RecordError as error:
            run_id = plain.get("task_id")
            if not _valid(run_id, records.USER_ID_PATTERN):
                raise
            return Message(run_id, RefusedTask(run_id, error), record)
        run_id = task.task_id or self.default_run_id(record)
        return Message(run_id, NewTask(run_id, task, digest(task)), record)

    def _result(self, record: Record) -> Message:
        result = codec.decode(record.value, records.ActionResult)
        if not result.action_id.startswith(result.run_id + "/"):
            raise RecordError("action_id", f"is not of run {result.run_id}", "foreign_action")
        return Message(result.run_id, result, record)

    def _decision(self, record: Record) -> Message:
        plain = codec.document(record.value)
        approval_id = plain.get("approval_id")
        if not _valid(approval_id, records.APPROVAL_ID_PATTERN):
            codec.convert(plain, records.ApprovalDecision)  # names what is wrong
            raise RecordError("approval_id", "can't be read", "bad_id")
        run_id = approval_id.rpartition("/")[0]
        try:
            _refuse_reserved(record, plain)
            decision = codec.convert(plain, records.ApprovalDecision)
        except RecordError as error:
            return Message(
                run_id, _refused(run_id, plain, str(error), _default_decision_id(plain)), record
            )
        return Message(run_id, decision, record)

    def _control(self, record: Record) -> Message:
        plain = codec.document(record.value)
        run_id = plain.get("run_id")
        if not _valid(run_id, records.ID_PATTERN):
            codec.convert(plain, records.ControlRequest)
            raise RecordError("run_id", "can't be read", "bad_id")
        try:
            _refuse_reserved(record, plain)
            request = codec.convert(plain, records.ControlRequest)
        except RecordError as error:
            return Message(run_id, _refused(run_id, plain, str(error), position(record)), record)
        return Message(run_id, request, record)


def position(record: Record) -> str:
    """``<topic>-<partition>-<offset>`` of a record."""
    return f"{record.topic}-{record.partition}-{record.offset}"


def decision_id(approval_id: str, approver: str, decision: str) -> str:
    """What stands for the id of a decision that has none (contract section 4)."""
    return f"{approval_id}/{approver}/{decision}"


def request_id_of(body: Any, record: Record) -> str:
    """The request's own id, or the one that stands for it."""
    if isinstance(body, RefusedRequest):
        return body.request_id
    if isinstance(body, records.ApprovalDecision):
        return body.request_id or decision_id(body.approval_id, body.approver, body.decision)
    given: str | None = body.request_id
    return given or position(record)


def _default_decision_id(plain: dict[str, Any]) -> str:
    names = ("approval_id", "approver", "decision")
    return decision_id(*(str(plain.get(name, ""))[:200] for name in names))


def _refused(run_id: str, plain: dict[str, Any], reason: str, default: str) -> RefusedRequest:
    given = plain.get("request_id")
    if isinstance(given, str) and 0 < len(given) <= 500:
        return RefusedRequest(run_id, given, reason, True)
    return RefusedRequest(run_id, default, reason, False)


def _valid(value: Any, pattern: str) -> TypeGuard[str]:
    return isinstance(value, str) and re.match(pattern, value) is not None


def _refuse_reserved(record: Record, plain: dict[str, Any]) -> None:
    """Raises `RecordError` where a person's record holds what would be taken for a reference."""
    raw = record.value or b""
    if (RESERVED.encode() in raw or _ESCAPED in raw) and holds_reserved(plain):
        raise RecordError("", RESERVED_TEXT, "reserved")
