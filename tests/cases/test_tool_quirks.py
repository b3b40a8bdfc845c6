"""Cases of the kind "tool/MCP quirks": X01, answers that are late, double or of nobody's call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment
from .inputs import Sent

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def command(deployment: Deployment, run_id: str, tool: str, attempt: int = 1) -> dict[str, Any]:
    """The command of a call, once it is sent."""
    (found,) = deployment.topics.wait(
        "agent.commands.tools",
        lambda seen: (
            seen.key == run_id
            and (seen.value["target"], seen.value["attempt"]) == (tool, attempt)
            and seen.value["verb"] == "call"
        ),
        f"attempt {attempt} of {tool}",
    )
    return found.value  # type: ignore[no-any-return]


def answers(action_id: str, in_order: bool = True) -> list[Sent]:
    """The case's answers for a call: of attempt 2, of attempt 1, of no call of this run, and of
    what is no id of a call, which is a dead letter."""
    run_id = action_id.partition("/")[0]
    second, first, foreign = (made["value"] for made in inputs.of("X01.1")["records"])
    unknown = {**foreign, "action_id": f"{run_id}/99"}
    sent = [second, first] if in_order else [first, second]
    sent += [unknown, foreign]
    for value in sent:
        value["run_id"] = run_id
        value["action_id"] = value["action_id"].replace("$ACTION", action_id)
    return [Sent(json.dumps(value).encode(), run_id) for value in sent]


def taken(deployment: Deployment, records: list[Sent]) -> None:
    """Wait until the engine has read them: the last of them is a dead letter, and all are of one
    partition."""
    deployment.send("agent.results", *records)
    letter = deployment.dead(records[-1].value)
    assert letter.header("reason") == "bad_id"


def test_x01_one_of_all_the_answers_to_a_call_counts(deployment: Deployment) -> None:
    """Two runs: the first attempt is given up at its time-out, and told; while the second is under
    way, others answer for both, in one order and in the other."""
    plan = [
        {"id": "a", "tool": "late", "arguments": {"first": 9, "second": 1.4}},
        {"id": "b", "tool": "slow", "arguments": {"s": 0.6}},
    ]
    runs = {"x01-second": True, "x01-first": False}
    for run_id in runs:
        deployment.task("caller", run_id, plan=plan)
    sent = {}
    for run_id, in_order in runs.items():
        sent[run_id] = answers(command(deployment, run_id, "late", 2)["action_id"], in_order)
        deployment.send("agent.results", *sent[run_id])
    for run_id, counts in (("x01-second", "second"), ("x01-first", "first, late")):
        check_one_counts(deployment, run_id, sent[run_id], counts)


def check_one_counts(deployment: Deployment, run_id: str, records: list[Sent], counts: str) -> None:
    given_up = deployment.effects(run_id, "late told to stop")
    assert given_up[0]["attempt"] == 1
    command(deployment, run_id, "slow")
    deployment.topics.wait(
        "agent.results",
        lambda seen: seen.key == run_id and seen.value["attempt"] == 2 and "worker" in seen.value,
        "the worker's own answer to the second attempt",
    )
    marker = Sent(b'{"again":1,' + (records[-1].value or b"")[1:], run_id)
    taken(deployment, [*records[:-1], marker])
    outcome = deployment.outcome(run_id)
    assert (outcome["status"], outcome["complete"]) == ("done", True)
    assert outcome["result"] == {"a": counts, "b": {"slept": 0.6}}
    (record,) = [made for made in outcome["completed"] if made["tool"] == "late"]
    assert (record["result"], record["attempts"]) == (counts, 2)
    found = [event for event in deployment.events(run_id) if event["data"].get("n") == 1]
    assert [event["type"] for event in found].count("action_succeeded") == 1
    assert {event["type"] for event in found} <= {
        "action_proposed",
        "action_requested",
        "action_started",
        "action_succeeded",
        "retry_scheduled",
    }


def test_x01_an_answer_after_the_run_was_cancelled_changes_nothing(
    deployment: Deployment,
) -> None:
    """The call was told to stop: the run ends long before its thirty seconds."""
    run_id = "x01-cancelled"
    plan = [{"id": "a", "tool": "slow", "arguments": {"s": 30}}]
    deployment.task("caller", run_id, plan=plan)
    action_id = command(deployment, run_id, "slow")["action_id"]
    deployment.until(lambda: deployment.effects(run_id, "slow"), "the call has begun")
    deployment.put("agent.control", run_id=run_id, command="cancel", by="u1")
    outcome = deployment.outcome(run_id, 15)
    assert outcome["status"] == "cancelled"
    before = deployment.events(run_id)
    taken(deployment, answers(action_id))
    assert deployment.events(run_id) == before
    assert deployment.outcome(run_id) == outcome
    assert deployment.effects(run_id, "slow")[0]["attempt"] == 1
