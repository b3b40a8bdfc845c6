"""Decisions whose approver must be proved, at the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.schemas import signing, topics
from perdure.schemas.records import ApprovalDecision, ApprovalRule
from perdure.streams.engine.signatures import Signatures

from .desk import Desk, agent, tool

ANN = signing.new_key("ann")


def keys(path: Path, *known: dict[str, Any]) -> None:
    path.write_text(json.dumps({"keys": [signing.public(key) for key in known]}))


def asking(directory: Path, *, signed: bool = False, required: bool = False) -> Desk:
    file = directory / "approvers.jwks"
    keys(file, ANN)
    desk = Desk(directory, Signatures(file, required))
    rule = ApprovalRule(kind="action", tool="pay", signed=signed)
    desk.catalog(tool("pay", "always", "external"), agent("pay", approvals=[rule]))
    plan = [{"id": "a", "tool": "pay", "arguments": {"amount": 5}}]
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=plan, user_id="uma")
    return desk


def word(desk: Desk, **values: Any) -> ApprovalDecision:
    (question,) = desk.on(topics.PENDING)[-1:]
    plain = {
        "approval_id": "r/a1",
        "decision": "approve",
        "approver": "ann",
        "digest": question["digest"],
    }
    return ApprovalDecision(**{**plain, **values})


def send(desk: Desk, decision: ApprovalDecision) -> dict[str, Any]:
    desk.feed(topics.APPROVALS, **msgspec.to_builtins(decision))
    verdict: dict[str, Any] = desk.on(topics.VERDICTS)[-1]
    return verdict


def decided(desk: Desk) -> list[str]:
    return [
        e["data"]["verified"] for e in desk.on(topics.EVENTS) if e["type"] == "approval_decided"
    ]


@pytest.mark.parametrize("signed", [False, True])
def test_a_signed_decision_is_recorded_as_such(tmp_path: Path, signed: bool) -> None:
    desk = asking(tmp_path, signed=signed)
    assert send(desk, signing.sign(word(desk), ANN, desk.now))["accepted"] is True
    assert decided(desk) == ["signature"]
    assert len(desk.on("agent.commands.tools")) == 1


def test_an_unsigned_one_counts_where_nobody_demands_it(tmp_path: Path) -> None:
    desk = asking(tmp_path)
    assert send(desk, word(desk))["accepted"] is True
    assert decided(desk) == ["none"]


@pytest.mark.parametrize("demand", ["signed", "required"])
def test_an_unsigned_one_is_refused_where_it_is_demanded(tmp_path: Path, demand: str) -> None:
    desk = asking(tmp_path, **{demand: True})
    verdict = send(desk, word(desk))
    assert verdict["accepted"] is False
    assert "signed decisions only" in verdict["reason"]
    assert desk.on("agent.commands.tools") == []
    assert send(desk, signing.sign(word(desk), ANN, desk.now))["accepted"] is True


def test_a_false_signature_is_never_taken_for_none(tmp_path: Path) -> None:
    desk = asking(tmp_path)
    verdict = send(desk, signing.sign(word(desk), signing.new_key("ann"), desk.now))
    assert verdict["accepted"] is False
    assert "not that of a known key" in verdict["reason"]


def test_a_signature_over_the_arguments_of_before_a_modify_is_refused(tmp_path: Path) -> None:
    desk = asking(tmp_path)
    two = ApprovalRule(kind="action", tool="pay", required=2)
    desk.catalog(agent("pay", approvals=[two]))
    plan = [{"id": "a", "tool": "pay", "arguments": {"amount": 5}}]
    desk.feed(topics.TASKS, task_id="s", agent="demo", plan=plan, user_id="uma")
    before = signing.sign(word(desk, approval_id="s/a1"), ANN, desk.now)
    send(
        desk,
        word(
            desk,
            approval_id="s/a1",
            approver="bob",
            decision="modify",
            reason="less",
            arguments={"amount": 4},
        ),
    )
    verdict = send(desk, before)
    assert verdict["accepted"] is False
    assert "digest" in verdict["reason"]


def test_a_new_key_needs_no_restart_and_a_dropped_one_is_gone(tmp_path: Path) -> None:
    desk = asking(tmp_path, signed=True)
    new = signing.new_key("ann")
    keys(tmp_path / "approvers.jwks", new, signing.new_key("cas"))
    assert send(desk, signing.sign(word(desk), ANN, desk.now))["accepted"] is False
    assert send(desk, signing.sign(word(desk), new, desk.now))["accepted"] is True


def test_keys_that_can_not_be_read_refuse_what_is_signed(tmp_path: Path) -> None:
    desk = asking(tmp_path)
    (tmp_path / "approvers.jwks").write_text("{")
    verdict = send(desk, signing.sign(word(desk), ANN, desk.now))
    assert "can't be used" in verdict["reason"]
    assert send(desk, word(desk))["accepted"] is True
