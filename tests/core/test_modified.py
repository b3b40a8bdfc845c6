"""A `modify` whose arguments another rule asks about: it counts where that rule lets its sender decide."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import ApprovalRule, Person

from .harness import PlanStep, World, accepted, agent, refused, rule, tool

BOSS = rule(kind="action", tool="pay", when="arguments.amount > 1000", approvers=["boss"])
ANN = rule(kind="action", tool="pay", when="arguments.amount > 100", approvers=["ann"])


def asked(*rules: ApprovalRule, amount: int = 150, **values: Any) -> World:
    """A run that asks about a payment."""
    made = World(
        tool("pay", "idempotent"), tool("look"), agent_spec=agent("pay", "look", approvals=list(rules), **values)
    )  # fmt: skip
    accepted(made.plan(PlanStep("a", "pay", {"amount": amount})))
    return made


def to(made: World, amount: int, by: str = "ann", **values: Any) -> str:
    given = {"reason": "r", "arguments": {"amount": amount}, **values}
    return accepted(made.decide("modify", by, **given)).verdict


def yes(made: World, by: str) -> Any:
    """To what is asked now."""
    return made.decide("approve", by, digest=made.approval().digest)


def paid(made: World) -> list[int]:
    return [command.arguments["amount"] for command in made.sent if command.target == "pay"]


def test_whoever_may_pay_little_cannot_make_it_much() -> None:
    made = asked(BOSS, ANN)
    assert to(made, 1_000_000) == (
        "counted: 0 of 1, for another rule asks about these arguments: boss may decide"
    )
    assert (paid(made), made.status) == ([], "waiting_approval")
    question = made.approval()
    assert (question.approvers, question.arguments) == (["boss"], {"amount": 1_000_000})
    assert question.rule["source"] == "agent[0]"
    assert question.rule["arguments"] == {"amount": 1_000_000}
    refused(yes(made, "ann"), "ann may not decide here; boss may")
    accepted(yes(made, "boss"))
    assert paid(made) == [1_000_000]
    assert made.action(1).approved_by == "boss"


def test_the_question_says_who_changed_it_and_that_this_is_no_yes() -> None:
    made = asked(BOSS, ANN)
    to(made, 5000)
    (said,) = made.approval().decisions
    assert (said["approver"], said["decision"], said["counts"]) == ("ann", "modify", False)
    assert made.approval().original_arguments == {"amount": 150}


@pytest.mark.parametrize("amount", [120, 100, 1])
def test_arguments_of_the_same_rule_or_of_none_run_at_once(amount: int) -> None:
    made = asked(BOSS, ANN)
    assert to(made, amount) == "modify"
    assert paid(made) == [amount]
    assert "asks" not in made.events[-2].data


def test_smaller_arguments_are_asked_about_as_if_the_agent_had_proposed_them() -> None:
    made = asked(BOSS, ANN, amount=5000)
    to(made, 150, "boss")
    assert made.approval().approvers == ["ann"]
    accepted(yes(made, "ann"))
    assert paid(made) == [150]


def test_there_and_back_the_rule_follows_the_arguments() -> None:
    made = asked(BOSS, ANN)
    to(made, 5000)
    to(made, 150, "boss")
    to(made, 6000, "ann")
    refused(yes(made, "ann"), "boss may")
    assert paid(made) == []


def test_a_sender_whom_the_new_rule_names_counts() -> None:
    both = rule(kind="action", when="arguments.amount > 1000", approvers=["ann", "boss"])
    made = asked(both, ANN)
    assert to(made, 5000) == "modify"
    assert paid(made) == [5000]
    assert made.approval().required == 1


def test_the_new_rules_quorum_is_needed_and_its_sender_is_one_of_them() -> None:
    two = rule(
        kind="action", when="arguments.amount > 1000", approvers=["ann", "bob", "cyd"], required=2
    )
    made = asked(two, ANN)
    assert to(made, 5000) == "counted: 1 of 2"
    refused(yes(made, "ann"), "already said yes")
    accepted(yes(made, "bob"))
    assert paid(made) == [5000]


def test_an_earlier_yes_is_for_the_earlier_arguments_only() -> None:
    """Also that of the sender himself, and of those whom the new rule names too."""
    one = rule(kind="action", when="arguments.amount > 1000", approvers=["boss", "bob"], required=2)
    two = rule(
        kind="action", when="arguments.amount > 100", approvers=["ann", "bob", "cyd"], required=3
    )
    made = asked(one, two)
    accepted(yes(made, "bob"))
    accepted(yes(made, "ann"))
    assert to(made, 5000).startswith("counted: 0 of 2")
    accepted(yes(made, "boss"))
    assert paid(made) == []
    accepted(yes(made, "bob"))
    assert paid(made) == [5000]


def test_the_tasks_user_does_not_slip_in_by_a_rule_that_lets_him() -> None:
    own = rule(kind="action", when="arguments.amount > 100", approvers=["user"])
    made = asked(rule(kind="action", when="arguments.amount > 1000"), own)
    to(made, 5000, "uma")
    assert made.approval().anyone
    refused(yes(made, "uma"), "the task's user")
    accepted(yes(made, "bob"))
    assert paid(made) == [5000]


def test_a_rule_for_signed_decisions_does_not_count_an_unsigned_one() -> None:
    signed = rule(kind="action", when="arguments.amount > 1000", approvers=["ann"], signed=True)
    made = asked(signed, ANN)
    assert to(made, 5000).startswith("counted: 0 of 1")
    refused(yes(made, "ann"), "signed decisions only")
    assert paid(made) == []


def test_what_the_tool_asks_itself_is_asked_too() -> None:
    pay = tool("pay", "idempotent", approval="arguments.amount > 1000", approvers=["boss"])
    made = World(pay, agent_spec=agent("pay", approvals=[rule(kind="action", when="arguments.amount > 100 && arguments.amount <= 1000", approvers=["ann"])]))  # fmt: skip
    made.plan(PlanStep("a", "pay", {"amount": 150}))
    to(made, 5000)
    assert made.approval().approvers == ["boss"]


def test_the_new_rules_time_and_policy_hold() -> None:
    """Else what is small enough to pass in silence would be made large, and waited for."""
    made = asked(
        rule(kind="action", when="arguments.amount > 1000", approvers=["boss"], on_timeout="reject",
             within_seconds=7200, remind_seconds=600),
        rule(kind="action", when="arguments.amount > 100", approvers=["ann"], on_timeout="approve",
             within_seconds=60),
    )  # fmt: skip
    to(made, 5000)
    question = made.approval()
    assert question.expires_at == made.now + 7_200_000
    assert made.header.timers == {"ask/1": made.now + 7_200_000, "remind/1": made.now + 600_000}
    accepted(made.timer("ask/1"))
    assert paid(made) == []
    assert made.step("a") == "rejected"


def test_whoever_a_question_was_escalated_to_may_modify_it_under_the_same_rule() -> None:
    up = {"on_timeout": "escalate", "escalate_to": ["cyd"], "within_seconds": 60}
    made = asked(BOSS, rule(kind="action", when="arguments.amount > 100", approvers=["ann"], **up))
    accepted(made.timer("ask/1"))
    to(made, 200, "cyd")
    assert paid(made) == [200]


def test_but_not_into_another_rule() -> None:
    up = {"on_timeout": "escalate", "escalate_to": ["cyd"], "within_seconds": 60}
    made = asked(BOSS, rule(kind="action", when="arguments.amount > 100", approvers=["ann"], **up))
    accepted(made.timer("ask/1"))
    to(made, 5000, "cyd")
    question = made.approval()
    assert (question.approvers, question.escalated, paid(made)) == (["boss"], False, [])


def test_a_step_that_always_asks_is_asked_about_by_the_rule_for_everything() -> None:
    made = World(tool("pay", "idempotent"), agent_spec=agent("pay", approvals=[BOSS, rule(approvers=["ann"])]))  # fmt: skip
    made.plan(PlanStep("a", "pay", {"amount": 150}, approval="always"))
    to(made, 90)
    assert paid(made) == [90]
    other = World(tool("pay", "idempotent"), agent_spec=agent("pay", approvals=[BOSS, rule(approvers=["ann"])]))  # fmt: skip
    other.plan(PlanStep("a", "pay", {"amount": 150}, approval="always"))
    to(other, 5000)
    assert other.approval().approvers == ["boss"]


def test_those_who_are_asked_now_are_told() -> None:
    mail = {"tool": "mail", "arguments": {"to": {"$": "approval.title"}}}
    made = World(
        tool("pay", "idempotent"),
        tool("mail", "external"),
        agent_spec=agent(
            "pay",
            approvals=[rule(kind="action", when="arguments.amount > 1000", approvers=["bosses"]), ANN],
            people={"bosses": Person(members=["boss"], notify=mail)},
        ),
    )  # fmt: skip
    made.plan(PlanStep("a", "pay", {"amount": 150}))
    to(made, 5000)
    assert made.command("mail").arguments["to"] == "pay(amount=5000)"
