"""What the engine does around the core: large values, waiting records, repeats, quarantine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ApprovalRule, Window
from perdure.streams.engine import layout

from .desk import Desk, agent, tool

LARGE = "x" * 1_200_000


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def plan(**steps: Any) -> list[dict[str, Any]]:
    return [
        {"id": name, "tool": "call", "arguments": arguments} for name, arguments in steps.items()
    ]


def test_large_result_goes_to_the_next_step_by_reference(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    steps = plan(a={}, b={"text": {"$": "steps.a.result"}})
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=steps)
    desk.answer(LARGE)
    command = desk.on("agent.commands.tools")[-1]
    assert command["action_id"] == "r/2"
    assert desk.engine._outputs.value(command["arguments"]) == {"text": LARGE}
    desk.answer({"ok": True})
    assert desk.outcome()["complete"] is True


def test_condition_sees_large_arguments_themselves(desk: Desk) -> None:
    desk.catalog(tool("call", approval="has(arguments.bcc)"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="send it")
    call = {"name": "call", "arguments": {"body": LARGE, "bcc": "eve@example.org"}}
    desk.answer({"content": None, "tool_calls": [call], "finish_reason": "tool_calls"})
    (question,) = desk.on(topics.PENDING)
    assert question["rule"]["when"] == "has(arguments.bcc)"
    assert desk.on("agent.commands.tools") == []


def test_large_task_waits_for_its_agent(desk: Desk) -> None:
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}), input=LARGE)
    assert desk.sent == []
    desk.catalog(tool("call"), agent("call"))
    desk.tick(1)
    assert [command["action_id"] for command in desk.on("agent.commands.tools")] == ["r/1"]
    assert desk.dead == []


def test_task_whose_agent_never_comes_is_refused_after_ten_seconds(desk: Desk) -> None:
    desk.catalog(agent())
    desk.feed(topics.TASKS, task_id="r", agent="dem", input="x")
    desk.tick(9.9)
    assert desk.sent == []
    desk.tick(1)
    assert desk.outcome()["errors"][0]["kind"] == "refused"
    assert "did you mean demo?" in desk.outcome()["text"]


def test_large_message_is_kept_by_reference(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call", window=Window(max_tokens=10**6)))
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="hello")
    desk.feed(topics.CONTROL, run_id="r", command="message", content=LARGE, by="uma")
    assert desk.on(topics.VERDICTS)[-1]["accepted"] is True
    assert layout.quarantine("r") not in desk.store


def test_control_before_its_task_is_held_for_it(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    desk.feed(topics.CONTROL, run_id="r", command="pause", by="uma")
    assert desk.on(topics.VERDICTS) == []
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="x")
    assert desk.on(topics.VERDICTS)[-1]["accepted"] is True


def test_held_requests_are_taken_in_the_order_they_came(desk: Desk) -> None:
    """Of a pause at offset 9 and a resume at 10 the resume came first and was refused: the run stood
    still."""
    desk.catalog(tool("call"), agent("call"))
    desk._offset = 8
    for command in ("pause", "resume", "pause", "resume"):
        desk.feed(topics.CONTROL, run_id="r", command=command, by="uma")
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    told = [(each["request_id"], each["accepted"]) for each in desk.on(topics.VERDICTS)]
    assert told == [(f"agent.control-0-{n}", True) for n in (9, 10, 11, 12)]
    assert len(desk.on("agent.commands.tools")) == 1


def test_control_of_a_run_that_never_comes_is_refused_after_thirty_seconds(desk: Desk) -> None:
    desk.feed(topics.CONTROL, run_id="r", command="cancel", by="uma")
    desk.tick(31)
    (verdict,) = desk.on(topics.VERDICTS)
    assert (verdict["accepted"], verdict["reason"]) == (False, "there is no such run")


def refused_twice(desk: Desk) -> None:
    """A task for an agent that nobody has announced, sent, and sent again a day later."""
    for _ in range(2):
        desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
        desk.tick(86_400)
    assert [each["version"] for each in desk.on(topics.OUTCOMES)] == [0, 0]


def test_a_refused_task_that_runs_when_it_is_sent_again_has_no_outcome_until_it_ends(
    desk: Desk,
) -> None:
    refused_twice(desk)
    desk.catalog(tool("call"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    assert desk.on(topics.OUTCOMES)[-1] is None
    assert layout.refused("r") not in desk.store
    assert b"r/refused" not in desk.timers
    desk.answer({"n": 1})
    assert desk.outcome()["status"] == "done"


def test_that_a_task_was_refused_is_forgotten_with_its_id(desk: Desk) -> None:
    refused_twice(desk)
    desk.tick(28 * 86_400)
    assert layout.refused("r") in desk.store
    desk.tick(2 * 86_400)
    assert (desk.store, desk.timers) == ({}, {})


def asked(desk: Desk, required: int = 1) -> str:
    rule = ApprovalRule(kind="action", tool="call", approvers=["ann", "bob"], required=required)
    desk.catalog(tool("call"), agent("call", approvals=[rule]))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={"n": 1}), user_id="uma")
    return str(desk.on(topics.PENDING)[-1]["approval_id"])


def decide(desk: Desk, approval: str, approver: str, word: str, **more: Any) -> Any:
    desk.feed(topics.APPROVALS, approval_id=approval, approver=approver, decision=word, **more)
    return desk.on(topics.VERDICTS)[-1]


def test_yes_after_a_modify_counts_again(desk: Desk) -> None:
    approval = asked(desk, required=2)
    assert decide(desk, approval, "ann", "approve")["accepted"]
    assert decide(desk, approval, "bob", "modify", arguments={"n": 2}, reason="less")["accepted"]
    digest = desk.on(topics.PENDING)[-1]["digest"]
    assert decide(desk, approval, "ann", "approve", digest=digest)["accepted"]
    (command,) = desk.on("agent.commands.tools")
    assert command["arguments"] == {"n": 2}


def test_a_yes_that_comes_twice_is_none_to_arguments_changed_in_between(desk: Desk) -> None:
    approval = asked(desk, required=2)
    decide(desk, approval, "ann", "approve")
    decide(desk, approval, "bob", "modify", arguments={"n": 5_000_000}, reason="more")
    said = decide(desk, approval, "ann", "approve")
    assert (said["accepted"], "give the digest" in said["reason"]) == (False, True)
    assert not desk.on("agent.commands.tools")
    digest = desk.on(topics.PENDING)[-1]["digest"]
    assert decide(desk, approval, "ann", "approve", digest=digest)["accepted"]
    assert decide(desk, approval, "ann", "approve")["accepted"], "closed: the verdict it had"
    assert len(desk.on("agent.commands.tools")) == 1


def test_another_modify_of_the_same_person_is_another_request(desk: Desk) -> None:
    approval = asked(desk, required=2)
    for n in (50, 5):
        decide(desk, approval, "ann", "modify", arguments={"n": n}, reason="less")
        assert desk.on(topics.PENDING)[-1]["arguments"] == {"n": n}
    verdict = desk.on(topics.VERDICTS)[-1]
    events = len(desk.on(topics.EVENTS))
    assert decide(desk, approval, "ann", "modify", arguments={"n": 5}, reason="less") == verdict
    decide(desk, approval, "ann", "modify", arguments={"n": 50}, reason="less")  # the first, late
    assert len(desk.on(topics.EVENTS)) == events
    decide(desk, approval, "bob", "approve")
    (command,) = desk.on("agent.commands.tools")
    assert command["arguments"] == {"n": 5}


def test_same_decision_again_gets_the_same_verdict_and_one_command(desk: Desk) -> None:
    approval = asked(desk)
    first = decide(desk, approval, "ann", "approve")
    assert decide(desk, approval, "ann", "approve") == first
    assert len(desk.on("agent.commands.tools")) == 1
    assert desk.on(topics.PENDING)[-1] is None


def broken(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose own processing raises: a writing call has its result there."""
    desk.catalog(tool("call", effect="idempotent"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    with monkeypatch.context() as patch:
        patch.setattr(desk.engine, "_decide", lambda *_: 1 / 0)
        desk.answer({"n": 1})
    assert layout.quarantine("r") in desk.store


def test_sick_run_is_set_aside_and_released(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(desk, monkeypatch)
    desk.feed(topics.TASKS, task_id="healthy", agent="demo", plan=plan(a={}))
    assert desk.on("agent.commands.tools")[-1]["run_id"] == "healthy"
    desk.feed(topics.CONTROL, run_id="r", command="release", by="uma")
    verdict = desk.on(topics.VERDICTS)[-1]
    assert (verdict["accepted"], verdict["agent"]) == (True, "demo")
    assert desk.outcome()["run_id"] == "r"
    assert desk.outcome()["complete"] is True
    assert layout.quarantine("r") not in desk.store


def test_release_that_breaks_again_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(desk, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(desk.engine, "_decide", lambda *_: 1 / 0)
        desk.feed(topics.CONTROL, run_id="r", command="release", by="uma")
    verdict = desk.on(topics.VERDICTS)[-1]
    assert (verdict["accepted"], "quarantined again" in verdict["reason"]) == (False, True)
    assert layout.quarantine("r") in desk.store


@pytest.mark.parametrize(("count", "size"), [(18, 60_000), (5, 250_000), (2, 500_000)])
def test_calls_of_one_reply_that_add_up_are_all_made(desk: Desk, count: int, size: int) -> None:
    desk.catalog(tool("call"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="send them")
    calls = [{"name": "call", "arguments": {"text": "z" * size}} for _ in range(count)]
    desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    sent = desk.on("agent.commands.tools")
    assert len(sent) == count
    assert all(len(desk.engine._outputs.value(c["arguments"])["text"]) == size for c in sent)


def test_arguments_of_a_plan_that_add_up_are_carried_out(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    text = "z" * 60_000
    steps = [
        {"id": f"s{n}", "tool": "call", "arguments": {"n": n, "text": text}, "depends_on": []}
        for n in range(18)
    ]
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=steps)
    sent = desk.on("agent.commands.tools")
    assert [command["arguments"]["n"] for command in sent] == list(range(18))
    assert {command["arguments"]["text"] for command in sent} == {text}


def test_a_task_too_large_for_its_first_event_is_refused_with_sizes(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    turns = [{"role": "user", "content": "z" * 900} for _ in range(1_500)]
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="x", messages=turns)
    assert "900000 fit" in desk.outcome()["text"]
    assert [reason for _, reason, _ in desk.dead] == ["refused"]


def test_many_long_reasons_do_not_add_up(desk: Desk) -> None:
    people = [f"p{n}" for n in range(60)]
    rule = ApprovalRule(kind="action", tool="call", approvers=people, required=60)
    desk.catalog(tool("call", approval="always"), agent("call", approvals=[rule]))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    for person in people:
        desk.feed(
            topics.APPROVALS,
            approval_id="r/a1",
            decision="approve",
            approver=person,
            reason="because " * 2_400,
        )
    assert len(desk.on("agent.commands.tools")) == 1
