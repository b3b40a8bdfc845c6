"""Cases of the kind "crash & recovery" that need processes: R01, R03, R04, R09."""

from __future__ import annotations

from typing import Any

import pytest

from . import inputs
from .deployment import Deployment
from .scripts import END, asks, call

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


# --- R01: longer than anybody waits ---------------------------------------------------------------


def outlives(deployment: Deployment, run_id: str, tool: str, seconds: float = 1.5) -> None:
    """Start a call that takes at least three times its timeout."""
    plan = [{"id": "a", "tool": tool, "arguments": {"seconds": seconds}}]
    task = {**inputs.produced("R01.1")[0], "agent": "planner"}
    deployment.put("agent.tasks", **{**task, "task_id": run_id, "plan": plan})


def check_made_once(deployment: Deployment, run_id: str, tool: str, result: Any) -> None:
    outcome = deployment.outcome(run_id)
    assert outcome["complete"] is True
    assert outcome["result"] == {"a": result}
    assert len(deployment.effects(run_id, tool)) == 1
    calls = deployment.topics.on(
        "agent.commands.tools", lambda seen: seen.key == run_id and seen.value["verb"] == "call"
    )
    assert len(calls) == 1


def test_r01_a_call_that_outlives_its_time_is_asked_about_and_then_its_own_result_counts(
    deployment: Deployment,
) -> None:
    outlives(deployment, "r01", "pay_slowly")
    question = deployment.question("r01")
    assert (question["kind"], question["tool"]) == ("in_doubt", "pay_slowly")
    check_made_once(deployment, "r01", "pay_slowly", {"paid": True})
    deployment.topics.wait(
        "agent.approvals.pending",
        lambda seen: seen.key == question["approval_id"] and seen.raw is None,
        "the question is closed",
    )


def test_r01_a_person_may_settle_it_before(deployment: Deployment) -> None:
    outlives(deployment, "r01-person", "pay_slowly", 8)
    asked = deployment.question("r01-person")["approval_id"]
    deployment.decide(asked, "mark_done", answer={"paid": "seen"}, reason="it is there")
    check_made_once(deployment, "r01-person", "pay_slowly", {"paid": "seen"})


def test_r01_a_service_that_can_be_asked_is_asked_once_the_call_is_over(
    deployment: Deployment,
) -> None:
    outlives(deployment, "r01-known", "pay_known")
    outcome = deployment.outcome("r01-known")
    assert outcome["result"]["a"] in ({"paid": True}, {"paid": "found"})
    check_made_once(deployment, "r01-known", "pay_known", outcome["result"]["a"])


# --- R03: between two steps -----------------------------------------------------------------------

STEPS = ["put_note", "slow", "put_note", "slow", "put_note"]
ARGUMENTS: dict[str, dict[str, Any]] = {"put_note": {"text": "x"}, "slow": {"s": 0.3}}


def test_r03_runs_killed_between_two_steps_go_on_by_themselves(deployment: Deployment) -> None:
    """Eight runs at different steps, then nothing more is sent; K01: an active run is one run."""
    plan = [
        {"id": f"s{n}", "tool": tool, "arguments": ARGUMENTS[tool]} for n, tool in enumerate(STEPS)
    ]
    tasks = inputs.produced("R03.1")
    runs = [*(task["task_id"] for task in tasks), *(f"r03-{n}" for n in range(6))]
    for number, run_id in enumerate(runs):
        session = tasks[0]["session_id"]
        deployment.task("planner", run_id, session_id=session, plan=plan[: 5 - number % 3])
    deployment.topics.wait(
        "agent.events",
        lambda seen: seen.key == runs[0] and succeeded(seen.value, 2),
        "step 2 is committed",
    )
    deployment.kill("engine")
    for number, run_id in enumerate(runs):
        outcome = deployment.outcome(run_id, 40)
        assert outcome["complete"] is True
        steps = STEPS[: 5 - number % 3]
        assert [record["tool"] for record in outcome["completed"]] == steps
        assert len(deployment.effects(run_id, "put_note")) == steps.count("put_note")
        types = [event["type"] for event in deployment.events(run_id)]
        assert types.count("run_started") == types.count("run_finished") == 1
        assert types.count("action_succeeded") == len(steps)
    verified = deployment.cli("verify", runs[0])  # the fold of its events is the state
    assert verified.returncode == 0, verified.stdout + verified.stderr


def succeeded(event: dict[str, Any], number: int) -> bool:
    return event["type"] == "action_succeeded" and event["data"]["n"] == number


# --- R04: a call without its result ---------------------------------------------------------------


def one_of_two_answered(deployment: Deployment, run_id: str) -> None:
    deployment.topics.wait(
        "agent.results",
        lambda seen: seen.key == run_id and seen.value.get("result", {}).get("id") == 1,
        "one of the two results",
    )
    deployment.until(lambda: deployment.effects(run_id, "slow"), "the slow call has begun")


def test_r04_a_run_cancelled_amid_its_calls_leaves_no_broken_history(
    deployment: Deployment,
) -> None:
    run_id = deployment.play("R04.1")
    one_of_two_answered(deployment, run_id)
    deployment.put("agent.control", run_id=run_id, command="cancel", by="u1")
    outcome = deployment.outcome(run_id)
    assert outcome["status"] == "cancelled"
    assert [record["tool"] for record in outcome["completed"]] == ["read_note"]
    assert [record["status"] for record in outcome["not_completed"]] == ["cancelled"]
    for step in inputs.of("R04.1")["then"]:
        if step[0] == "produce":
            deployment.model.play("r04.1", call("ping", {}))
            deployment.put("agent.tasks", **{**step[2], "agent": "r04.1"})
            assert deployment.outcome(step[2]["task_id"])["status"] == "done"
    assert deployment.model.refused == []


def test_r04_a_worker_killed_amid_two_calls(deployment: Deployment, script: Any) -> None:
    """The one that was open is called again, as the effect of both allows."""
    agent = script([asks(("read_note", {"id": 1}), ("slow", {"s": 2.5})), END])
    deployment.task(agent, "r04-killed")
    one_of_two_answered(deployment, "r04-killed")
    deployment.kill("worker")
    deployment.put("agent.control", run_id="r04-killed", command="message", content="still there?")
    outcome = deployment.outcome("r04-killed", 60)
    assert [record["tool"] for record in outcome["completed"]] == ["read_note", "slow"]
    assert len(deployment.effects("r04-killed", "slow")) == 2
    histories = [request["messages"] for request in deployment.model.requests(agent)]
    longest = max(histories, key=len)  # a dead worker's own call may be made again, and late
    assert [message["role"] for message in longest].count("tool") == 2
    assert deployment.model.refused == []


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "ping"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a result without its call"},
        {"role": "assistant", "content": {"no": "text"}},
    ],
)
def test_r04_a_broken_history_handed_in_is_refused_where_one_can_read_it(
    deployment: Deployment, turn: dict[str, Any]
) -> None:
    run_id = f"r04-{turn['role']}-{type(turn['content']).__name__}"
    deployment.task("demo", run_id, messages=[{"role": "user", "content": "hello"}, turn])
    outcome = deployment.outcome(run_id)
    assert outcome["errors"][0]["kind"] == "refused"
    assert "messages[1]" in outcome["text"]


# --- R09: half an answer --------------------------------------------------------------------------


def test_r09_a_model_cut_off_in_mid_answer_is_asked_again_and_nothing_else_is(
    deployment: Deployment,
) -> None:
    run_id = deployment.play("R09.1")
    check_cut_off(deployment, run_id, "r09.1")


@pytest.mark.parametrize(
    "partial",
    [
        {"partial_then_close": ""},
        {"partial_then_close": '{"id":"c2","name":"pay"', "unannounced": True},
    ],
)
def test_r09_other_ways_to_break_off(
    deployment: Deployment, script: Any, partial: dict[str, Any]
) -> None:
    replies = inputs.replies("R09.1")
    replies[1] = partial
    agent = script(replies)
    run_id = f"r09-{agent}"
    deployment.task(agent, run_id)
    check_cut_off(deployment, run_id, agent)


def check_cut_off(deployment: Deployment, run_id: str, agent: str) -> None:
    question = deployment.question(run_id)
    assert question["arguments"] == {"to": "bob", "amount": 1}
    assert deployment.effects(run_id, "pay") == []
    assert len(deployment.effects(run_id, "put_note")) == 1
    requests = [request["messages"] for request in deployment.model.requests(agent)]
    assert len(requests) == 3
    assert requests[1][: len(requests[1])] == requests[2][: len(requests[1])]
    users = [m["content"] for m in requests[2] if m["role"] == "user"]
    assert len([text for text in users if text in ("do it", "do the demo")]) == 1
    deployment.decide(question["approval_id"])
    outcome = deployment.outcome(run_id)
    assert [record["tool"] for record in outcome["completed"]] == ["put_note", "pay"]
    assert len(deployment.effects(run_id, "pay")) == 1
    assert outcome["usage"]["input_tokens"] >= 30
