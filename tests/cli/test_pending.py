"""How a question reads: each kind as the core asks it, for a list and for a dialogue."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import ApprovalRequest, BudgetPolicy
from perdure.streams.core.policies.approval import ALLOWED

from perdure.cli import dialogue
from perdure.cli.pending import covered_question, print_question

from ..core.harness import World, agent, rule, tool

FAR = 4_000_000_000_000


def question_of(made: World, **values: Any) -> ApprovalRequest:
    """The newest question, as it stands on the pending topic."""
    asked, header = made.approval(), made.header
    same = (
        "kind", "title", "tool", "arguments", "effect", "reason", "rule", "question", "history",
        "approvers", "required", "decisions", "requested_at", "expires_at", "on_timeout", "digest",
    )  # fmt: skip
    given = {name: getattr(asked, name) for name in same}
    return ApprovalRequest(
        run_id=header.run_id,
        agent=header.agent,
        user_id=header.user_id,
        session_id=header.session_id,
        tenant=header.tenant,
        approval_id=made.run.approval_id(asked.n),
        action_id=None if asked.action is None else made.run.action_id(asked.action),
        input=made.run.start.input,
        allowed_decisions=list(ALLOWED[asked.kind]),
        **{**given, **values},
    )


def told(question: ApprovalRequest, capsys: pytest.CaptureFixture[str], whole: bool = False) -> str:
    capsys.readouterr()
    print_question(question, whole=whole)
    return capsys.readouterr().out


def refund(**rules: Any) -> World:
    made = World(
        tool("look"),
        tool("pay", "external", approval="arguments.amount > 100", title="Pay {amount}",
             sensitive=["iban"]),
        agent_spec=agent("look", "pay", approvals=[rule(approvers=["ann", "bob"], **rules)]),
    )  # fmt: skip
    made.start("pay me")
    made.reply(None, ("look", {"order": "A-1"}))
    made.answer(made.command("look"), result=1)
    made.reply(None, ("pay", {"amount": 500, "iban": "DE89", "why": "it\nis due"}))
    return made


def test_an_action_is_shown_with_what_would_run_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    made = refund(required=2, on_timeout="escalate", escalate_to=["zoe"])
    question = covered_question(question_of(made, expires_at=FAR), made.tools)
    text = told(question, capsys)
    for line in (
        "Pay 500\n",
        "  the task: pay me\n",
        "  calls pay (external)\n",
        "    amount: 500\n",
        "    iban: ***\n",
        "  the model's reason: it\n    | is due\n",
        "  because: arguments.amount > 100 (rule of the tool)\n",
        "  done before: look\n",
        "  may decide: ann, bob; 2 of them must agree\n",
        "; then others are asked\n",
        "    perdure approve r1/a1\n",
    ):
        assert line in text
    made.decide("modify", "ann", arguments={"amount": 400, "iban": "DE89"}, reason="enough")
    later = told(question_of(made), capsys, whole=True)
    assert "so far: ann says modify: enough" in later
    assert "the title names those asked about first" in later
    assert 'done before: look: {"order":"A-1"}' in later
    assert "perdure approve" not in later


def test_a_question_of_the_model_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    made = World(tool("look"))
    made.start()
    made.reply(None, ("ask_user", {"question": "Which order?"}))
    text = told(question_of(made), capsys)
    assert text.count("Which order?") == 1
    assert "ask_user" not in text
    assert "may decide: uma" in text
    assert "perdure answer r1/a1 TEXT" in text
    made.decide("answer", "uma", answer="A-1")
    made.reply(None, ("hand_over", {"reason": "I am stuck"}))
    handed = told(question_of(made), capsys)
    assert handed.count("I am stuck") == 1
    assert "hand_over" not in handed
    assert "perdure decide r1/a2 retry" in handed


def test_what_went_wrong_is_told_once_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    made = World(tool("pay", "external"))
    made.start()
    made.reply(None, ("pay", {"amount": 5}))
    made.fails(made.command("pay"), "permission", "http_403")
    made.reply(None, ("ask_authority", {"reason": "please"}))
    text = told(question_of(made), capsys)
    assert text.count("permission http_403 it went wrong") == 1
    assert "  would call again pay (external)\n" in text
    made.decide("reject", reason="no")
    for _ in range(3):
        made.reply("")
    unusable = told(question_of(made), capsys)
    assert "because:  " not in unusable
    assert "rule" not in unusable
    assert "went wrong before: permission http_403" in unusable or "because: permission" in unusable


def test_a_used_up_budget_names_no_call(capsys: pytest.CaptureFixture[str]) -> None:
    made = World(tool("look"), agent_spec=agent("look", budget=BudgetPolicy(steps=1, then="ask")))
    made.start()
    made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1)
    text = told(question_of(made), capsys)
    assert "called" not in text
    assert "perdure decide r1/a1 extend --steps N" in text


@pytest.mark.parametrize(
    ("approvers", "me", "may"),
    [
        ([], "ann", True),
        ([], "uma", False),
        (["ann"], "ann", True),
        (["ann"], "bob", False),
        (["uma"], "uma", True),
    ],
)
def test_the_dialogue_begins_with_what_one_may_decide(
    approvers: list[str], me: str, may: bool
) -> None:
    question = question_of(refund(), approvers=approvers)
    assert dialogue.may(question, me) is may
    said = [{"approver": me, "decision": "approve"}]
    assert not dialogue.may(question_of(refund(), approvers=approvers, decisions=said), me)
