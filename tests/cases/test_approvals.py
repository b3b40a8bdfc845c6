"""Cases of the kinds "approvals/interrupts" (A01 to A05) and "security" (Z01): whose word counts, once.

Played on the engine's desk; A07 and A08 need a broker: `test_approvals_deployed.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import signing, topics
from perdure.schemas.canonical import digest
from perdure.schemas.records import ApprovalDecision, ApprovalRule, ToolSpec
from perdure.streams.engine.signatures import Signatures

from tests.engine.desk import Desk, agent

from . import inputs

COMMANDS = "agent.commands.tools"
PAY = ToolSpec(
    name="pay",
    effect="external",
    approval="always",
    parameters={
        "type": "object",
        "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["to", "amount"],
        "additionalProperties": False,
    },
)
REASON = {"reject": {"reason": "not this one"}, "modify": {"reason": "another amount"}}


def made(directory: Path, **values: Any) -> Desk:
    desk = Desk(directory)
    rule = ApprovalRule(kind="action", approvers=["alice", "bob"], **values)
    desk.catalog(PAY, agent("pay", approvals=[rule]))
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return made(tmp_path)


def reply(desk: Desk, played: dict[str, Any]) -> None:
    """The model's reply as a provider's connector hands it on."""
    calls = [
        {**call, "arguments": json.loads(call["arguments"])}
        for call in played.get("tool_calls", ())
    ]
    desk.answer({"content": None, **played, "tool_calls": calls})


def play(desk: Desk, name: str) -> dict[str, str]:
    """Start an id's task and its model's first turn; gives the questions by the model's call ids."""
    desk.feed(topics.TASKS, **inputs.task(name))
    first = inputs.of(name)["replies"][0]
    reply(desk, first)
    return asked(desk, first)


def asked(desk: Desk, turn: dict[str, Any]) -> dict[str, str]:
    """By what a person sees: the arguments."""
    shown = {json.dumps(q["arguments"]): q["approval_id"] for q in desk.on(topics.PENDING) if q}
    return {
        call["id"]: shown[json.dumps(json.loads(call["arguments"]))] for call in turn["tool_calls"]
    }


def decide(desk: Desk, approval_id: str, decision: str, **more: Any) -> dict[str, Any]:
    plain = {"approval_id": approval_id, "decision": decision, "approver": "alice"}
    desk.feed(topics.APPROVALS, **{**plain, **REASON.get(decision, {}), **more})
    verdict: dict[str, Any] = desk.on(topics.VERDICTS)[-1]
    return verdict


def say(desk: Desk, name: str, questions: dict[str, str]) -> None:
    """The decisions of an id, in its order; each must count."""
    for call, word, *arguments in inputs.of(name)["decisions"]:
        more = {"arguments": arguments[0]} if arguments else {}
        assert decide(desk, questions[call.split("#")[0]], word, **more)["accepted"] is True


def paying(desk: Desk) -> list[dict[str, Any]]:
    """What was put on the commands topic."""
    return [command["arguments"] for command in desk.on(COMMANDS)]


def pay_all(desk: Desk) -> None:
    for command in desk.on(COMMANDS):
        where = {name: command[name] for name in ("run_id", "action_id", "attempt")}
        desk.feed(topics.RESULTS, **where, status="succeeded", result={"paid": True})


def told(desk: Desk) -> list[str]:
    """The results in the last request to the model."""
    messages = desk.on("agent.commands.models")[-1]["request"]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def open_now(desk: Desk) -> list[str]:
    """What a reader of the compacted topic sees: the last value of each key."""
    last = {key: value for topic, key, value in desk.sent if topic == topics.PENDING}
    return [value["approval_id"] for value in last.values() if value is not None]


# --- A01, A03: several questions of one turn ---------------------------------------------------


def test_a01_each_answer_lands_on_its_own_call(desk: Desk) -> None:
    questions = play(desk, "A01.1")
    assert len(set(questions.values())) == 3
    assert sorted(open_now(desk)) == sorted(questions.values())
    say(desk, "A01.1", questions)
    assert sorted(paying(desk), key=str) == [
        {"to": "a", "amount": 1},
        {"to": "c", "amount": 30},
    ]
    assert open_now(desk) == []
    assert len(desk.on("agent.commands.models")) == 1, "it goes on when every call has its result"
    pay_all(desk)
    first, second, third = told(desk)
    assert "Declined by a person, do not retry. Reason: not this one" in second
    assert "paid" in first
    assert "paid" in third
    reply(desk, inputs.of("A01.1")["replies"][1])
    outcome = desk.outcome()
    assert [record["arguments"] for record in outcome["completed"]] == [
        {"to": "a", "amount": 1},
        {"to": "c", "amount": 30},
    ]
    assert [record["arguments"]["to"] for record in outcome["not_completed"]] == ["b"]


def test_a03_a_rejected_call_never_reaches_the_commands(desk: Desk) -> None:
    questions = play(desk, "A03.1")
    say(desk, "A03.1", questions)
    assert paying(desk) == [{"to": "y", "amount": 6}]
    pay_all(desk)
    assert told(desk)[0].startswith("Declined by a person")
    reply(desk, inputs.of("A03.1")["replies"][1])
    desk.tick(10_000)
    assert paying(desk) == [{"to": "y", "amount": 6}]
    (declined,) = desk.outcome()["not_completed"]
    assert (declined["status"], declined["arguments"]["to"]) == ("rejected", "x")
    (rejection, _) = [e for e in desk.on(topics.EVENTS) if e["type"] == "approval_decided"]
    assert rejection["actor"] == "approver:alice"


# --- A02, A05, Z01: one open question ----------------------------------------------------------


def pending(desk: Desk, run_id: str = "r") -> str:
    """Bring a run of u1 to its question."""
    plan = [{"id": "a", "tool": "pay", "arguments": {"to": "x", "amount": 5}}]
    desk.feed(topics.TASKS, task_id=run_id, agent="demo", user_id="u1", plan=plan)
    return f"{run_id}/a1"


def send(desk: Desk, name: str, approval_id: str) -> list[dict[str, Any]]:
    """An id's records as they are; gives the verdicts on them."""
    before = len(desk.on(topics.VERDICTS))
    for record in inputs.records(name):
        raw = (record.value or b"").replace(b"$APPROVAL", approval_id.encode())
        desk.feed(topics.APPROVALS, **json.loads(raw))
    return desk.on(topics.VERDICTS)[before:]


def waits_on(desk: Desk, approval_id: str) -> None:
    """Nothing was started, nothing was closed, and the right person's word still counts."""
    assert open_now(desk) == [approval_id]
    assert paying(desk) == []
    assert decide(desk, approval_id, "approve")["accepted"] is True
    assert len(paying(desk)) == 1


def test_a02_a_decision_on_an_unknown_id_is_kept_with_its_reason(desk: Desk) -> None:
    approval_id = pending(desk)
    assert send(desk, "A02.1", approval_id) == []
    ((_, reason, detail),) = desk.dead
    assert "approval_id" in detail, reason
    assert decide(desk, "r/a7", "approve")["reason"].startswith("no approval r/a7")
    assert decide(desk, "nobody/a1", "approve")["accepted"] is False
    waits_on(desk, approval_id)


def test_a02_the_right_id_of_another_run_is_refused(desk: Desk) -> None:
    pending(desk, "s")
    assert decide(desk, "s/a1", "cancel_run")["accepted"] is True
    approval_id = pending(desk)
    assert decide(desk, "s/a1", "approve", run_id="r")["accepted"] is False
    assert decide(desk, approval_id, "approve", run_id="s")["accepted"] is False
    waits_on(desk, approval_id)


def test_a02_the_first_decision_wins_and_the_second_is_told_why_not(desk: Desk) -> None:
    first, second = send(desk, "A02.2", pending(desk))
    assert (first["accepted"], second["accepted"]) == (True, False)
    assert second["reason"].startswith("already closed")
    assert decide(desk, "r/a1", "reject", approver="bob")["reason"] == ("already closed by alice")
    pay_all(desk)
    assert desk.outcome()["complete"] is True
    again = decide(desk, "r/a1", "approve", request_id="captured")
    assert "already closed" in again["reason"]
    assert len(paying(desk)) == 1


def test_a02_five_copies_are_one_decision(desk: Desk) -> None:
    verdicts = send(desk, "A02.3", pending(desk))
    assert [verdict["accepted"] for verdict in verdicts] == [True] * 5
    assert len({verdict["version"] for verdict in verdicts}) == 1, "the same verdict again"
    assert len(paying(desk)) == 1


@pytest.mark.parametrize(("name", "says"), [("A05.1", "digest"), ("A05.2", "arguments")])
def test_a05_what_was_not_shown_or_can_not_run_is_refused(desk: Desk, name: str, says: str) -> None:
    approval_id = pending(desk)
    (verdict,) = send(desk, name, approval_id)
    assert verdict["accepted"] is False
    if name == "A05.2":  # its record gives no reason, which is refused before its arguments are
        arguments = inputs.of(name)["records"][0]["value"]["arguments"]
        verdict = decide(desk, approval_id, "modify", arguments=arguments)
        assert verdict["accepted"] is False
    assert says in verdict["reason"]
    waits_on(desk, approval_id)


def test_a05_a_call_id_used_again_needs_its_own_yes(desk: Desk) -> None:
    questions = play(desk, "A05.3")
    say(desk, "A05.3", questions)
    pay_all(desk)
    second = inputs.of("A05.3")["replies"][1]
    reply(desk, second)
    first_id, second_id = questions["c1"], asked(desk, second)["c1"]
    assert first_id != second_id
    assert open_now(desk) == [second_id]
    assert paying(desk) == [{"to": "bob", "amount": 1}]
    assert decide(desk, first_id, "approve", approver="bob")["accepted"] is False
    digests = {q["approval_id"]: q["digest"] for q in desk.on(topics.PENDING) if q}
    verdict = decide(desk, second_id, "approve", digest=digests[first_id])
    assert "digest" in verdict["reason"]
    assert paying(desk) == [{"to": "bob", "amount": 1}]


def test_a05_that_what_ran_is_what_was_shown_is_seen_from_the_record(desk: Desk) -> None:
    approval_id = pending(desk)
    question = desk.on(topics.PENDING)[-1]
    decide(desk, approval_id, "approve", digest=question["digest"])
    (command,) = desk.on(COMMANDS)
    assert command["approval"]["approval_id"] == approval_id
    ran = {
        "approval_id": approval_id,
        "run_id": command["run_id"],
        "action_id": command["action_id"],
        "tool": command["target"],
        "arguments": command["arguments"],
    }
    assert digest(ran) == question["digest"]


BY_RECORD = [name for name in inputs.ids("Z01") if "records" in inputs.of(name)]


@pytest.mark.parametrize("name", BY_RECORD)
def test_z01_a_name_that_may_not_decide_is_refused_and_kept(desk: Desk, name: str) -> None:
    approval_id = pending(desk)
    (verdict,) = send(desk, name, approval_id)
    assert verdict["accepted"] is False
    (value,) = (record["value"] for record in inputs.of(name)["records"])
    assert verdict["request_id"] == f"{approval_id}/{value['approver']}/approve"
    assert "approver" in verdict["reason"] or "may not decide" in verdict["reason"]
    waits_on(desk, approval_id)


def test_z01_a_name_alone_is_not_enough_where_a_signature_is_demanded(tmp_path: Path) -> None:
    """Another person's key under the right name, and no key at all."""
    keys = tmp_path / "approvers.jwks"
    alice = signing.new_key("alice")
    keys.write_text(json.dumps({"keys": [signing.public(alice)]}))
    desk = Desk(tmp_path, Signatures(keys, required=True))
    desk.catalog(PAY, agent("pay"))
    approval_id = pending(desk)
    assert "signed decisions only" in decide(desk, approval_id, "approve")["reason"]
    forged = signing.new_key("alice")
    for key, accepted in ((forged, False), (alice, True)):
        question = desk.on(topics.PENDING)[-1]
        plain = {"approval_id": approval_id, "decision": "approve", "approver": "alice"}
        word = ApprovalDecision(**plain, digest=question["digest"])
        signed = signing.sign(word, key, desk.now)
        verdict = decide(desk, approval_id, "approve", **_proof(signed))
        assert verdict["accepted"] is accepted
    (event,) = [e for e in desk.on(topics.EVENTS) if e["type"] == "approval_decided"]
    assert (event["actor"], event["data"]["verified"]) == ("approver:alice", "signature")


def _proof(signed: Any) -> dict[str, Any]:
    return {"digest": signed.digest, "signature": signed.signature, "decided_at": signed.decided_at}
