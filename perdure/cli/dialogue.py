"""``perdure approve`` without an id: list the questions, pick one, look at it, decide."""

from __future__ import annotations

import sys
from typing import Any

import typer

from perdure.schemas.records import ApprovalRequest
from perdure.settings import Settings
from perdure.tables import catalog, questions
from perdure.topics_reader import Scanner

from . import deciding
from .console import USAGE, leave, say
from .pending import covered_question, print_question
from .terminal import emit, safe

_NEEDS_REASON = ("reject", "modify", "mark_done", "mark_not_done")


def check_terminal() -> None:
    """A dialogue needs somebody to talk to."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        leave(USAGE, "name the question: perdure approve APPROVAL (`perdure pending` lists them)")


def talk(made: Settings, approver: str | None, timeout: float) -> None:
    """One question after the other, until there is none or the person leaves."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    while True:
        waiting = sorted(questions(scanner).values(), key=lambda each: each.expires_at)
        if not waiting:
            say("nothing waits for a person")
            return
        for number, each in enumerate(waiting, 1):
            emit(f"{number:>3}  {safe(each.title, 100)}   {each.approval_id}")
        picked = _number(len(waiting))
        if picked is None:
            return
        question = waiting[picked - 1]
        emit()
        print_question(covered_question(question, catalog(scanner)[0]))
        word = _word(question)
        if word is None:
            continue
        try:
            deciding.decide(made, _decision(question, word, approver), timeout, False)
        except typer.Exit:
            say("nothing was changed by that")


def _number(count: int) -> int | None:
    while True:
        text = typer.prompt(f"which (1 to {count}, q to leave)", default="1").strip()
        if text in ("q", "quit", ""):
            return None
        if text.isdigit() and 1 <= int(text) <= count:
            return int(text)
        say(f"a number from 1 to {count}, or q")


def _word(question: ApprovalRequest) -> str | None:
    words = question.allowed_decisions
    while True:
        text = typer.prompt(f"{', '.join(words)}, or back", default="back").strip()
        if text == "back":
            return None
        if text in words:
            return str(text)
        say(f"one of {', '.join(words)}, or back")


def _decision(question: ApprovalRequest, word: str, approver: str | None) -> Any:
    content: dict[str, Any] = {"digest": question.digest}
    if word == "modify":
        content["arguments"] = typer.prompt("the new arguments as JSON")
    if word == "answer":
        content["text"] = typer.prompt("the answer")
    if word == "mark_done":
        content["answer"] = typer.prompt("its result as JSON", default="null")
    if word == "extend":
        content["budget"] = {"steps": typer.prompt("steps to add", type=int)}
    if word in _NEEDS_REASON:
        content["reason"] = typer.prompt("why")
    return deciding.decision_of(question.approval_id, word, approver, **content)
