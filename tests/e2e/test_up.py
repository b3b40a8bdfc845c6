"""One deployment from `perdure up`, used with nothing but plain Kafka clients."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kafka.world import until

from .deployment import Up

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    made = Up(tmp_path_factory.mktemp("up"))
    made.start()
    made.produce(
        "agent.tasks", dumps(task_id="nobody", agent="countre", input="x")
    )  # waits 10 s for its agent
    yield made
    assert made.stop() == 0


def dumps(**task: object) -> bytes:
    return json.dumps(task).encode()


def test_ready_line_names_every_role(up: Up) -> None:
    assert up.ready["ready"] is True
    assert set(up.ready["pids"]) == {"kafka", "engine", "worker", "views"}
    for role in ("engine", "worker", "views"):
        (pid,) = up.ready["pids"][role]
        assert role in Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_task_without_key_runs_and_its_outcome_is_readable(up: Up) -> None:
    up.produce("agent.tasks", dumps(task_id="plain-1", agent="counter", input="seven"))
    outcome = up.outcome("plain-1")
    assert (outcome["status"], outcome["complete"], outcome["result"]) == (
        "done",
        True,
        "letters: 5",
    )


def test_task_without_id_gets_one_from_its_position(up: Up) -> None:
    up.produce("agent.tasks", dumps(agent="counter", input="nameless", user_id="nobody-else"))
    found = next(
        up.records(
            "agent.outcomes", lambda key, value: bool(value) and value["user_id"] == "nobody-else"
        )
    )
    assert found["run_id"].startswith("t~")


def test_question_is_readable_and_three_fields_answer_it(up: Up) -> None:
    up.produce("agent.tasks", dumps(task_id="ask-1", agent="payer", input={"amount": 250}))
    question = up.question("ask-1".__eq__)
    assert question["title"] == "Pay 250"
    assert question["arguments"] == {"amount": 250}
    assert "pay 250" not in " ".join(up.paid())
    word = dumps(approval_id=question["approval_id"], decision="approve", approver="ann")
    up.produce("agent.approvals", word, word)
    assert up.outcome("ask-1")["completed"][0]["approved_by"] == "ann"
    assert sum(line.startswith("pay 250") for line in up.paid()) == 1


def test_rejected_call_never_runs(up: Up) -> None:
    up.produce("agent.tasks", dumps(task_id="ask-2", agent="payer", input={"amount": 666}))
    question = up.question("ask-2".__eq__)
    up.produce(
        "agent.approvals",
        dumps(
            approval_id=question["approval_id"],
            decision="reject",
            approver="bob",
            reason="too much",
        ),
    )
    outcome = up.outcome("ask-2")
    assert outcome["not_completed"][0]["status"] == "rejected"
    assert not any("666" in line for line in up.paid())


def test_near_miss_decisions_get_a_refusing_verdict(up: Up) -> None:
    up.produce("agent.tasks", dumps(task_id="ask-3", agent="payer", input={"amount": 333}))
    question = up.question("ask-3".__eq__)
    for word in ("Approve", "yes", "no, don't approve", True):
        up.produce(
            "agent.approvals",
            dumps(approval_id=question["approval_id"], decision=word, approver="ann"),
        )
    verdicts = up.records("agent.verdicts", lambda key, value: key == "ask-3")
    seen = [next(verdicts) for _ in range(4)]
    assert not any(verdict["accepted"] for verdict in seen)
    up.produce(
        "agent.approvals",
        dumps(approval_id=question["approval_id"], decision="cancel_run", approver="ann"),
    )
    assert up.outcome("ask-3")["status"] == "cancelled"
    assert not any("333" in line for line in up.paid())


def test_plan_with_parallel_steps_and_references(up: Up) -> None:
    plan = [
        {"id": "a", "tool": "look", "arguments": {"word": {"$": "input.first"}}, "depends_on": []},
        {"id": "b", "tool": "look", "arguments": {"word": "be"}, "depends_on": []},
        {
            "id": "c",
            "tool": "pay",
            "arguments": {
                "amount": {"$": "double(steps.a.result.letters + steps.b.result.letters)"}
            },
            "depends_on": ["a", "b"],
        },
    ]
    up.produce(
        "agent.tasks", dumps(task_id="plan-1", agent="planner", plan=plan, input={"first": "alpha"})
    )
    outcome = up.outcome("plan-1")
    assert outcome["result"]["c"] == {"paid": 7.0}
    assert "pay 7.0" in up.paid()


@pytest.mark.parametrize(
    ("raw", "reason", "says"),
    [
        (b'{"task_id":"m01-bad","input":', "not_json", "not JSON"),
        (b"\xff\xfe\x80\x06\xe7not utf8", "not_utf8", "not UTF-8"),
        (b"[1,2,3]", "not_an_object", "must be a JSON object"),
        (b'{"input": "no agent, no id"}', "missing", "agent: is required"),
        (b'{"agent": "counter", "agent": "payer", "input": "dup"}', "duplicate_key", "twice"),
        (b'{"agent": 5, "input": "wrong type"}', "wrong_type", "agent"),
    ],
)
def test_what_cant_be_read_is_a_dead_letter_with_a_reason(
    up: Up, raw: bytes, reason: str, says: str
) -> None:
    up.produce("agent.tasks", raw)
    headers = up.dead(raw)
    assert headers["reason"] == reason
    assert says in headers["detail"]
    assert headers["topic"] == "agent.tasks"


def test_null_value_stops_nothing(up: Up) -> None:
    up.produce(
        "agent.tasks",
        None,
        dumps(task_id="after-null", agent="counter", input="x"),
        key="after-null",
    )
    assert up.outcome("after-null")["status"] == "done"


def test_two_megabytes_of_no_json_are_kept_in_part(up: Up) -> None:
    up.produce("agent.tasks", b"oversized " + os.urandom(2_000_000))
    headers = up.dead(b"oversized ")
    assert headers["length"] == "2000010"
    assert len(headers["sha256"]) == 64


def test_unknown_agent_is_a_failed_outcome_that_says_so(up: Up) -> None:
    outcome = up.outcome("nobody")
    assert outcome["status"] == "failed"
    assert outcome["errors"][0]["kind"] == "refused"
    assert "did you mean counter?" in outcome["errors"][0]["message"]


def test_valid_task_of_two_megabytes_runs(up: Up) -> None:
    plan = [{"id": "a", "tool": "look", "arguments": {"word": {"$": "input.word"}}}]
    text = "lorem ipsum " * 170_000
    up.produce(
        "agent.tasks",
        dumps(task_id="large", agent="planner", plan=plan, input={"word": "big", "text": text}),
    )
    assert up.outcome("large")["result"] == {"a": {"letters": 3}}


def test_same_task_again_is_ignored_and_another_one_is_a_conflict(up: Up) -> None:
    task = dumps(task_id="twice", agent="counter", input="one")
    up.produce("agent.tasks", task, task, dumps(task_id="twice", agent="counter", input="another"))
    assert up.outcome("twice")["result"] == "letters: 3"
    assert up.dead(b'"another"')["reason"] == "conflict"


def test_the_page_shows_a_run_and_takes_a_decision(up: Up) -> None:
    """The local user needs no token, and is not the task's user."""
    up.produce("agent.tasks", dumps(task_id="web-1", agent="payer", input={"amount": 251}))
    up.question("web-1".__eq__)
    with httpx.Client(base_url=up.ready["url"], trust_env=False, timeout=20) as page:
        shown = until(lambda: row(page, "web-1", "waiting_approval"), "the run waits")
        (waits,) = shown["waiting_for"]
        (asked,) = [
            each
            for each in page.get("/api/approvals").json()["approvals"]
            if each["run_id"] == "web-1"
        ]
        assert (asked["approval_id"], asked["title"], asked["may_decide"]) == (
            waits["approval_id"],
            "Pay 251",
            True,
        )
        assert asked["url"] == f"{up.ready['url']}/approvals/web-1/a1"
        sent = page.post("/api/approvals/web-1/a1/decisions", json={"decision": "approve"})
        verdict = page.get(f"/api/verdicts/web-1/{sent.json()['request_id']}", params={"wait": 20})
        assert verdict.json()["accepted"] is True
        until(lambda: row(page, "web-1", "done"), "the run is done")
        until(lambda: page.get("/api/runs/web-1").json()["outcome"], "its outcome")
        health = page.get("/api/health").json()
        assert set(health["processors"]) == {"engine", "worker.tools", "worker.models", "views"}
        assert {each["name"] for each in page.get("/api/tools").json()["tools"]} >= {"pay", "look"}
        kill_views(up)
        until(lambda: row(page, "web-1", "done"), "it is shown again", 40)


def row(page: httpx.Client, run_id: str, status: str) -> Any:
    try:
        found = page.get("/api/runs", params={"q": run_id})
    except httpx.TransportError:
        return None
    rows = found.json().get("runs") or [None]
    return rows[0] if rows[0] and rows[0]["status"] == status else None


def kill_views(up: Up) -> None:
    (pid,) = up.ready["pids"]["views"]
    os.kill(pid, signal.SIGKILL)


def test_a_killed_deployment_goes_on_where_it_was(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.start()
    up.produce(
        "agent.tasks",
        *(dumps(task_id=f"k-{n}", agent="payer", input={"amount": 1000 + n}) for n in range(5)),
    )
    questions = [up.question(f"k-{n}".__eq__) for n in range(5)]
    first = questions.pop()
    up.produce(
        "agent.approvals",
        dumps(approval_id=first["approval_id"], decision="approve", approver="ann"),
    )
    assert up.outcome(first["run_id"])["status"] == "done"
    up.kill()
    up.start()
    for question in questions:
        up.produce(
            "agent.approvals",
            dumps(approval_id=question["approval_id"], decision="approve", approver="ann"),
        )
    for question in questions:
        assert up.outcome(question["run_id"], 60)["complete"] is True
    assert sorted(up.paid()) == [f"pay {1000 + n}.0" for n in range(5)]
    assert up.stop() == 0
