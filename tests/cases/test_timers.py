"""Cases of the kind "timers/clock": C01, impossible and far times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import MAX_TIME_MS, ApprovalRule

from perdure.agents import AgentsError, read_agents
from tests.engine.desk import Desk, agent, tool

from . import inputs
from .deployment import Deployment

MAX_LONG = 2**63 - 1
NO_DURATION: list[Any] = [10**18, 1e18, MAX_LONG, 2**64, -5, "5", "P10000Y", True, [], {}]
NO_TIME = [*NO_DURATION, 1.5]
DEADLINES = inputs.ids("C01")[9:]
NAN = "C01.6"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.catalog(tool("call"), tool("risky", approval="always"), agent("call", "risky"))
    return made


@pytest.mark.kafka
def test_c01_none_of_the_inputs_stops_the_processor(deployment: Deployment) -> None:
    """`policy` is no field of a task, so it is ignored; a deadline is a number of milliseconds."""
    engine = deployment.pid("engine")
    for name in inputs.ids("C01"):
        deployment.send("agent.tasks", *inputs.records(name))
    for name in inputs.ids("C01"):
        (record,) = inputs.records(name)
        if name == NAN:
            assert deployment.dead(record.value).header("reason") == "not_a_number"
            continue
        outcome = deployment.outcome(json.loads(record.value or b"")["task_id"])
        if name in DEADLINES:
            assert outcome["errors"][0]["kind"] == "refused"
            assert "deadline_at" in outcome["text"]
            assert deployment.dead(record.value).header("reason") == "refused"
        else:
            assert outcome["status"] == "done"
    deployment.task("demo", "c01-next", deadline_at=MAX_TIME_MS)
    assert deployment.outcome("c01-next")["status"] == "done"
    assert deployment.pid("engine") == engine


def feed(desk: Desk, run_id: str = "r", **more: Any) -> None:
    plan = [{"id": "a", "tool": "call"}]
    desk.feed(topics.TASKS, **{"task_id": run_id, "agent": "demo", "plan": plan, **more})


def others_go_on(desk: Desk) -> None:
    feed(desk, "next")
    desk.answer(1)
    assert desk.outcome()["run_id"] == "next"
    assert desk.outcome()["complete"] is True


@pytest.mark.parametrize(
    ("field", "value"),
    [("deadline_at", value) for value in NO_TIME] + [("seconds", value) for value in NO_DURATION],
)
def test_c01_what_is_no_time_is_refused_by_the_name_of_its_field(
    desk: Desk, field: str, value: Any
) -> None:
    feed(desk, **({field: value} if field == "deadline_at" else {"budget": {field: value}}))
    outcome = desk.outcome()
    assert outcome["errors"][0]["kind"] == "refused"
    assert field in outcome["text"]
    assert len(outcome["text"]) < 300
    assert set(desk.timers) == {b"r/refused"}, "until it is forgotten that it was refused"
    others_go_on(desk)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_c01_what_is_no_number_is_a_dead_letter(desk: Desk, value: float) -> None:
    feed(desk, deadline_at=value)
    ((_, reason, _),) = desk.dead
    assert reason == "not_a_number"
    others_go_on(desk)


@pytest.mark.parametrize("value", [0, 1, 999_999])
def test_c01_a_deadline_in_the_past_is_due_now_and_once(desk: Desk, value: int) -> None:
    feed(desk, deadline_at=value)
    desk.tick(0)
    cancels = [c for c in desk.on("agent.commands.tools") if c["verb"] == "cancel"]
    assert len(cancels) == 1
    desk.answer(None, "cancelled")
    desk.tick(1000)
    outcomes = [outcome for outcome in desk.on(topics.OUTCOMES) if outcome["run_id"] == "r"]
    assert [outcome["status"] for outcome in outcomes] == ["cancelled"]
    others_go_on(desk)


@pytest.mark.parametrize("value", [MAX_TIME_MS, None])
def test_c01_a_deadline_that_never_comes(desk: Desk, value: int | None) -> None:
    feed(desk, deadline_at=value)
    desk.answer(1)
    assert desk.outcome()["status"] == "done"


@pytest.mark.parametrize("value", NO_DURATION)
def test_c01_a_foreign_connectors_times_harm_nobody_else(desk: Desk, value: Any) -> None:
    """Its record is buried with the field's name; the call's own timer settles the run."""
    feed(desk)
    error = {"kind": "transient", "retry_after_seconds": value}
    where = {"run_id": "r", "action_id": "r/1", "attempt": 1}
    desk.feed(topics.RESULTS, **where, status="failed", error=error)
    ((_, _, detail),) = desk.dead
    assert "retry_after_seconds" in detail
    others_go_on(desk)
    desk.feed(topics.RESULTS, **where, status="succeeded", result=1)
    assert desk.outcome()["run_id"] == "r"


@pytest.mark.parametrize("value", [0.0001, 0.001])
def test_c01_a_question_that_expires_at_once_expires_once(desk: Desk, value: float) -> None:
    rule = ApprovalRule(kind="action", tool="risky", within_seconds=value, on_timeout="reject")
    desk.catalog(agent("call", "risky", approvals=[rule]))
    feed(desk, plan=[{"id": "a", "tool": "risky"}])
    desk.tick(1)
    expired = [e for e in desk.on(topics.EVENTS) if e["type"] == "approval_expired"]
    assert len(expired) == 1
    assert desk.outcome()["not_completed"][0]["status"] == "rejected"
    others_go_on(desk)


def test_c01_a_question_that_is_open_for_ten_years(desk: Desk) -> None:
    rule = ApprovalRule(kind="action", tool="risky", within_seconds=315_360_000.0)
    desk.catalog(agent("call", "risky", approvals=[rule]))
    feed(desk, plan=[{"id": "a", "tool": "risky"}])
    question = desk.on(topics.PENDING)[-1]
    assert question["expires_at"] == desk.now + 315_360_000_000
    desk.feed(
        topics.APPROVALS,
        approval_id=question["approval_id"],
        approver="ann",
        decision="approve",
    )
    desk.answer(1)
    assert desk.outcome()["complete"] is True


@pytest.mark.parametrize(
    "value", ["1.0e+18", MAX_LONG, -5, "'5'", ".nan", ".inf", "P10000Y", "true"]
)
@pytest.mark.parametrize(
    "setting",
    [
        "approvals: [{within_seconds: %s}]",
        "retry: {first_wait_seconds: %s}",
        "budget: {seconds: %s}",
    ],
)
def test_c01_an_agents_times_are_checked_before_it_is_in_force(
    tmp_path: Path, setting: str, value: Any
) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(f"agents:\n  demo:\n    {setting % value}\n")
    with pytest.raises(AgentsError) as refused:
        read_agents(file)
    assert "_seconds" in str(refused.value) or "budget.seconds" in str(refused.value)
