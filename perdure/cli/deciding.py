"""Decisions and control requests: built from flags, sent, and their verdict told."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import msgspec

from perdure.schemas import codec, topics
from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalDecision, ApprovalRequest, ControlRequest, Verdict
from perdure.settings import Settings
from perdure.streams.core.policies.approval import NEEDS_REASON
from perdure.tables import questions, verdict
from perdure.topics_reader import Scanner

from .console import FAILED, USAGE, client, leave, line, say
from .keys import signed
from .terminal import safe, user_name

T = TypeVar("T", bound=msgspec.Struct)


def decision_of(
    approval: str,
    decision: str,
    approver: str | None,
    *,
    reason: str | None = None,
    arguments: str | None = None,
    answer: str | None = None,
    text: str | None = None,
    digest: str | None = None,
    budget: dict[str, Any] | None = None,
) -> ApprovalDecision:
    """The decision that the flags describe. Ends the command where they break the contract."""
    plain = {
        "approval_id": approval,
        "decision": decision,
        "approver": approver or _self(),
        "reason": reason,
        "arguments": None if arguments is None else _json("--arguments", arguments),
        "answer": text if answer is None else _free("--answer", answer),
        "digest": digest,
        "budget": budget,
    }
    return _made(plain, ApprovalDecision)


def control_request(run: str, command: str, by: str | None, **content: Any) -> ControlRequest:
    """The request that the flags describe."""
    return _made(
        {"run_id": run, "command": command, "by": by or user_name(), **content}, ControlRequest
    )


def _made(plain: dict[str, Any], kind: type[T]) -> T:
    try:
        return codec.convert(
            {name: value for name, value in plain.items() if value is not None}, kind
        )
    except RecordError as error:
        leave(USAGE, str(error))


def _self() -> str:
    return user_name() or leave(USAGE, "who decides? give --as NAME")


def _json(flag: str, text: str) -> Any:
    try:
        return parse(text)
    except RecordError as error:
        leave(USAGE, f"{flag}: {error}")


def _free(flag: str, text: str) -> Any:
    """JSON where it looks like JSON, else the text."""
    if text.lstrip()[:1] in ("{", "[", '"') or text.strip() in ("true", "false", "null"):
        return _json(flag, text)
    try:
        return parse(text)
    except RecordError:
        return text


# --- sending ----------------------------------------------------------------------------------


def decide(made: Settings, decision: ApprovalDecision, timeout: float, as_json: bool) -> None:
    """Send a decision, bound to what the open question shows; ends with 1 if it is refused."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    question = questions(scanner).get(decision.approval_id)
    if question is not None:
        _refuse_at_once(question, decision)
        if decision.digest is None:
            decision = msgspec.structs.replace(decision, digest=question.digest)
        if not as_json:
            say(f"{decision.decision}: {safe(question.title, 200)}")
    request_id = client(made).decide(signed(made, decision))
    _tell(scanner, decision.approval_id.rpartition("/")[0], request_id, timeout, as_json)


def _refuse_at_once(question: ApprovalRequest, decision: ApprovalDecision) -> None:
    if decision.decision not in question.allowed_decisions:
        leave(
            FAILED,
            f"a question of kind {question.kind} takes {', '.join(question.allowed_decisions)}, "
            f"not {decision.decision}",
        )
    if decision.decision in NEEDS_REASON and not decision.reason:
        leave(USAGE, f"{decision.decision} needs --reason")


def ask_control(made: Settings, request: ControlRequest, timeout: float, as_json: bool) -> None:
    """Send a control request; ends with 1 if it is refused."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    scanner.partitions(topics.CONTROL)
    request_id = client(made).control(request)
    _tell(scanner, request.run_id, request_id, timeout, as_json)


def _tell(scanner: Scanner, run_id: str, request_id: str, timeout: float, as_json: bool) -> None:
    found = verdict(scanner, run_id, request_id, timeout)
    if found is None:
        _no_verdict(timeout)
    if as_json:
        line(found)
    told = accepted_text(found)
    if not found.accepted:
        leave(FAILED, told)
    if not as_json:
        say(told)


def accepted_text(found: Verdict) -> str:
    """The verdict as a sentence."""
    if not found.accepted:
        return f"refused: {safe(found.reason, 500)}"
    about = f" ({safe(found.reason, 200)})" if found.reason else ""
    return f"accepted{about}; {safe(found.run_id, 200)} is at version {found.version}"


def _no_verdict(timeout: float) -> NoReturn:
    leave(
        FAILED,
        f"no verdict after {timeout:g} s: is an engine running? What was sent stands on Kafka and "
        "is taken as soon as one reads it",
    )
