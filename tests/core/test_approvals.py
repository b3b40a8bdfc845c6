"""Questions to people: who is asked, whose word counts, and what it does."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.canonical import digest
from perdure.schemas.records import Person

from .harness import PlanStep, World, accepted, agent, refused, rule, tool

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["to", "amount"],
    "additionalProperties": False,
}
PAY = tool("pay", "external", approval="always", parameters=SCHEMA, title="Pay {amount} to {to}")


def asked(*calls: dict[str, Any], pay: Any = PAY, **values: Any) -> World:
    """A run whose model proposed payments."""
    made = World(pay, tool("look"), agent_spec=agent("pay", "look", **values))
    accepted(made.start({"order": 1}))
    given = calls or ({"to": "a", "amount": 5},)
    accepted(made.reply(None, *(("pay", arguments) for arguments in given)))
    return made


def same(made: World, found: Any, *words: str) -> None:
    """Refused, and the run still waits."""
    refused(found, *words)
    assert made.status == "waiting_approval"
    assert not made.commands


def test_a_question_shows_exactly_what_would_run() -> None:
    made = asked()
    question = made.approval()
    assert (question.kind, question.tool, question.effect) == ("action", "pay", "external")
    assert question.arguments == {"to": "a", "amount": 5}
    assert question.title == "Pay 5 to a"
    assert question.rule["when"] == "always"
    assert made.status == "waiting_approval"
    assert not made.commands


def test_the_digest_covers_approval_run_action_tool_and_arguments() -> None:
    made = asked()
    told = {
        "approval_id": "r1/a1",
        "run_id": "r1",
        "action_id": "r1/2",
        "tool": "pay",
        "arguments": {"to": "a", "amount": 5},
    }
    assert made.approval().digest == digest(told)


def test_approve_runs_the_arguments_shown() -> None:
    made = asked()
    accepted(made.decide("approve", digest=made.approval().digest))
    command = made.command("pay")
    assert command.arguments == {"to": "a", "amount": 5}
    assert (command.approval.approval_id, command.approval.approver) == ("r1/a1", "ann")


def test_modify_runs_the_new_arguments_and_keeps_the_old() -> None:
    made = asked()
    before = made.approval().digest
    accepted(made.decide("modify", reason="less", arguments={"to": "a", "amount": 1}))
    assert made.command("pay").arguments == {"to": "a", "amount": 1}
    assert made.approval().original_arguments == {"to": "a", "amount": 5}
    assert made.approval().digest != before


def test_reject_goes_to_the_model_with_its_reason() -> None:
    made = asked()
    accepted(made.decide("reject", reason="not him"))
    last = made.command("m").request["messages"][-1]["content"]
    assert last == "Declined by a person, do not retry. Reason: not him"
    assert made.action(2).status == "rejected"


def test_cancel_run_cancels() -> None:
    made = asked()
    accepted(made.decide("cancel_run", reason="stop it"))
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["pay"]
    assert "stop it" in made.outcome().text


def test_three_calls_take_three_decisions_in_any_order() -> None:
    made = asked(*({"to": to, "amount": n} for n, to in enumerate("abc", 1)))
    accepted(made.decide("modify", n=3, reason="more", arguments={"to": "c", "amount": 30}))
    accepted(made.decide("approve", n=1))
    accepted(made.decide("reject", n=2, reason="no"))
    paid = [command.arguments for command in made.sent if command.target == "pay"]
    assert paid == [{"to": "c", "amount": 30}, {"to": "a", "amount": 1}]
    for command in list(made.commands):
        made.answer(command)
    texts = [message["content"] for message in made.command("m").request["messages"][-3:]]
    assert texts[1].startswith("Declined")


def test_a_question_does_not_hold_the_other_calls() -> None:
    made = World(PAY, tool("look"))
    made.start()
    made.reply(None, ("pay", {"to": "a", "amount": 1}), ("look", {}))
    assert made.status == "running"
    made.answer(made.command("look"))
    assert made.status == "waiting_approval"


def test_the_same_call_again_needs_its_own_approval() -> None:
    made = asked()
    made.decide("approve")
    made.answer(made.command("pay"))
    made.reply(None, ("pay", {"to": "a", "amount": 9000}))
    assert made.status == "waiting_approval"
    refused(made.decide("approve", n=1), "already closed")
    assert not made.commands


def test_a_second_decision_is_refused() -> None:
    made = asked()
    accepted(made.decide("approve"))
    refused(made.decide("reject", "bob", reason="no"), "already closed by ann")
    refused(made.decide("approve"), "already closed by ann")
    assert [command.target for command in made.sent].count("pay") == 1


def test_a_decision_before_the_question_is_refused_and_does_not_count_later() -> None:
    made = World(PAY)
    made.start()
    refused(made.decide("approve", n=1), "was ever asked for")
    made.reply(None, ("pay", {"to": "a", "amount": 1}))
    assert made.status == "waiting_approval"


@pytest.mark.parametrize("approval_id", ["r1/a2", "r1/a999999999", "r2/a1", "r1x/a1"])
def test_a_decision_on_another_question_is_refused(approval_id: str) -> None:
    made = asked()
    same(made, made.decide("approve", approval_id=approval_id), approval_id)


def test_a_decision_that_names_another_run_is_refused() -> None:
    made = asked()
    same(made, made.decide("approve", run_id="r2"), "not of run r2")


def test_a_wrong_digest_is_refused() -> None:
    made = asked()
    same(made, made.decide("approve", digest="0" * 64), "digest")


def test_after_a_modify_the_old_digest_is_refused() -> None:
    made = asked(approvals=[rule(kind="action", required=2)])
    old = made.approval().digest
    accepted(made.decide("modify", reason="r", arguments={"to": "b", "amount": 1}))
    same(made, made.decide("approve", "bob", digest=old), "digest")
    accepted(made.decide("approve", "bob", digest=made.approval().digest))
    assert made.command("pay").arguments == {"to": "b", "amount": 1}


@pytest.mark.parametrize("late", [0, 1, 10_000_000])
def test_a_late_decision_is_refused_by_the_brokers_time(late: int) -> None:
    made = asked()
    at = made.approval().expires_at + late
    same(made, made.decide("approve", at=at), "expired")


def test_a_decision_in_time_counts_though_it_is_read_late() -> None:
    made = asked()
    at = made.approval().expires_at - 1
    made.now += 10**9
    accepted(made.decide("approve", at=at))


@pytest.mark.parametrize(
    ("word", "values", "words"),
    [
        ("reject", {}, "needs a reason"),
        ("modify", {"reason": "r"}, "needs the new arguments"),
        ("modify", {"reason": "r", "arguments": {"to": None, "amount": "lots"}}, "arguments: "),
        ("approve", {"arguments": {"to": "a", "amount": 6}}, "come with modify only"),
        ("retry", {}, "takes approve, modify, reject, cancel_run, not retry"),
        ("mark_done", {"reason": "r"}, "not mark_done"),
        ("extend", {}, "not extend"),
        ("answer", {}, "not answer"),
    ],
)
def test_a_decision_that_does_not_fit_is_refused(
    word: str, values: dict[str, Any], words: str
) -> None:
    made = asked()
    same(made, made.decide(word, **values), words)


def test_the_tasks_user_may_not_approve_it() -> None:
    made = asked()
    same(made, made.decide("approve", "uma"), "the task's user")


def test_the_tasks_user_may_not_approve_it_as_a_member_of_a_group() -> None:
    made = asked(
        approvals=[rule(kind="action", approvers=["ops"])],
        people={"ops": Person(members=["uma", "ann"])},
    )
    same(made, made.decide("approve", "uma"), "the task's user")
    accepted(made.decide("approve", "ann"))


def test_self_approval_may_be_allowed() -> None:
    made = asked(approvals=[rule(kind="action", self_approval=True)])
    accepted(made.decide("approve", "uma"))


def test_approvers_user_is_the_tasks_user() -> None:
    made = asked(approvals=[rule(kind="action", approvers=["user"])])
    same(made, made.decide("approve", "ann"), "ann may not decide here; uma may")
    accepted(made.decide("approve", "uma"))


def test_somebody_who_is_no_approver_is_refused() -> None:
    made = asked(pay=tool("pay", "external", approval="always", approvers=["ann"]))
    same(made, made.decide("approve", "agent:demo"), "ann may")
    accepted(made.decide("approve", "ann"))


def test_a_quorum_counts_different_people() -> None:
    made = asked(approvals=[rule(kind="action", required=2)])
    assert accepted(made.decide("approve", "ann")).verdict == "counted: 1 of 2"
    same(made, made.decide("approve", "ann"), "ann has already said yes")
    accepted(made.decide("approve", "bob"))
    assert made.command("pay").approval.approver == "bob"


def test_one_reject_decides_a_quorum() -> None:
    made = asked(approvals=[rule(kind="action", required=3)])
    made.decide("approve", "ann")
    accepted(made.decide("reject", "bob", reason="no"))
    assert made.action(2).status == "rejected"


def test_modify_starts_the_count_again_and_its_sender_counts() -> None:
    made = asked(approvals=[rule(kind="action", required=2)])
    made.decide("approve", "ann")
    accepted(made.decide("modify", "bob", reason="r", arguments={"to": "a", "amount": 1}))
    assert made.status == "waiting_approval"
    accepted(made.decide("approve", "ann"))
    assert made.command("pay").arguments == {"to": "a", "amount": 1}


def test_different_people_may_modify_in_turn_and_the_first_arguments_are_kept() -> None:
    made = asked(approvals=[rule(kind="action", required=2)])
    made.decide("modify", "ann", reason="r", arguments={"to": "a", "amount": 1})
    made.decide("modify", "bob", reason="r", arguments={"to": "a", "amount": 2})
    made.decide("approve", "ann")
    assert made.command("pay").arguments == {"to": "a", "amount": 2}
    assert made.approval().original_arguments == {"to": "a", "amount": 5}


# --- nobody answers --------------------------------------------------------------------------


def expired(on_timeout: str, **values: Any) -> World:
    made = asked(
        approvals=[rule(kind="action", within_seconds=60, on_timeout=on_timeout, **values)]
    )
    accepted(made.timer("ask/1"))
    assert made.approval(1).closed_by == "policy:timeout"
    return made


def test_expiry_cancels_the_run() -> None:
    made = expired("cancel_run")
    assert made.status == "cancelled"
    assert made.now == made.approval(1).requested_at + 60_000


def test_expiry_rejects() -> None:
    made = expired("reject")
    assert made.action(2).status == "rejected"
    assert made.command("m")


def test_expiry_approves() -> None:
    assert expired("approve").command("pay").approval.approver == "policy:timeout"


def test_expiry_approves_what_a_counted_modify_left() -> None:
    made = asked(
        approvals=[rule(kind="action", within_seconds=60, on_timeout="approve", required=2)]
    )
    made.decide("modify", reason="r", arguments={"to": "a", "amount": 1})
    made.timer("ask/1")
    assert made.command("pay").arguments == {"to": "a", "amount": 1}


@pytest.mark.parametrize("word", ["modify", "answer", "extend", "retry", "nonsense"])
def test_a_policy_that_has_nothing_to_decide_with_cancels_and_the_question_says_so(
    word: str,
) -> None:
    made = expired(word)
    assert made.status == "cancelled"
    assert made.approval(1).on_timeout == "cancel_run"


def test_expiry_before_its_time_is_refused() -> None:
    from perdure.streams.core.decide.inputs import Timer

    made = asked()
    same(made, made.feed(Timer("ask/1")), "not due")


def test_an_expiry_after_the_decision_is_refused() -> None:
    from perdure.streams.core.decide.inputs import Timer

    made = asked()
    made.decide("approve")
    made.now += 10**9
    refused(made.feed(Timer("ask/1")), "not due")


@pytest.mark.parametrize(
    ("kind", "word", "status"),
    [("handover", "retry", "requested"), ("handover", "cancel_run", "cancelled")],
)
def test_expiry_of_a_handover_acts_by_its_rule(kind: str, word: str, status: str) -> None:
    made = World(
        tool("look"), agent_spec=agent("look", approvals=[rule(kind=kind, on_timeout=word)])
    )
    made.plan(PlanStep(id="a", tool="look"))
    made.fails(made.command(), "unavailable")
    made.timer("ask/1")
    assert status in (made.action(1).status, made.status)


# --- rules -----------------------------------------------------------------------------------


def rules_of(made: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        event for event in made.events if event.type == "action_proposed"
    ][-1].data["rules"]
    return found


def conditional(when: str, amount: Any = 50, **values: Any) -> World:
    pay = tool("pay", "external", approval=when)
    made = World(pay, agent_spec=agent("pay", **values))
    made.start()
    made.reply(None, ("pay", {"amount": amount}))
    return made


def test_a_condition_that_is_false_asks_nobody_and_is_recorded() -> None:
    made = conditional("arguments.amount > 100")
    assert made.command("pay")
    assert rules_of(made) == [{"source": "tool", "when": "arguments.amount > 100", "asks": False}]


def test_a_condition_that_is_true_asks_and_says_with_which_values() -> None:
    made = conditional("arguments.amount > 100", 101)
    assert made.approval().rule["when"] == "arguments.amount > 100"
    assert made.approval().rule["arguments"] == {"amount": 101}


@pytest.mark.parametrize(
    "when", ["arguments.nosuch > 1", "arguments.amount", "'false'", "arguments.amount > 'x'", "((", ""]
)  # fmt: skip
def test_a_condition_without_true_or_false_asks_and_says_why(when: str) -> None:
    made = conditional(when)
    assert made.status == "waiting_approval"
    assert made.approval().rule["error"]


@pytest.mark.parametrize("amount", [101, 100.5, 2**63, 2**70, 10**30])
def test_a_large_amount_asks_whatever_its_size(amount: Any) -> None:
    assert conditional("arguments.amount > 100", amount).status == "waiting_approval"


def test_an_agents_rule_adds_to_the_tools_own() -> None:
    made = conditional(
        "never", approvals=[rule(kind="action", tool="pay", when="arguments.amount > 10")]
    )
    assert made.status == "waiting_approval"
    assert made.approval().rule["source"] == "agent[0]"


def test_an_agents_rule_does_not_lift_the_tools_own() -> None:
    made = conditional("always", approvals=[rule(kind="action", tool="pay", when="false")])
    assert made.status == "waiting_approval"


def test_an_override_lifts_the_tools_own_rule_and_is_recorded() -> None:
    made = conditional(
        "always", approvals=[rule(kind="action", tool="pay", when="false", override=True)]
    )
    assert made.command("pay")
    assert rules_of(made)[0] == {
        "source": "tool",
        "when": "always",
        "asks": False,
        "overridden": True,
    }


def test_the_first_rule_that_matches_says_who_answers() -> None:
    rules = [
        rule(kind="action", when="arguments.amount > 1000", approvers=["boss"]),
        rule(kind="action", when="arguments.amount > 10", approvers=["ann"]),
        rule(approvers=["ops"]),
    ]
    assert conditional("never", approvals=rules).approval().approvers == ["ann"]


def test_a_rule_for_every_kind_makes_nobody_ask() -> None:
    assert conditional("never", approvals=[rule(approvers=["ops"])]).command("pay")


def test_a_step_is_not_lifted_by_an_override() -> None:
    made = World(tool("look"), agent_spec=agent("look", approvals=[rule(tool="look", override=True, when="false")]))  # fmt: skip
    made.plan(PlanStep(id="a", tool="look", approval="always"))
    assert made.status == "waiting_approval"


# --- what a person sees ----------------------------------------------------------------------

SPOOFS = ["\r", "\x1b[2K", "\u202e", "\u200b", "\U000e0100", "\ufe0f", "\u2066", "\u00a0", "\n", "\u3164"]  # fmt: skip


@pytest.mark.parametrize("mark", SPOOFS)
def test_a_title_shows_what_could_hide_as_an_escape(mark: str) -> None:
    title = asked({"to": f"a{mark}b", "amount": 1}).approval().title
    assert mark not in title
    assert "\\" in title


def test_a_long_title_says_how_much_there_is() -> None:
    title = asked({"to": " " * 5000 + "x", "amount": 1}).approval().title
    assert len(title) < 300
    assert "5001 characters" in title


@pytest.mark.parametrize("title", ["{", "{to!x}", "{0}", "{}", "{to.__class__}", "{to:>999999}"])
def test_a_broken_title_looks_nothing_up_and_stops_nothing(title: str) -> None:
    pay = tool("pay", "external", approval="always", title=title)
    shown = asked({"to": "a", "amount": 1}, pay=pay).approval().title
    assert "class 'str'" not in shown
    assert len(shown) < 300


def test_a_sensitive_argument_is_masked_in_the_title() -> None:
    pay = tool("pay", "external", approval="always", sensitive=["to"])
    assert "secret" not in asked({"to": "secret", "amount": 1}, pay=pay).approval().title


def test_the_history_shows_what_was_done_before() -> None:
    made = World(PAY, tool("look"))
    made.start()
    made.reply(None, ("look", {"id": 7}))
    made.answer(made.command("look"))
    made.reply(None, ("pay", {"to": "a", "amount": 1}))
    done = made.approval().history["completed"]
    assert done == [{"action_id": "r1/2", "tool": "look", "arguments": {"id": 7}}]


def test_after_a_modify_the_title_says_what_would_run() -> None:
    asks = agent("pay", approvals=[rule(kind="action", tool="pay", required=2)])
    made = World(tool("pay", "external", approval="always", title="Pay {amount}"), agent_spec=asks)
    made.start()
    made.reply(None, ("pay", {"amount": 250}))
    assert made.approval().title == "Pay 250"
    made.decide("modify", "ann", arguments={"amount": 200}, reason="less")
    assert made.approval().title == "Pay 200"
    assert made.approval().open
