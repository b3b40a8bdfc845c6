"""A fork waits durably for the history it begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.streams.engine import layout

from .desk import Desk, agent, tool

STEPS = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "put"}, {"id": "c", "tool": "look"}]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A run of three steps, two of them done."""
    made = Desk(tmp_path)
    made.catalog(tool("look"), tool("put", effect="idempotent"), agent("look", "put"))
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=STEPS, user_id="uma")
    made.answer({"n": 1})
    made.answer({"n": 2})
    return made


def fork(desk: Desk, version: int | None = None, **values: Any) -> None:
    events = [event for event in desk.on(topics.EVENTS) if event["run_id"] == "r1"]
    head = events[(version or len(events)) - 1]
    fork_of = {"run_id": "r1", "version": head["version"], "hash": head["hash"]}
    desk.feed(topics.TASKS, **{"task_id": "f~1", "agent": "demo", "fork_of": fork_of, **values})


def commands(desk: Desk, run_id: str) -> list[tuple[str, str, int]]:
    sent = [v for topic, _, v in desk.sent if topic.startswith("agent.commands.")]
    return [(v["target"], v["action_id"], v["attempt"]) for v in sent if v["run_id"] == run_id]


def test_only_what_is_still_to_come_is_called(desk: Desk) -> None:
    fork(desk)
    assert commands(desk, "f~1") == []
    desk.settle()
    assert commands(desk, "f~1") == [("look", "f~1/3", 2)]
    assert layout.waiting("f~1") not in desk.store
    desk.answer({"n": 3})
    assert desk.outcome()["run_id"] == "f~1"
    assert desk.outcome()["complete"] is True
    assert desk.outcome()["result"] == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}


def test_its_events_are_all_there_and_its_own(desk: Desk) -> None:
    fork(desk)
    desk.settle()
    mine = [event for event in desk.on(topics.EVENTS) if event["run_id"] == "f~1"]
    assert [event["version"] for event in mine] == list(range(1, len(mine) + 1))
    assert mine[0]["data"]["fork_of"]["run_id"] == "r1"
    assert mine[0]["user_id"] == "uma"


def test_a_new_owner_reads_again(desk: Desk) -> None:
    fork(desk)
    desk.take_over()
    assert desk.histories.asked == ["r1", "r1"]
    desk.settle()
    assert len(commands(desk, "f~1")) == 1
    desk.take_over()
    assert desk.histories.asked == ["r1", "r1"], "nothing waits any more"


def test_a_history_that_comes_twice_makes_one_fork(desk: Desk) -> None:
    fork(desk)
    desk.assignment.posted *= 2
    desk.settle()
    assert len(commands(desk, "f~1")) == 1


def test_the_same_task_again_is_ignored_and_another_conflicts(desk: Desk) -> None:
    fork(desk)
    fork(desk)
    desk.settle()
    fork(desk)
    assert desk.histories.asked == ["r1"]
    fork(desk, version=1)
    assert [reason for _, reason, _ in desk.dead] == ["conflict"]


def test_a_refused_fork_has_an_outcome(desk: Desk) -> None:
    events = [event["type"] for event in desk.on(topics.EVENTS)]
    writing = max(i for i, type in enumerate(events) if type == "action_requested") - 4
    while events[writing] != "action_requested":
        writing -= 1
    fork(desk, version=writing + 1)
    desk.settle()
    assert "put (r1/2) writes and was open then" in desk.outcome()["text"]
    assert desk.outcome()["errors"][0]["kind"] == "refused"


def test_a_fork_that_can_not_be_made_is_refused_and_harms_nobody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    fork(desk)
    with monkeypatch.context() as patch:
        patch.setattr("perdure.streams.engine.processor.fork", broken)
        desk.settle()
    assert "ValueError: a bug" in desk.outcome()["text"]
    assert layout.waiting("f~1") not in desk.store
    assert not [key for key in desk.store if key.startswith(b"q/")]
    desk.answer({"n": 3})
    assert desk.outcome()["run_id"] == "r1"


def test_a_cancel_that_came_early_meets_the_fork(desk: Desk) -> None:
    fork(desk)
    desk.feed(topics.CONTROL, run_id="f~1", command="cancel", request_id="q")
    assert desk.on(topics.VERDICTS) == []
    desk.settle()
    (verdict,) = desk.on(topics.VERDICTS)
    assert verdict["accepted"] is True


def test_a_retry_takes_the_outcome_back(desk: Desk) -> None:
    desk.feed(
        topics.RESULTS, run_id="r1", action_id="r1/3", attempt=1, status="failed",
        error={"kind": "business", "code": "none"},
    )  # fmt: skip
    assert desk.outcome()["status"] == "failed"
    desk.feed(topics.CONTROL, run_id="r1", command="retry", request_id="q")
    assert desk.outcome() is None
    desk.answer({"n": 3})
    assert desk.outcome()["complete"] is True
