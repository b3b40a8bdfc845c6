"""State made of the events equals the state that was lost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import codec, topics
from perdure.schemas.records import ApprovalRule, Checkpoint, RunEvent
from perdure.streams.engine import layout
from perdure.streams.engine.rebuild import Rebuilt
from perdure.streams.runtime.timers import parse_timer

from .desk import Desk, agent, tool
from .test_checkpoints import CADENCES, TOOLS, desk, play, stored, whole


def rebuilt(made: Desk, now: int | None = None, skip: int | None = None) -> Rebuilt:
    found = Rebuilt(made.now if now is None else now)
    for number, value in enumerate(made.on(topics.EVENTS)):
        if number != skip:
            found.take(codec.decode(json.dumps(value).encode(), RunEvent))
    return found


def lose(made: Desk) -> Rebuilt:
    """The store and all that was in memory are gone; the events make it anew."""
    found = rebuilt(made)
    made.store, made.timers, made.memos = {}, {}, {}
    for key, value in found.records():
        if key.startswith(b"t/"):
            due, name = parse_timer(key)
            made.timers[name] = due
        else:
            made.store[key] = value
    return found


@pytest.mark.parametrize("seed", range(6))
def test_every_run_equals_the_one_that_was_lost(tmp_path: Path, seed: int) -> None:
    made = desk(tmp_path, CADENCES["3"])
    states = play(made, seed, crash=False)
    before = dict(made.timers)
    remembered = {key for key in made.store if key.startswith(b"k/")}
    assert not lose(made).broken
    assert whole(stored(made)) == states[-1]
    assert made.timers == before
    assert {key for key in made.store if key.startswith(b"k/")} == remembered


def waiting(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.catalog(
        tool("look"),
        tool("pay", "always", "external"),
        agent(*TOOLS[:1], "pay", checkpoint=Checkpoint(every_steps=2)),
    )
    steps = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "pay"}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    made.answer({"n": 1})
    return made


def test_a_waiting_run_goes_on_and_its_accepted_requests_are_known(tmp_path: Path) -> None:
    made = waiting(tmp_path)
    made.feed(topics.CONTROL, run_id="r1", command="pause", request_id="p1")
    made.feed(topics.CONTROL, run_id="r1", command="resume", request_id="p2")
    lose(made)
    made.feed(topics.CONTROL, run_id="r1", command="pause", request_id="p1")
    assert made.on(topics.VERDICTS)[-1]["accepted"] is True
    made.feed(topics.APPROVALS, approval_id="r1/a1", decision="approve", approver="ann")
    assert len(made.on("agent.commands.tools")) == 2, "the pause of before is not done again"
    made.answer({"paid": 1})
    assert made.outcome()["complete"] is True


def test_a_modify_is_known_afterwards_by_its_arguments(tmp_path: Path) -> None:
    made = Desk(tmp_path)
    rule = ApprovalRule(kind="action", tool="pay", required=2)
    made.catalog(tool("pay", "always", "external"), agent("pay", approvals=[rule]))
    steps = [{"id": "a", "tool": "pay", "arguments": {"n": 1}}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    said = {"approval_id": "r1/a1", "decision": "modify", "approver": "ann", "reason": "less"}
    for n in (50, 5):
        made.feed(topics.APPROVALS, **said, arguments={"n": n})
    before = {key: value for key, value in made.store.items() if key.startswith(b"k/")}
    assert len(before) == 2
    lose(made)
    assert {key: value for key, value in made.store.items() if key.startswith(b"k/")} == before


def test_a_modify_that_others_must_confirm_gets_the_same_verdict_again(tmp_path: Path) -> None:
    made = Desk(tmp_path)
    rules = [
        ApprovalRule(kind="action", when="arguments.amount > 1000", approvers=["boss"]),
        ApprovalRule(kind="action", when="arguments.amount > 100", approvers=["ann"]),
    ]
    made.catalog(tool("pay", "never"), agent("pay", approvals=rules))
    steps = [{"id": "a", "tool": "pay", "arguments": {"amount": 200}}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    word = {"approval_id": "r1/a1", "decision": "modify", "approver": "ann", "reason": "more"}
    made.feed(topics.APPROVALS, **word, arguments={"amount": 5000}, request_id="m1")
    first = made.on(topics.VERDICTS)[-1]
    assert first["reason"].endswith("boss may decide")
    question = made.on(topics.PENDING)[-1]
    assert (question["approvers"], question["arguments"]) == (["boss"], {"amount": 5000})
    before, timers = whole(stored(made)), dict(made.timers)
    lose(made)
    assert (whole(stored(made)), made.timers) == (before, timers)
    made.feed(topics.APPROVALS, **word, arguments={"amount": 5000}, request_id="m1")
    assert made.on(topics.VERDICTS)[-1] == first


def test_the_same_task_is_known_afterwards(tmp_path: Path) -> None:
    made = waiting(tmp_path)
    lose(made)
    sent = len(made.sent)
    steps = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "pay"}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    assert len(made.sent) == sent


def test_a_run_past_keeping_is_a_stub(tmp_path: Path) -> None:
    made = waiting(tmp_path)
    made.feed(topics.CONTROL, run_id="r1", command="cancel")
    found = rebuilt(made, made.now + 8 * 86_400_000)
    keys = [key for key, _ in found.records()]
    assert keys[0] == layout.stub("r1")
    assert [parse_timer(key)[1] for key in keys[1:]] == [b"r1/stub"]


def taken_again(tmp_path: Path) -> Desk:
    """r1 was cancelled, purged, its id forgotten; then a task took it again and waits."""
    made = waiting(tmp_path)
    made.feed(topics.CONTROL, run_id="r1", command="cancel")
    made.tick(8 * 86_400)
    made.tick(31 * 86_400)
    assert not made.store, "nothing is known of it"
    steps = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "pay"}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    made.answer({"n": 2})
    return made


def test_an_id_that_was_taken_again_is_the_run_that_has_it_now(tmp_path: Path) -> None:
    made = taken_again(tmp_path)
    before, timers = whole(stored(made)), dict(made.timers)
    assert not lose(made).broken
    assert (whole(stored(made)), made.timers) == (before, timers)
    made.feed(topics.APPROVALS, approval_id="r1/a1", decision="approve", approver="ann")
    made.answer({"paid": 1})
    assert made.outcome()["complete"] is True


@pytest.mark.parametrize("missing", [0, 3, 6])
def test_a_former_run_that_is_broken_costs_the_one_that_has_its_id_nothing(
    tmp_path: Path, missing: int
) -> None:
    made = taken_again(tmp_path)
    found = rebuilt(made, skip=missing)
    assert not found.broken
    assert dict(found.records()) == dict(rebuilt(made).records())


@pytest.mark.parametrize("missing", [0, 3])
def test_a_history_with_a_gap_is_named_and_others_are_made(tmp_path: Path, missing: int) -> None:
    made = waiting(tmp_path)
    made.feed(topics.TASKS, task_id="r2", agent="demo", plan=[{"id": "a", "tool": "look"}])
    found = rebuilt(made, skip=missing)
    assert list(found.broken) == ["r1"]
    assert "events are missing" in found.broken["r1"]
    assert {key for key, _ in found.records() if key.startswith(b"r/")} == {b"r/r2"}


def test_a_changed_event_is_named(tmp_path: Path) -> None:
    made = waiting(tmp_path)
    value: Any = made.on(topics.EVENTS)[2]
    value["actor"] = "user:mallory" + str(random.Random(1).random())
    assert "chain" in rebuilt(made).broken["r1"]
