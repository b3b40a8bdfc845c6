"""Cases of the kind "concurrency": K01, K02, K04."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment, partition
from .inputs import Sent
from .scripts import END, asks

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_k01_the_same_task_five_times_is_one_run(deployment: Deployment) -> None:
    deployment.send("agent.tasks", *inputs.records("K01.1"))
    check_one_run(deployment, "k01")


def check_one_run(deployment: Deployment, run_id: str) -> None:
    assert deployment.outcome(run_id)["status"] == "done"
    types = [event["type"] for event in deployment.events(run_id)]
    assert (types.count("run_started"), types.count("run_finished")) == (1, 1)
    assert len(deployment.effects(run_id, "put_note")) == 1
    commands = deployment.topics.on("agent.commands.tools", lambda seen: seen.key == run_id)
    attempts = [(seen.value["action_id"], seen.value["attempt"]) for seen in commands]
    assert len(attempts) == len(set(attempts)) == 2


def test_k01_the_same_task_through_every_partition_and_without_a_key(
    deployment: Deployment,
) -> None:
    """Two engines' partitions see it at one moment; the fields stand in another order."""
    fields = {"agent": "demo", "task_id": "k01-scattered", "input": "x", "user_id": "u1"}
    for number in (0, 1, 0, 1):
        deployment.put("agent.tasks", partition=number, **dict(reversed(fields.items())))
        deployment.put("agent.tasks", partition=number, **fields)
    check_one_run(deployment, "k01-scattered")
    assert not deployment.topics.on(
        "agent.dead-letters", lambda seen: b"k01-scattered" in (seen.raw or b"")
    )


def check_conflict(deployment: Deployment, raw: bytes, run_id: str) -> None:
    letter = deployment.dead(raw)
    assert letter.header("reason") == "conflict"
    assert run_id in letter.header("detail")
    assert deployment.outcome(run_id)["status"] == "done"
    started = [e for e in deployment.events(run_id) if e["type"] == "run_started"]
    assert [event["data"]["input"] for event in started] == ["first"]


def test_k01_another_task_of_the_same_id_is_a_conflict(deployment: Deployment) -> None:
    records = inputs.records("K01.2")
    deployment.send("agent.tasks", *records)
    check_conflict(deployment, records[1].value or b"", "k01b")


@pytest.mark.parametrize(
    "change",
    [{"user_id": "u2"}, {"session_id": "another"}, {"budget": {"steps": 1}}, {"input": "First"}],
)
def test_k01_whatever_differs_is_a_conflict(deployment: Deployment, change: dict[str, Any]) -> None:
    run_id = f"k01-{next(iter(change))}"
    first = {"agent": "demo", "task_id": run_id, "user_id": "u1", "input": "first"}
    for task in (first, {**first, **change}):
        deployment.put("agent.tasks", partition(run_id), **task)
    check_conflict(deployment, json.dumps({**first, **change}).encode(), run_id)


def check_eight(deployment: Deployment, run_id: str, agent: str) -> None:
    outcome = deployment.outcome(run_id, 60)
    assert outcome["status"] == "done"
    assert [record["result"]["id"] for record in outcome["completed"]] == list(range(8))
    types = [event["type"] for event in deployment.events(run_id)]
    assert types.count("action_succeeded") == 8 + 2  # and the model's own two
    assert types.count("model_replied") == 2
    assert len(deployment.effects(run_id, "read_note")) == 8


def test_k02_eight_results_of_one_moment_are_all_there_in_order(deployment: Deployment) -> None:
    task = inputs.task("K02.1", agent="k02.1")
    runs = [f"k02-{n}" for n in range(inputs.of("K02.1")["repeat_runs"])]
    for run_id in runs:
        together = {"together": str(inputs.of("K02.1")["barrier"])}
        deployment.put("agent.tasks", **{**task, "task_id": run_id, "metadata": together})
    for run_id in runs:
        check_eight(deployment, run_id, "k02.1")
    last = [r["messages"] for r in deployment.model.requests("k02.1") if len(r["messages"]) > 3]
    assert len(last) == len(runs)
    for messages in last:
        told = [message for message in messages if message["role"] == "tool"]
        assert [json.loads(message["content"])["id"] for message in told] == list(range(8))


def test_k02_results_sent_twice_and_late_count_once(deployment: Deployment, script: Any) -> None:
    agent = script([asks(*(("read_note", {"id": n}) for n in range(8))), END])
    deployment.task(agent, "k02-twice", metadata={"together": "8"})
    check_eight(deployment, "k02-twice", agent)
    results = deployment.topics.on("agent.results", lambda seen: seen.key == "k02-twice")
    for seen in [*results, *reversed(results)]:
        deployment.put("agent.results", partition("k02-twice"), **seen.value)
    deployment.send("agent.results", Sent(b"all read"), partition=partition("k02-twice"))
    deployment.dead(b"all read")
    check_eight(deployment, "k02-twice", agent)


def test_k02_calls_of_one_turn_of_which_some_fail(deployment: Deployment, script: Any) -> None:
    calls = [("read_note", {"id": 0}), ("odd", {"python": "1/0"}), ("read_note", {"id": 2})]
    agent = script([asks(*calls, ("nothing", {}), ("ping", {})), END])
    deployment.task(agent, "k02-mixed")
    assert deployment.outcome("k02-mixed")["status"] == "done"
    messages = deployment.model.requests(agent)[1]["messages"]
    told = [message["content"] for message in messages if message["role"] == "tool"]
    assert len(told) == 5
    assert [json.loads(told[n])["id"] for n in (0, 2)] == [0, 2]
    assert "ZeroDivisionError" in told[1] or "division" in told[1]
    assert "nothing" in told[3]
    assert told[4] == '"pong"' or told[4] == "pong"


def test_k04_two_users_of_one_session_share_nothing(deployment: Deployment, script: Any) -> None:
    agent = script([asks(("read_note", {"id": 1}), ("put_note", {"text": "mine"})), END])
    tasks = [json.loads(record.value or b"") for record in inputs.records("K04.2")]
    for task in tasks:
        deployment.put("agent.tasks", **{**task, "agent": agent, "input": f"of {task['user_id']}"})
    outcomes = {task["user_id"]: deployment.outcome(task["task_id"]) for task in tasks}
    for user, outcome in outcomes.items():
        assert outcome["user_id"] == user
        assert outcome["completed"][0]["result"]["text"] == f"note 1 of {user}"
        assert len(deployment.effects(outcome["run_id"], "put_note")) == 1
    for request in deployment.model.requests(agent):
        text = json.dumps(request["messages"])
        assert ("u1" in text) != ("u2" in text)
    keys = [r["idempotency_key"] for o in outcomes.values() for r in o["completed"]]
    shown = [r["cache_key"] for o in outcomes.values() for r in o["completed"]]
    assert len(set(keys)) == len(set(shown)) == 4


def test_k04_the_same_call_again_has_a_key_of_its_own(deployment: Deployment, script: Any) -> None:
    """The model uses its call id c0 for each turn, once with other arguments."""
    turns = [asks(("put_note", {"text": text})) for text in ("one", "two", "one")]
    agent = script([*turns, END])
    deployment.task(agent, "k04-again")
    outcome = deployment.outcome("k04-again")
    assert [record["result"]["put"] for record in outcome["completed"]] == ["one", "two", "one"]
    assert len({record["idempotency_key"] for record in outcome["completed"]}) == 3
    assert len(deployment.effects("k04-again", "put_note")) == 3


def test_k04_one_key_with_other_arguments_is_a_conflict_and_runs_nothing(
    deployment: Deployment,
) -> None:
    """Nobody but the engine may write commands; a service that knows the key still says no."""
    deployment.task("planner", "k04", plan=[{"id": "a", "tool": "slow", "arguments": {"s": 0.3}}])
    (made,) = deployment.topics.wait(
        "agent.commands.tools", lambda seen: seen.key == "k04", "a command to copy"
    )
    for number, record in enumerate(inputs.of("K04.1")["records"]):
        forged = record["value"]
        changes = {"target": forged["tool"], "effect": "idempotent", "attempt": number + 1}
        changes |= {key: forged[key] for key in ("idempotency_key", "arguments")}
        changes |= {"action_id": f"k04/{number + 7}"}
        deployment.put("agent.commands.tools", partition("k04"), **{**made.value, **changes})
        (answer,) = deployment.topics.wait(
            "agent.results",
            lambda seen, n=number: seen.key == "k04" and seen.value["action_id"] == f"k04/{n + 7}",
            "the answer",
        )
        if number == 0:
            assert answer.value["result"] == {"put": "one"}
        else:
            assert answer.value["error"]["kind"] == "business"
            assert "conflict" in answer.value["error"]["message"]
    assert deployment.outcome("k04")["result"] == {"a": {"slept": 0.3}}
    assert [e["arguments"]["size"] for e in deployment.effects("k04", "put_note")] == [3]
