"""A result that can't be used: the key of references in it, or a reference to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ToolSpec
from perdure.streams.engine import layout

from .desk import Desk, agent, tool

ELSEWHERE = {"$blob": "file:///etc/passwd", "size": 3, "sha256": "a" * 64}
NO_REFERENCE = {"$blob": "x"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def planned(desk: Desk, effect: str = "read_only", **second: Any) -> None:
    pay = ToolSpec(name="pay", effect=effect, approval="never", compensate="unpay")  # type: ignore[arg-type]
    desk.catalog(pay, tool("look"), tool("unpay", effect="idempotent"), agent("pay", "look"))
    steps = [{"id": "a", "tool": "pay"}, {"id": "b", "tool": "look", **second}]
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=steps)


def healthy(desk: Desk) -> bool:
    return layout.quarantine("r") not in desk.store


def test_a_call_that_only_reads_fails_with_the_reason(desk: Desk) -> None:
    planned(desk)
    desk.answer(ELSEWHERE)
    assert healthy(desk)
    outcome = desk.outcome()
    assert outcome["status"] == "failed"
    (record,) = [each for each in outcome["not_completed"] if each["tool"] == "pay"]
    assert "is not in this deployment's store" in record["error"]["message"]


@pytest.mark.parametrize("result", [ELSEWHERE, NO_REFERENCE])
def test_a_call_that_writes_has_happened(desk: Desk, result: Any) -> None:
    """Neither lost nor made again: it is in the outcome, and it is undone."""
    planned(desk, "external")
    desk.answer(result)
    assert healthy(desk)
    assert desk.last_command()["target"] == "look"
    desk.feed(topics.CONTROL, run_id="r", command="cancel", compensate=True)
    desk.answer(1)
    assert desk.last_command()["target"] == "unpay"
    desk.answer(1)
    (record,) = desk.outcome()["compensated"]
    assert record["tool"] == "pay"
    assert [each["verb"] for each in desk.on("agent.commands.tools")].count("call") == 3


def test_a_reference_that_nothing_stands_behind(desk: Desk, tmp_path: Path) -> None:
    planned(desk)
    missing = desk.blobs.put(b'"here"')
    next(tmp_path.rglob(missing["sha256"])).unlink()
    desk.answer(missing)
    assert healthy(desk)
    assert "is missing" in desk.outcome()["not_completed"][0]["error"]["message"]


def test_a_good_reference_is_the_value_itself(desk: Desk) -> None:
    planned(desk, arguments={"text": {"$": "steps.a.result"}})
    desk.answer(desk.blobs.put(b'"here"'))
    assert desk.last_command()["arguments"] == {"text": "here"}


def test_the_key_within_a_result_is_no_argument(desk: Desk) -> None:
    planned(desk, arguments={"text": {"$": "steps.a.result.x"}})
    desk.answer({"x": ELSEWHERE})
    assert healthy(desk)
    desk.answer(1)  # what undoes the first step
    assert "the key $blob is reserved" in desk.outcome()["errors"][0]["message"]


@pytest.mark.parametrize("reply", [ELSEWHERE, NO_REFERENCE])
def test_a_models_reply_is_an_invalid_one(desk: Desk, reply: Any) -> None:
    desk.catalog(tool("look"), agent("look"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="x")
    desk.answer(reply)
    assert healthy(desk)
    told = desk.last_command()["request"]["messages"][-1]["content"]
    assert "could not be used" in told


def test_a_models_arguments_are_told_to_it(desk: Desk) -> None:
    """The broken call alone: the other one runs."""
    desk.catalog(tool("look"), agent("look"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="x")
    calls = [{"name": "look", "arguments": a} for a in (NO_REFERENCE, {"deep": [ELSEWHERE]}, {})]
    desk.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    assert healthy(desk)
    (command,) = desk.on("agent.commands.tools")
    assert command["arguments"] == {}
    desk.answer(1)
    said = [m["content"] for m in desk.last_command()["request"]["messages"] if m["role"] == "tool"]
    assert ["the key $blob is reserved" in text for text in said] == [True, True, False]


def test_an_undoing_whose_value_is_gone_is_put_to_a_person(desk: Desk, tmp_path: Path) -> None:
    """Each way to end the run raised there, so that nobody could."""
    pay = ToolSpec(name="pay", effect="external", approval="never", compensate="unpay")
    unpay = tool("unpay", effect="idempotent")
    unpay.parameters = {"properties": {"result": {}}}
    desk.catalog(pay, tool("look"), unpay, agent("pay", "look"))
    steps = [{"id": "a", "tool": "pay"}, {"id": "b", "tool": "look", "depends_on": []}]
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=steps, user_id="uma")
    first, second = desk.on("agent.commands.tools")
    kept = desk.blobs.put(b'"here"')
    desk.answer_to(first, kept)
    next(tmp_path.rglob(kept["sha256"])).unlink()
    desk.feed(topics.CONTROL, run_id="r", command="cancel", compensate=True)
    desk.answer_to(second, 1)
    assert healthy(desk)
    question = desk.on(topics.PENDING)[-1]
    assert question["kind"] == "handover"
    assert "is missing" in question["title"]
    desk.feed(topics.APPROVALS, approval_id="r/a1", decision="cancel_run", approver="ann")
    assert desk.outcome()["status"] == "cancelled"
    assert [record["tool"] for record in desk.outcome()["completed"]] == ["pay", "look"]
