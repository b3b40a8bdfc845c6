"""Cases of the kind "approvals/interrupts" on the deployment: A07, a process that was away at the
deadline, and A08, decisions that come before their question."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment

pytestmark = pytest.mark.kafka


def pays(deployment: Deployment, run_id: str, who: str, *targets: str) -> None:
    plan = [
        {"id": to, "tool": "pay", "arguments": {"to": to, "amount": 5}, "depends_on": before}
        for to, before in zip(targets, ([], *([to] for to in targets)), strict=False)
    ]
    deployment.task(who, run_id, plan=plan)


def verdicts(deployment: Deployment, run_id: str, count: int) -> list[dict[str, Any]]:
    found = deployment.topics.wait(
        "agent.verdicts", lambda seen: seen.key == run_id, f"verdicts on {run_id}", count=count
    )
    return [seen.value for seen in found]


def test_a07_the_deadline_is_not_the_engines_life(deployment: Deployment) -> None:
    """The engine stands still before the deadline and is dead after it: what was sent in time
    counts though it is read late, what was sent late is refused, and the policy acts once."""
    late, punctual = "a07", "a07-in-time"
    for run_id in (late, punctual):
        pays(deployment, run_id, "hurried", "x")
    expires = max(deployment.question(run_id)["expires_at"] for run_id in (late, punctual))
    engine = deployment.pid("engine")
    os.kill(engine, signal.SIGSTOP)
    try:
        deployment.decide(f"{punctual}/a1")
        (sent,) = _broker_times(deployment, punctual)
        deployment.until(lambda: _now() > expires, "the questions' time is over", seconds=10)
        deployment.decide(f"{late}/a1")
    finally:
        os.kill(engine, signal.SIGKILL)  # the supervisor starts another
    assert sent < expires
    (verdict,) = verdicts(deployment, late, 1)
    assert (verdict["accepted"], verdict["reason"]) == (
        False,
        "expired before the decision arrived",
    )
    assert deployment.outcome(punctual)["complete"] is True
    outcome = deployment.outcome(late, 40)
    assert outcome["not_completed"][0]["status"] == "rejected"
    for run_id, times in ((late, 1), (punctual, 0)):
        events = deployment.events(run_id)
        expired = [event for event in events if event["type"] == "approval_expired"]
        assert [event["actor"] for event in expired] == ["policy:timeout"] * times
        decided = [event for event in events if event["type"] == "approval_decided"]
        assert len(decided) == 1 - times
        assert len(deployment.effects(run_id, "pay")) == 1 - times


def _now() -> float:
    return time.time() * 1000


def _broker_times(deployment: Deployment, run_id: str) -> list[int]:
    """When the broker took the decisions on a run."""
    found = deployment.topics.wait(
        "agent.approvals", lambda seen: run_id in (seen.raw or b"").decode(), run_id
    )
    return [seen.timestamp for seen in found]


def test_a07_a_client_that_stops_waiting_decides_nothing(deployment: Deployment) -> None:
    """`perdure pending --follow` shows the question and is killed; the yes comes later."""
    run_id = inputs.produced("A07.2")[0]["task_id"]
    pays(deployment, run_id, "planner", "x")
    deployment.question(run_id)
    command = [sys.executable, "-m", "perdure", "pending", "--follow", "--json", *deployment.where]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert waiting.stdout is not None
        assert any(f"{run_id}/a1".encode() in line for line in waiting.stdout)
    finally:
        waiting.kill()
        waiting.communicate(timeout=10)
    assert not any(e["type"].startswith("approval_d") for e in deployment.events(run_id))
    deployment.decide(f"{run_id}/a1")
    assert deployment.outcome(run_id)["complete"] is True
    assert len(deployment.effects(run_id, "pay")) == 1


def test_a08_a_yes_before_there_is_a_question_satisfies_none(deployment: Deployment) -> None:
    """As it was collected (an id of another form), and with the id that the question will have."""
    (_, _, word) = inputs.of("A08.1")["steps"][0]
    raw = json.dumps(word).encode()
    run_id = "a08"
    deployment.put("agent.approvals", **word)
    deployment.decide(f"{run_id}/a1", approver="alice")
    deployment.decide(f"{run_id}/a2", approver="alice")
    assert "approval_id" in deployment.dead(raw).header("detail")
    early = verdicts(deployment, run_id, 2)
    assert [verdict["accepted"] for verdict in early] == [False, False]
    pays(deployment, run_id, "planner", "x", "y")
    assert deployment.question(run_id)["approval_id"] == f"{run_id}/a1"
    deployment.decide(f"{run_id}/a2", approver="alice", request_id="second, too early")
    (*_, third) = verdicts(deployment, run_id, 3)
    assert third["reason"] == f"no approval {run_id}/a2 was ever asked for"
    assert deployment.effects(run_id, "pay") == []
    deployment.decide(f"{run_id}/a1", approver="bob")
    deployment.topics.wait(
        "agent.approvals.pending", lambda seen: seen.key == f"{run_id}/a2" and seen.raw, run_id
    )
    assert len(deployment.effects(run_id, "pay")) == 1
    deployment.decide(f"{run_id}/a2", approver="bob")
    assert deployment.outcome(run_id)["complete"] is True
    assert len(deployment.effects(run_id, "pay")) == 2


def test_a08_decisions_that_race_their_question_count_once_it_is_there(
    deployment: Deployment,
) -> None:
    """A stream of them around the transaction that opens it: refused, refused, ..., one accepted."""
    run_id = "a08-race"
    for number in range(40):
        if number == 5:
            pays(deployment, run_id, "planner", "x")
        deployment.decide(f"{run_id}/a1", request_id=f"q{number}", approver="alice")
    deployment.question(run_id)
    deployment.decide(f"{run_id}/a1", request_id="the last", approver="alice")
    told = verdicts(deployment, run_id, 41)
    accepted = [verdict["accepted"] for verdict in told]
    assert sum(accepted) == 1
    reasons = [verdict["reason"] for verdict in told]
    assert all(
        "there is no such run" in r or "no approval" in r for r in reasons[: accepted.index(True)]
    )
    assert all("already closed" in r for r in reasons[accepted.index(True) + 1 :])
    assert deployment.outcome(run_id)["complete"] is True
    assert len(deployment.effects(run_id, "pay")) == 1
