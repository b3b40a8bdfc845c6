"""The body of ``perdure pending``, and how a question is shown to whoever decides on it."""

from __future__ import annotations

import shlex

import msgspec

from perdure.reading import Scanner, covered, sensitive
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalRequest, ToolSpec
from perdure.settings import Settings
from perdure.tables import catalog

from .console import line, say
from .terminal import ago, deadline, emit, paragraphs, safe

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
            if listed and gone is not None and not as_json:
                emit(f"{safe(name, 210)} is closed")
            continue
        try:
            questions[name] = codec.decode(raw.value, ApprovalRequest)
        except RecordError as error:
            say(f"perdure: a question that can't be read, {safe(name)}: {error}")
            continue
        if listed:
            _one(questions[name], tools, as_json)
            if not uncover:
                tools = catalog(scanner)[0]


def _list(questions: dict[str, ApprovalRequest], tools: dict[str, ToolSpec], as_json: bool) -> None:
    for question in sorted(questions.values(), key=lambda q: q.expires_at):
        _one(question, tools, as_json)
    if not questions:
        say("nothing waits for a person")


def _one(question: ApprovalRequest, tools: dict[str, ToolSpec], as_json: bool) -> None:
    shown = covered_question(question, tools)
    if as_json:
        line(shown)
    else:
        print_question(shown)


def covered_question(question: ApprovalRequest, tools: dict[str, ToolSpec]) -> ApprovalRequest:
    """The question with sensitive arguments covered, also those of what was done before."""
    rule, past = question.rule, question.history
    names = sensitive(tools, question.tool)
    if isinstance(past, dict):
        completed = [
            {
                **done,
                "arguments": covered(done.get("arguments"), sensitive(tools, done.get("tool"))),
            }
            for done in past.get("completed") or ()
        ]
        past = {**past, "completed": completed}
    return msgspec.structs.replace(
        question,
        arguments=covered(question.arguments, names),
        rule=covered(rule, names),
        history=past,
    )


def print_question(question: ApprovalRequest) -> None:
    """A question as a block of lines that fit a terminal of 80 columns or wrap."""
    emit(safe(question.title, 200), "bold")
    emit(f"  {question.approval_id}   {question.kind}, asked {ago(question.requested_at)}")
    emit(f"  for user {safe(question.user_id)}, agent {safe(question.agent)}")
    if question.tool is not None:
        effect = f" ({question.effect})" if question.effect else ""
        emit(f"  calls {safe(question.tool)}{effect}")
    if isinstance(question.arguments, dict):
        for name, value in question.arguments.items():
            emit(f"    {safe(name, 60)}: {safe(value, 2_000)}")
    elif question.arguments is not None:
        emit(f"    {safe(question.arguments, 2_000)}")
    if question.question:
        for text in paragraphs(question.question, 2_000):
            emit(f"  asks: {text}")
    if question.reason:
        emit(f"  the model's reason: {safe(question.reason, 2_000)}")
    if question.rule is not None:
        emit(f"  rule: {_rule(question.rule)}")
    if isinstance(question.history, dict) and question.history.get("errors"):
        last = question.history["errors"][-1]
        text = f"{last.get('kind', '')} {last.get('code', '')} {last.get('message', '')}"
        emit(f"  last error: {safe(text.strip(), 300)}")
    for done in question.decisions or ():
        emit(f"  so far: {safe(done.get('approver', ''))} says {safe(done.get('decision', ''))}")
    who = ", ".join(safe(name, 60) for name in question.approvers) or "anyone but the task's user"
    many = f", {question.required} of them" if question.required > 1 else ""
    emit(f"  may decide: {who}{many}")
    emit(f"  {deadline(question.expires_at, question.on_timeout)}")
    for word in question.allowed_decisions:
        made = COMMANDS.get(word, "perdure decide {id} " + shlex.quote(safe(word, 60)))
        emit(f"    {made.format(id=question.approval_id)}")
    emit()


def _rule(rule: object) -> str:
    if not isinstance(rule, dict):
        return safe(rule, 300)
    if "error" in rule and isinstance(rule["error"], dict):
        return f"after {safe(rule['error'].get('kind', ''), 60)}"
    text = f"{safe(rule.get('when', ''), 200)} ({safe(rule.get('source', ''), 60)})"
    return f"{text}: {safe(rule['error'], 200)}" if "error" in rule else text
