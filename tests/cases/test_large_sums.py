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
