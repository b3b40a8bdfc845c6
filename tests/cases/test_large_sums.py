"""Case L02: parts that are each under every limit, and what is made of them.

On the engine with its store in memory, whose desk refuses any record or stored value of 1 MB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ApprovalRule, BudgetPolicy
from perdure.streams.engine import layout

from tests.engine.desk import Desk, agent, tool

COMMANDS = "agent.commands.tools"
TEXT = "z" * 30_000


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.catalog(
        tool("call", effect="idempotent"),
        tool("risky", approval="always"),
        agent("call", "risky", budget=BudgetPolicy(steps=100)),
    )
    return made


def start(desk: Desk, *steps: dict[str, Any], **task: Any) -> None:
    plan = list(steps) or None
    desk.feed(topics.TASKS, **{"task_id": "r", "agent": "demo", "input": "x", "plan": plan, **task})


def side_by_side(count: int, **step: Any) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "tool": "call", "depends_on": [], **step} for n in range(count)]


def answer_all(desk: Desk, **result: Any) -> None:
    for command in desk.on(COMMANDS):
        where = {"run_id": "r", "action_id": command["action_id"], "attempt": 1}
        desk.feed(topics.RESULTS, **where, **result)


def sound(desk: Desk) -> None:
    assert layout.quarantine("r") not in desk.store
    assert desk.dead == []


def test_l02_a_question_after_forty_results(desk: Desk) -> None:
    steps = side_by_side(40, arguments={"text": {"$": "input"}})
    last = {"id": "last", "tool": "risky", "depends_on": [step["id"] for step in steps]}
    start(desk, *steps, last, input=TEXT)
    answer_all(desk, status="succeeded", result=TEXT)
    sound(desk)
    assert desk.on(topics.PENDING)[-1]["tool"] == "risky"


def test_l02_sixty_failures_with_long_texts(desk: Desk) -> None:
    start(desk, *side_by_side(60))
    assert len(desk.on(COMMANDS)) == 60
    error = {"kind": "business", "message": "m" * 19_000}
    answer_all(desk, status="failed", error=error)
    sound(desk)
    assert desk.outcome()["status"] == "failed"


def test_l02_an_answer_of_the_model_above_the_limit(desk: Desk) -> None:
    start(desk)
    desk.answer({"content": "w" * 1_500_000, "tool_calls": [], "finish_reason": "stop"})
    sound(desk)
    assert desk.outcome()["status"] == "done"


def test_l02_messages_of_people_add_up(desk: Desk) -> None:
    start(desk)
    for _ in range(40):
        desk.feed(topics.CONTROL, run_id="r", command="message", content=TEXT, by="uma")
    calls = [{"name": "call", "arguments": {}}]
    desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    desk.answer(1)
    sound(desk)
    assert len(desk.on("agent.commands.models")) == 2


def test_l02_progress_saved_again_and_again(desk: Desk) -> None:
    start(desk, {"id": "a", "tool": "call"})
    for number in range(10):
        answer_all(desk, status="progress", progress=str(number) * 240_000)
    sound(desk)
    answer_all(desk, status="succeeded", result=1)
    assert desk.outcome()["complete"] is True


def test_l02_large_arguments_modified_in_turn(desk: Desk) -> None:
    rule = ApprovalRule(kind="action", required=9)
    desk.catalog(agent("call", "risky", approvals=[rule]))
    start(desk, {"id": "a", "tool": "risky", "arguments": {"t": "a" * 240_000}})
    asked = desk.on(topics.PENDING)[-1]["approval_id"]
    for number in range(8):
        word = {"decision": "modify", "arguments": {"t": str(number) * 240_000}, "reason": "r"}
        desk.feed(topics.APPROVALS, approval_id=asked, approver=f"p{number}", **word)
        assert desk.on(topics.VERDICTS)[-1]["accepted"] is True
    sound(desk)


def test_l02_a_plan_whose_arguments_add_up(desk: Desk) -> None:
    start(desk, *side_by_side(40, arguments={"text": TEXT}))
    sound(desk)
    assert len(desk.on(COMMANDS)) == 40


def test_l02_earlier_turns_that_add_up(desk: Desk) -> None:
    start(desk, messages=[{"role": "user", "content": TEXT} for _ in range(40)])
    sound(desk)
    assert len(desk.on("agent.commands.models")) == 1


@pytest.mark.parametrize(("count", "size"), [(40, 30_000), (5, 250_000), (3, 400_000)])
def test_l02_calls_of_one_reply_that_add_up(desk: Desk, count: int, size: int) -> None:
    start(desk)
    calls = [{"name": "call", "arguments": {"text": "z" * size}} for _ in range(count)]
    desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    sound(desk)
    assert len(desk.on(COMMANDS)) == count
    answer_all(desk, status="succeeded", result=TEXT)
    sound(desk)
    assert len(desk.on("agent.commands.models")) == 2


def test_l02_broken_calls_of_one_reply_that_add_up(desk: Desk) -> None:
    """What no call can be made of stays in the history as it was said."""
    start(desk)
    calls = [{"name": "no", "arguments": None, "raw": "[" + TEXT} for _ in range(40)]
    for _ in range(2):
        desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    sound(desk)
    assert len(desk.on("agent.commands.models")) == 3


def test_l02_parallel_questions_of_large_calls(desk: Desk) -> None:
    """The question of each shows its own arguments, the history of none is too long."""
    start(desk)
    calls = [{"name": "risky", "arguments": {"text": "z" * 200_000}} for _ in range(12)]
    desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    sound(desk)
    assert len(desk.on(topics.PENDING)) == 12
    desk.feed(topics.CONTROL, run_id="r", command="cancel", by="uma")
    sound(desk)
    assert desk.outcome()["status"] == "cancelled"


def test_l02_metadata_on_every_record(desk: Desk) -> None:
    start(desk, {"id": "a", "tool": "risky"}, metadata={str(n): "m" * 150 for n in range(90)})
    sound(desk)
    assert desk.on(topics.PENDING)[-1]["metadata"]["7"] == "m" * 150


def test_l02_answers_to_a_question_and_a_handover_are_large(desk: Desk) -> None:
    start(desk, {"id": "a", "tool": "call"})
    error = {"kind": "invalid_arguments", "message": "m" * 20_000}
    answer_all(desk, status="failed", error=error)
    asked = desk.on(topics.PENDING)[-1]
    assert asked["kind"] == "handover"
    where = {"approval_id": asked["approval_id"], "approver": "ann"}
    desk.feed(topics.APPROVALS, **where, decision="answer", answer={"text": "z" * 1_500_000})
    sound(desk)
    assert desk.on(topics.VERDICTS)[-1]["accepted"] is True
    assert desk.outcome()["complete"] is True
