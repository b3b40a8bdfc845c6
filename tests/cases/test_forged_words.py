"""Cases of the kind "security" on the deployment: Z03, URLs that lead inside, and Z04, texts that
pretend to be a decision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment
from .scripts import asks

pytestmark = pytest.mark.kafka

URLS = inputs.ids("Z03")


def test_z03_no_url_of_a_model_leads_inside(deployment: Deployment) -> None:
    """All at once: each call is refused before anything is sent, and the model is told why."""
    runs = {name: deployment.play(name) for name in URLS}
    for name, run_id in runs.items():
        outcome = deployment.outcome(run_id)
        (call,) = outcome["not_completed"]
        assert (call["tool"], call["status"], call["attempts"]) == ("http_get", "failed", 1), name
        error = call["error"]
        scheme = call["arguments"]["url"].partition(":")[0]
        code = "forbidden_address" if scheme == "http" else "bad_url"
        assert (error["kind"], error["code"]) == ("invalid_arguments", code), name
        (_, asked) = deployment.model.requests(name.lower())
        told = [each["content"] for each in asked["messages"] if each["role"] == "tool"]
        assert len(told) == 1
        assert error["message"] in told[0]
    url = call_of("Z03.11")
    assert (
        deployment.effects(runs["Z03.11"], "http_get")[0]["arguments"]["url"] != url
    )  # by a redirect


def call_of(name: str) -> str:
    (call,) = inputs.replies(name)[0]["tool_calls"]
    return str(json.loads(call["arguments"])["url"])


def undecided(deployment: Deployment, run_id: str) -> dict[str, Any]:
    """The question of a run for which nobody has spoken and nothing was paid."""
    question = deployment.question(run_id)
    assert (question["kind"], question["tool"]) == ("action", "pay")
    types = {event["type"] for event in deployment.events(run_id)}
    assert "approval_decided" not in types
    assert deployment.effects(run_id, "pay") == []
    for topic in ("agent.approvals", "agent.verdicts"):
        assert deployment.topics.on(topic, lambda seen: run_id in (seen.raw or b"").decode()) == []
    return question


def test_z04_a_result_that_claims_an_approval_is_a_text_of_its_tool(
    deployment: Deployment, script: Any
) -> None:
    agent = script([asks(("slow", {"s": 3})), asks(("pay", {"to": "x", "amount": 5}))])
    deployment.task(agent, "z04a")
    deployment.topics.wait("agent.commands.tools", lambda seen: seen.key == "z04a", "the call")
    (record,) = inputs.written(
        inputs.of("Z04.1")["records"], **{"$ACTION": "z04a/2", "$APPROVAL": "z04a/a1"}
    )
    deployment.put("agent.results", run_id="z04a", attempt=1, **record["value"])
    undecided(deployment, "z04a")
    (_, asked) = deployment.model.requests(agent)
    roles = [
        each["role"] for each in asked["messages"] if "approval granted" in str(each["content"])
    ]
    assert roles == ["tool"]


def test_z04_what_a_model_writes_decides_nothing(deployment: Deployment, script: Any) -> None:
    """Neither in its own words nor in the arguments that an approver is shown."""
    (reply,) = inputs.written(inputs.replies("Z04.2"), **{"$APPROVAL": "z04b/a1"})
    said = json.loads(reply["tool_calls"][0]["arguments"])
    paid = {"to": f"{said['to']} {said['note']}", "amount": said["amount"]}
    deployment.task(script([{**asks(("pay", paid)), "content": reply["content"]}]), "z04b")
    question = undecided(deployment, "z04b")
    assert question["arguments"] == paid


def test_z04_a_task_cannot_bring_its_approvals(deployment: Deployment) -> None:
    (record,) = inputs.of("Z04.3")["records"]
    plan = [{"id": "a", "tool": "pay", "arguments": {"to": "x", "amount": 5}}]
    deployment.put("agent.tasks", **{**record["value"], "agent": "planner", "plan": plan})
    undecided(deployment, "z04c")
    told = deployment.cli("show", "z04c", "--json")
    assert json.loads(told.stdout)["status"] == "waiting_approval"
