"""``perdure approve`` without an id: list the questions, pick one, look at it, decide.

Sensitive values stay covered until ``uncover`` is typed. What is decided on is bound by its digest
to what was shown.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalDecision, ApprovalRequest, ToolSpec
from perdure.settings import Settings
from perdure.streams.core.policies.approval import NEEDS_REASON
from perdure.tables import catalog, questions
from perdure.topics_reader import Scanner

from . import deciding
from .console import USAGE, leave, say
from .pending import asked_of, covered_question, print_question
from .terminal import emit, safe, user_name

LIMITS = ("steps", "tokens", "seconds", "cost")


def check_terminal() -> None:
    """A dialogue needs somebody to talk to."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        leave(USAGE, "name the question: perdure approve APPROVAL (`perdure pending` lists them)")


def talk(made: Settings, approver: str | None, timeout: float) -> None:
    """One question after the other, until there is none or the person leaves."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    me = approver or user_name() or leave(USAGE, "who decides? give --as NAME")
    emit(f"you decide as {safe(me)} (--as NAME for another)")
    while True:
        waiting = sorted(
            questions(scanner).values(), key=lambda each: (not may(each, me), each.expires_at)
        )
        if not waiting:
            say("nothing waits for a person")
            return
        for number, each in enumerate(waiting, 1):
            emit(f"{number:>3}  {safe(each.title, 100)}   {each.approval_id}{_note(each, me)}")
        picked = _number(len(waiting))
        if picked is None:
            return
        emit()
        _take_up(made, waiting[picked - 1], catalog(scanner)[0], me, timeout)


def may(question: ApprovalRequest, me: str) -> bool:
    """Whether a person is asked and has not answered, as far as the question says."""
    asked = me in question.approvers if question.approvers else me != question.user_id
    return asked and not _has_decided(question, me)


def _has_decided(question: ApprovalRequest, me: str) -> bool:
    return any(
        done.get("approver") == me and done.get("counts", True) for done in question.decisions or ()
    )


def _note(question: ApprovalRequest, me: str) -> str:
    if may(question, me):
        return ""
    if _has_decided(question, me):
        return "   (you have decided, others have not)"
    return f"   (asked: {asked_of(question)})"


def _take_up(
    made: Settings, question: ApprovalRequest, tools: dict[str, ToolSpec], me: str, timeout: float
) -> None:
    """Show a question, take a decision, send it."""
    covered = covered_question(question, tools)
    print_question(covered, whole=True)
    hides = covered != question
    while True:
        word = _word(question, hides)
        if word is None:
            return
        if word != "uncover":
            break
        print_question(question, whole=True)
        covered, hides = question, False
    try:
        decision = _decision(question, covered, word, me)
        if decision is not None:
            deciding.decide(made, decision, timeout, False)
    except typer.Exit:
        return  # why was said; the list comes again


def _number(count: int) -> int | None:
    while True:
        text = typer.prompt(f"which (1 to {count}, q to leave)", default="1").strip()
        if text in ("q", "quit", ""):
            return None
        if text.isdecimal() and 1 <= int(text) <= count:
            return int(text)
        say(f"a number from 1 to {count}, or q")


def _word(question: ApprovalRequest, hides: bool) -> str | None:
    words = [*question.allowed_decisions, *(["uncover"] if hides else [])]
    while True:
        text = typer.prompt(f"{', '.join(words)}, or back", default="back").strip()
        if text == "back":
            return None
        if text in words:
            return str(text)
        say(f"one of {', '.join(words)}, or back")


def _decision(
    question: ApprovalRequest, covered: ApprovalRequest, word: str, me: str
) -> ApprovalDecision | None:
    content: dict[str, Any] = {"digest": question.digest}
    if word == "modify":
        changed = _changed(question, covered)
        if changed is None:
            return None
        content["arguments"] = changed
    if word == "answer":
        content["text"] = typer.prompt("the answer")
    if word == "mark_done":
        content["answer"] = typer.prompt("its result as JSON", default="null")
    if word == "extend":
        content["budget"] = _budget()
    if word in NEEDS_REASON:
        content["reason"] = typer.prompt("why")
    return deciding.decision_of(question.approval_id, word, me, **content)


def _changed(question: ApprovalRequest, covered: ApprovalRequest) -> str | None:
    """The arguments with what is to be different, once the person has seen them whole."""
    text = typer.prompt("what to change, as a JSON object (what it leaves out stays)")
    try:
        given = parse(text)
    except RecordError as error:
        leave(USAGE, str(error))
    if not isinstance(given, dict):
        leave(USAGE, 'a JSON object of arguments, such as {"amount": 50}')
    old = question.arguments if isinstance(question.arguments, dict) else {}
    if "$blob" in old:
        old = {}  # too large to travel with the question: what is given is all there is
    shown = covered.arguments if isinstance(covered.arguments, dict) else {}
    emit("then this would run:")
    for name, value in {**old, **given}.items():
        seen = value if name in given else shown.get(name, value)
        emit(f"  {safe(name, 60)}: {safe(seen, 2_000)}")
    if not typer.confirm("send it", default=False):
        return None
    return json.dumps({**old, **given}, ensure_ascii=False)


def _budget() -> dict[str, float]:
    """What is added, such as ``5`` (steps) or ``tokens=1000 cost=2.5``."""
    while True:
        text = typer.prompt("what to add: steps, or tokens=N seconds=N cost=N")
        added: dict[str, float] = {}
        for part in text.replace(",", " ").split():
            name, equals, number = part.partition("=")
            if not equals:
                name, number = "steps", name
            try:
                added[name] = int(number) if name in ("steps", "tokens") else float(number)
            except ValueError:
                added.clear()
                break
        if added and all(name in LIMITS and value > 0 for name, value in added.items()):
            return added
        say("such as 5, or steps=5 tokens=1000")
