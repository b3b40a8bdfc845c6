"""The body of ``perdure pending``, and how a question is shown to whoever decides on it."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from perdure.reading import Scanner, covered, covered_history, sensitive
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalRequest, ToolSpec
from perdure.settings import Settings
from perdure.streams.core.policies.approval import shown
from perdure.tables import catalog

from .console import line, say
from .fact_lines import error_text, named, said
from .terminal import ago, deadline, emit, safe

COMMANDS = {
    "approve": "perdure approve {id}",
    "reject": "perdure reject {id} --reason WHY",
    "modify": "perdure modify {id} --arguments JSON --reason WHY",
    "answer": "perdure answer {id} TEXT",
    "retry": "perdure decide {id} retry",
    "mark_done": "perdure decide {id} mark_done --answer JSON --reason WHY",
    "mark_not_done": "perdure decide {id} mark_not_done --reason WHY",
    "extend": "perdure decide {id} extend --steps N",
    "cancel_run": "perdure decide {id} cancel_run",
}
"""What to type for each decision."""


def pending(made: Settings, *, follow: bool, uncover: bool, as_json: bool) -> None:
    """List the open questions, the one that expires first on top; then, if asked, what comes."""
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    tools = {} if uncover else catalog(scanner)[0]
    questions: dict[str, ApprovalRequest] = {}
    listed = False
    for raw in scanner.scan([topics.PENDING], follow=follow):
        if raw is None:
            if not listed:
                _list(questions, tools, as_json)
            listed = True
            continue
        name = (raw.key or b"").decode("utf-8", "replace")
        if raw.value is None:
            gone = questions.pop(name, None)
            if listed and gone is not None:
                _closed(name, as_json)
            continue
        known = name in questions
        try:
            questions[name] = codec.decode(raw.value, ApprovalRequest)
        except RecordError as error:
            say(f"perdure: a question that can't be read, {safe(name)}: {error}")
            continue
        if listed:
            if known and not as_json:
                emit(f"{safe(name, 210)} has changed:")
            if not uncover:  # first: the tool may have been announced a moment ago
                tools = catalog(scanner)[0]
            _one(questions[name], tools, as_json)


def _closed(name: str, as_json: bool) -> None:
    if as_json:
        line({"approval_id": name, "closed": True})
    else:
        emit(f"{safe(name, 210)} is closed")


def _list(questions: dict[str, ApprovalRequest], tools: dict[str, ToolSpec], as_json: bool) -> None:
    for question in sorted(questions.values(), key=lambda q: q.expires_at):
        _one(question, tools, as_json)
    if not questions:
        say("nothing waits for a person")


def _one(question: ApprovalRequest, tools: dict[str, ToolSpec], as_json: bool) -> None:
    made = covered_question(question, tools)
    if as_json:
        line(made)
    else:
        print_question(made)


def covered_question(question: ApprovalRequest, tools: dict[str, ToolSpec]) -> ApprovalRequest:
    """The question with sensitive arguments covered, also those of what was done before."""
    names = sensitive(tools, question.tool)
    past = covered_history(question.history, lambda tool: sensitive(tools, tool))
    return msgspec.structs.replace(
        question,
        arguments=covered(question.arguments, names),
        rule=covered(question.rule, names),
        history=past,
    )


def print_question(question: ApprovalRequest, *, whole: bool = False) -> None:
    """A question as a block of lines that fit a terminal of 80 columns or wrap.

    ``whole``: for a dialogue, with all that was done before and without the commands to type.
    """
    emit(safe(question.title, 200), "bold")
    emit(f"  {question.approval_id}   {question.kind}, asked {ago(question.requested_at)}")
    emit(f"  for user {safe(question.user_id)}, agent {safe(question.agent)}")
    if question.input is not None and whole:
        said("the task", question.input)
    elif question.input is not None:
        emit(f"  the task: {safe(question.input, 200)}")
    _call(question)
    if question.question and shown(question.question, 200) != question.title:
        said("asks", question.question)
    if question.reason and not question.title.endswith(shown(question.reason, 200)):
        said("the model's reason", question.reason)
    why = _why(question.rule)
    for text in why:
        emit(f"  because: {text}")
    _history(question.history, whole, why)
    for done in question.decisions or ():
        reason = f": {safe(done['reason'], 500)}" if done.get("reason") else ""
        emit(
            f"  so far: {safe(done.get('approver', ''))} says {safe(done.get('decision', ''))}{reason}"
        )
    if any(done.get("decision") == "modify" for done in question.decisions or ()):
        emit("  the arguments were changed: they count, the title names those asked about first")
    many = f"; {question.required} of them must agree" if question.required > 1 else ""
    emit(f"  may decide: {asked_of(question)}{many}")
    emit(f"  {deadline(question.expires_at, question.on_timeout)}")
    for command in () if whole else commands(question):
        emit(f"    {command}")
    emit()


def commands(question: ApprovalRequest) -> list[str]:
    """What may be typed to decide on it."""
    return [
        COMMANDS.get(word, "perdure decide {id} " + shlex.quote(safe(word, 60))).format(
            id=question.approval_id
        )
        for word in question.allowed_decisions
    ]


def asked_of(question: ApprovalRequest) -> str:
    """Who may decide, in words."""
    return ", ".join(safe(name, 60) for name in question.approvers) or "anyone but the task's user"


_VERBS = {"action": "calls", "authority": "would call again"}


def _call(question: ApprovalRequest) -> None:
    """The call in question. A call that is the question itself would only say it twice."""
    if question.tool is None or (question.kind, question.tool) in _ITSELF:
        return
    effect = f" ({question.effect})" if question.effect else ""
    emit(f"  {_VERBS.get(question.kind, 'called')} {safe(question.tool)}{effect}")
    named(question.arguments, 2)


_ITSELF = {("clarification", "ask_user"), ("handover", "hand_over")}


def _why(rule: Any) -> list[str]:
    """What made somebody ask: the rule that fired, or what went wrong."""
    if not isinstance(rule, dict):
        return [] if rule is None else [safe(rule, 300)]
    if "source" in rule:
        text = f"{safe(rule.get('when', ''), 200)} (rule of {_source(rule['source'])})"
        return [f"{text}: {safe(rule['error'], 200)}" if "error" in rule else text]
    errors = [rule["error"]] if "error" in rule else rule.get("errors") or ()
    return [error_text(error) for error in errors]


def _source(source: Any) -> str:
    return {"tool": "the tool", "plan": "the plan"}.get(str(source), f"the {safe(source, 60)}")


def _history(past: Any, whole: bool, told: list[str]) -> None:
    """What was done before, and what went wrong, unless it is ``told`` already."""
    if not isinstance(past, dict):
        return
    completed = [done for done in past.get("completed") or () if isinstance(done, dict)]
    if whole:
        for done in completed:
            said(f"done before: {safe(done.get('tool'), 60)}", done.get("arguments"))
    elif completed:
        emit("  done before: " + ", ".join(safe(done.get("tool"), 60) for done in completed))
    errors = [text for text in map(error_text, past.get("errors") or ()) if text not in told]
    for text in errors if whole else errors[-1:]:
        emit(f"  went wrong before: {text}")
