"""Who is told of a question, again and again, and who is asked when nobody answers."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import Person, ToolSpec

from .harness import World, accepted, agent, refused, rule, tool

MAIL = {
    "parameters": {
        "type": "object",
        "properties": {"to": {}, "subject": {"type": "string"}, "text": {"type": "string"}},
    }
}
OPS = Person(
    members=["ann", "bob"], notify={"tool": "mail", "arguments": {"to": "ops@example.org"}}
)
BOSS = Person(members=["cas"], notify={"tool": "mail", "arguments": {"to": "boss@example.org"}})


def asking(mail: ToolSpec | None = None, **values: Any) -> World:
    asks = rule(
        **{"kind": "action", "tool": "pay", "approvers": ["ops"], "within_seconds": 100, **values}
    )
    spec = agent("pay", approvals=[asks], people={"ops": OPS, "boss": BOSS})
    made = World(
        tool("pay", "external", approval="always", title="Pay {amount}"),
        mail or tool("mail", "external", **MAIL),
        agent_spec=spec,
    )
    made.start()
    made.reply(None, ("pay", {"amount": 5, "why": "they asked"}))
    return made


def told(made: World) -> list[tuple[str, str]]:
    return [
        (event.data.get("occasion", ""), event.data["outcome"])
        for event in made.events
        if event.type == "approver_notified"
    ]


def mails(made: World) -> list[dict[str, Any]]:
    return [command.arguments for command in made.sent if command.target == "mail"]


def test_a_group_is_told_once_by_an_ordinary_tool() -> None:
    made = asking()
    (mail,) = mails(made)
    assert (mail["to"], mail["subject"]) == ("ops@example.org", "Pay 5")
    assert "they asked" in mail["text"]
    assert "perdure approve r1/a1" in mail["text"]
    assert made.status == "waiting_approval", "a notice on its way holds nothing up"
    made.answer(made.command("mail"), result={})
    assert told(made) == [("", "sent")]
    made.decide("approve")
    made.answer(made.command("pay"), result={})
    made.reply("paid")
    assert made.outcome().complete
    assert made.listed()["completed"] == ["pay"]


def test_the_agents_own_words_and_expressions_win() -> None:
    ops = Person(
        members=["ann"],
        notify={"tool": "mail", "arguments": {"to": "x", "subject": {"$": "approval.kind + '!'"}}},
    )
    asks = rule(kind="action", tool="pay", approvers=["ops"])
    made = World(
        tool("pay", "external", approval="always"),
        tool("mail", "external", **MAIL),
        agent_spec=agent("pay", approvals=[asks], people={"ops": ops}),
    )
    made.start()
    made.reply(None, ("pay", {}))
    assert mails(made)[0]["subject"] == "action!"


@pytest.mark.parametrize("end", ["unknown", "no answer"])
def test_a_notice_whose_effect_is_unknown_is_not_sent_again(end: str) -> None:
    made = asking()
    if end == "unknown":
        made.answer(made.command("mail"), "unknown", error={"kind": "unknown", "code": "lost"})
    else:
        made.answer(made.command("mail"), "started")
        made.timer("act/3")
    assert len(mails(made)) == 1
    assert told(made) == [("", "unknown")]
    assert made.approval().open
    assert len(made.header.asks) == 1, "a notice opens no question"


def test_one_that_proves_not_to_have_been_sent_is_tried_again_and_given_up() -> None:
    made = asking()
    for _ in range(2):
        made.fails(made.command("mail"), "transient", "connect_refused")
        assert made.status == "waiting_approval"
        made.timer("act/3")
    made.fails(made.command("mail"), "transient", "connect_refused")
    assert len(mails(made)) == 3
    assert told(made) == [("", "failed")]


def test_a_notice_never_asks() -> None:
    made = asking(tool("mail", "external", approval="always", **MAIL))
    assert len(mails(made)) == 1
    assert len(made.header.asks) == 1


def test_a_tool_that_is_not_there_is_said() -> None:
    made = asking(tool("post"))
    assert told(made) == [("opened", "failed")]
    accepted(made.decide("approve"))


def test_reminders_until_somebody_decides() -> None:
    made = asking(remind_seconds=30)
    made.answer(made.command("mail"), result={})
    for count in (2, 3):
        made.timer("remind/1")
        made.answer(made.command("mail"), result={})
        assert len(mails(made)) == count
    assert mails(made)[1]["subject"] == "Reminder: Pay 5"
    made.decide("approve", "bob")
    assert "remind/1" not in made.header.timers


def test_nobody_answers_others_are_asked_once_then_the_run_ends() -> None:
    made = asking(on_timeout="escalate", escalate_to=["boss"], remind_seconds=1000)
    first = made.approval()
    made.timer("ask/1")
    raised = made.approval()
    assert raised.open
    assert raised.digest == first.digest
    assert raised.approvers == ["cas"]
    assert raised.expires_at == made.now + 100_000
    assert [mail["to"] for mail in mails(made)] == ["ops@example.org", "boss@example.org"]
    assert mails(made)[1]["subject"] == "Escalated: Pay 5"
    refused(made.decide("approve", "ann"), "ann may not decide here")
    made.timer("ask/1")
    assert made.status == "cancelled"
    assert made.header.ending.actor == "policy:timeout"


def test_whoever_is_asked_by_an_escalation_is_reminded_only_later() -> None:
    """With a reminder an hour for a day, the last one would come with the escalation itself."""
    made = asking(on_timeout="escalate", escalate_to=["boss"], remind_seconds=30)
    for _ in range(3):
        made.timer("remind/1")
    made.timer("ask/1")
    assert mails(made)[-1]["subject"] == "Escalated: Pay 5"
    assert made.header.timers["remind/1"] == made.now + 30_000


def test_an_escalated_question_is_answered() -> None:
    made = asking(on_timeout="escalate", escalate_to=["boss"])
    made.timer("ask/1")
    accepted(made.decide("approve", "cas"))
    assert made.command("pay").approval.approver == "cas"


def test_escalate_to_nobody_ends_the_run() -> None:
    made = asking(on_timeout="escalate")
    assert made.approval().on_timeout == "cancel_run"


def test_a_run_that_ended_takes_no_late_word_of_a_notice() -> None:
    made = asking()
    mail = made.command("mail")
    made.control("cancel")
    assert made.status == "cancelled"
    refused(made.answer(mail, result={}), "requested")


def test_a_paused_run_sends_no_reminder() -> None:
    made = asking(remind_seconds=30)
    made.control("pause")
    made.timer("remind/1")
    assert len(mails(made)) == 1
    assert told(made)[-1] == ("reminder", "failed")
    assert "remind/1" in made.header.timers


def test_a_question_closed_in_the_same_decision_is_not_told() -> None:
    """Nobody is told of what is settled already."""
    made = asking()
    made.answer(made.command("mail"), result={})
    made.decide("reject", reason="no")
    assert len(mails(made)) == 1


def test_a_notice_whose_queue_is_gone_opens_no_question() -> None:
    made = asking()
    made.fails(made.command("mail"), "transient", "connect_refused")
    made.queue_problems["tools"] = "gone"
    made.timer("act/3")
    assert len(made.header.asks) == 1
    assert told(made) == [("", "failed")]
    assert made.header.notices == []


def test_arguments_that_give_no_object_are_said() -> None:
    ops = Person(members=["ann"], notify={"tool": "mail", "arguments": {"$": "approval.title"}})
    asks = rule(kind="action", tool="pay", approvers=["ops"])
    made = World(
        tool("pay", "external", approval="always"),
        tool("mail", "external", **MAIL),
        agent_spec=agent("pay", approvals=[asks], people={"ops": ops}),
    )
    made.start()
    made.reply(None, ("pay", {}))
    assert told(made) == [("opened", "failed")]
    assert made.approval().open
