"""What the engine counts: committed facts, and what waits now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics

from .desk import Desk, agent, tool
from .test_engine import asked, broken, decide, plan


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def seen(desk: Desk, name: str) -> Any:
    (family,) = [each for each in desk.engine.measures.families if each.name == name]
    return family.values()


def taken_over(desk: Desk) -> None:
    desk.engine.revoked(desk.assignment)
    assert seen(desk, "waits") == {}
    assert seen(desk, "quarantined_runs") == {(): 0}
    desk.take_over()
    desk.settle()


def test_runs_steps_commands_and_calls(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}, b={}))
    desk.now += 300
    desk.answer({"ok": 1})
    desk.now += 3_000
    desk.answer({"ok": 2})
    assert desk.outcome()["status"] == "done"
    assert seen(desk, "runs_started") == {("demo",): 1}
    assert seen(desk, "runs_finished") == {("demo", "done"): 1}
    assert seen(desk, "steps") == {("demo",): 2}
    assert seen(desk, "commands") == {("tools", "call"): 2}
    counts, total = seen(desk, "action_seconds")["tool", "call"]
    assert (counts[-1], total) == (2, 3.3)


def test_what_was_rolled_back_is_not_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:  # as a cycle whose transaction is aborted
    desk.catalog(tool("call"), agent("call"))
    with monkeypatch.context() as patch:
        patch.setattr(desk, "_merge", lambda ctx: None)
        desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    assert seen(desk, "runs_started") == {}
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    assert seen(desk, "runs_started") == {("demo",): 1}


def test_a_question_waits_until_it_is_answered_and_through_a_takeover(desk: Desk) -> None:
    approval = asked(desk)
    assert seen(desk, "waits") == {("action",): 1}
    taken_over(desk)
    assert seen(desk, "waits") == {("action",): 1}
    decide(desk, approval, "uma", "approve")  # not one of the approvers
    decide(desk, approval, "ann", "approve")
    assert seen(desk, "waits") == {}
    assert seen(desk, "verdicts") == {("false",): 1, ("true",): 1}


def test_many_questions_are_counted_a_few_at_a_time(desk: Desk) -> None:
    asked(desk)
    for n in range(120):
        desk.feed(topics.TASKS, task_id=f"r{n}", agent="demo", plan=plan(a={"n": 1}))
    desk.engine.revoked(desk.assignment)
    desk.take_over()
    assert [len(event.run_ids) for event in desk.assignment.posted] == [121]
    desk.settle()
    assert seen(desk, "waits") == {("action",): 121}


def test_a_retry_is_a_wait_of_its_own_kind(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan(a={}))
    error = {"kind": "transient", "code": "http_503", "message": "later"}
    desk.feed(topics.RESULTS, run_id="r", action_id="r/1", attempt=1, status="failed", error=error)
    assert seen(desk, "waits") == {("retry",): 1}
    desk.tick(2)
    assert seen(desk, "waits") == {}
    assert seen(desk, "commands") == {("tools", "call"): 2}


def test_quarantined_runs_and_what_they_hold(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(desk, monkeypatch)
    assert seen(desk, "quarantined_runs") == {(): 1}
    assert seen(desk, "parked_records") == {(): 1}
    taken_over(desk)
    assert seen(desk, "parked_records") == {(): 1}
    desk.feed(topics.CONTROL, run_id="r", command="release", by="uma")
    assert seen(desk, "quarantined_runs") == {(): 0}
    assert seen(desk, "parked_records") == {(): 0}
