"""Calls that ask a person: ask_user, ask_authority, hand_over."""

from __future__ import annotations

import pytest

from .harness import PlanStep, World, accepted, agent, refused, rule, tool


def started(*tools: object, **values: object) -> World:
    made = World(*(tools or (tool("look"),)), **values)  # type: ignore[arg-type]
    made.start()
    return made


def results(made: World) -> list[str]:
    """What the model reads as the results of its calls."""
    messages = made.command("m").request["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_the_user_is_asked_and_the_answer_is_the_result() -> None:
    made = started()
    made.reply(None, ("ask_user", {"question": "Which order?"}), ("look", {}))
    question = made.approval()
    assert (question.kind, question.question, question.title) == (
        "clarification",
        "Which order?",
        "Which order?",
    )
    assert question.approvers == ["uma"]
    made.answer(made.command("look"), result=1)
    assert made.status == "waiting_approval"
    refused(made.decide("answer", "ann", answer="7"), "ann may not decide here")
    refused(made.decide("approve", "uma"), "takes answer, cancel_run")
    accepted(made.decide("answer", "uma", answer={"order": 7}))
    assert results(made) == ['{"order":7}', "1"]
    made.reply("done")
    assert made.outcome().complete
    assert made.listed()["completed"] == ["look"], "a question is no work"


def test_a_question_that_nobody_answers_ends_the_run() -> None:
    made = started()
    made.reply(None, ("ask_user", {"question": "Which order?"}))
    made.timer("ask/1")
    assert made.status == "cancelled"


@pytest.mark.parametrize("given", [{}, {"question": 7}, {"question": "a", "more": 1}])
def test_a_broken_question_is_told_to_the_model(given: dict[str, object]) -> None:
    made = started()
    made.reply(None, ("ask_user", given))
    assert results(made)[0].startswith("Error: invalid arguments")


def test_a_tool_of_the_agents_own_takes_the_place() -> None:
    made = started(tool("ask_user", "external"))
    made.reply(None, ("ask_user", {"anything": 1}))
    assert made.command("ask_user").effect == "external"
    assert not made.header.asks


def denied() -> World:
    made = started(tool("pay", "external"), tool("look"))
    made.reply(None, ("pay", {"amount": 5}))
    made.fails(made.command("pay"), "permission", "http_403")
    return made


def test_a_call_that_was_refused_is_made_again_in_somebodys_name() -> None:
    made = denied()
    made.reply(None, ("ask_authority", {"reason": "the customer waits"}))
    question = made.approval()
    assert (question.kind, question.action, question.tool) == ("authority", 2, "pay")
    assert question.arguments == {"amount": 5}
    assert question.reason == "the customer waits"
    made.decide("approve", digest=question.digest)
    again = made.command("pay")
    assert (again.action_id, again.attempt) == ("r1/2", 2)
    assert again.approval is not None
    assert again.approval.approver == "ann"
    assert made.status == "running"
    made.answer(again, result={"paid": 5})
    assert results(made) == [
        '{"paid":5}',
        '"Allowed by ann. The call was made again: its own result stands above."',
    ]
    made.reply("paid")
    assert made.outcome().complete


def test_authority_that_is_refused_is_told() -> None:
    made = denied()
    made.reply(None, ("ask_authority", {"reason": "please", "tool": "pay"}))
    made.decide("reject", reason="not today")
    assert results(made)[1] == "Declined by a person, do not retry. Reason: not today"
    assert made.action(2).status == "failed"


def test_authority_for_what_was_not_refused_is_an_error_result() -> None:
    made = started()
    made.reply(None, ("ask_authority", {"reason": "just in case"}))
    assert not made.header.asks
    assert "no call of this run was refused" in results(made)[0]


def test_two_questions_about_one_call_are_one() -> None:
    made = denied()
    made.reply(None, ("ask_authority", {"reason": "a"}), ("ask_authority", {"reason": "b"}))
    assert len(made.header.asks) == 1


def test_a_late_success_of_the_refused_call_answers_the_question() -> None:
    made = denied()
    made.reply(None, ("ask_authority", {"reason": "a"}))
    made.answer(made.sent[1], result={"paid": 5})
    assert not made.header.asks
    assert "settled meanwhile" in results(made)[1]


def test_in_a_plan_missing_permission_asks_for_authority() -> None:
    made = World(tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"))
    made.fails(made.command(), "permission", "http_403")
    assert made.approval().kind == "authority"
    made.decide("approve")
    again = made.command("pay")
    assert again.approval is not None
    made.answer(again, result=1)
    assert made.outcome().complete


def test_in_a_plan_authority_that_is_refused_fails_the_run() -> None:
    made = World(tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"))
    made.fails(made.command(), "permission", "http_403")
    made.decide("reject", reason="no")
    assert made.status == "failed"


@pytest.mark.parametrize(
    ("word", "told"), [("answer", '"try the other door"'), ("retry", '"Go on and try again."')]
)
def test_handing_over(word: str, told: str) -> None:
    made = started()
    made.reply(None, ("hand_over", {"reason": "I am stuck"}))
    question = made.approval()
    assert (question.kind, question.reason) == ("handover", "I am stuck")
    made.decide(word, **({"answer": "try the other door"} if word == "answer" else {}))
    assert results(made) == [told]


def test_ending_while_a_question_is_open_closes_it() -> None:
    made = started()
    made.reply(None, ("ask_user", {"question": "?"}))
    made.control("cancel")
    assert made.status == "cancelled"
    assert not made.header.asks


def test_calls_of_a_paused_run_ask_when_it_is_resumed() -> None:
    made = started()
    made.control("pause")
    made.reply(None, ("ask_user", {"question": "?"}))
    assert not made.header.asks
    made.control("resume")
    assert made.approval().kind == "clarification"


def test_a_rule_says_who_clarifies() -> None:
    spec = agent(
        "look", approvals=[rule(kind="clarification", approvers=["ann"], within_seconds=60)]
    )
    made = started(tool("look"), agent_spec=spec)
    made.reply(None, ("ask_user", {"question": "?"}))
    assert made.approval().approvers == ["ann"]


def test_a_call_of_a_paused_run_that_fails_at_once_holds_nothing_up() -> None:
    made = started()
    made.control("pause")
    made.reply(None, ("ask_authority", {"reason": "just in case"}))
    made.control("resume")
    assert "no call of this run was refused" in results(made)[0]
