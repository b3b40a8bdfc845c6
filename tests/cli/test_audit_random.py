"""The audit of random runs of the core: whatever came, nothing is missing and nothing is claimed."""

from __future__ import annotations

import msgspec
import pytest

from perdure.cli import audit_text
from perdure.cli.audit import Audit, findings, sections
from perdure.cli.audit_decisions import Decisions
from perdure.cli.audit_facts import Facts

from ..core.test_random import run


@pytest.mark.parametrize("seed", range(20))
def test_of_a_random_run_all_is_told_as_it_was(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(seed).world
    found = Audit(Facts(uncover=True), None)
    exported = Decisions(uncover=True)
    decided = []
    for event in made.events:
        found.take(None, event, made.header.run_id)
        decided.append(exported.take(event))
    assert found.problem is None
    told = sections(found)
    assert findings(told) == []
    _, model, _, _, decisions, attempts, *_ = told
    assert [call["messages"] for call in model["calls"]] == [
        command.request["messages"] for command in made.sent if command.request
    ]
    calls = [command for command in made.sent if command.verb == "call"]
    requested = [
        (action["action_id"], moved["attempt"])
        for action in attempts["actions"]
        for moved in action["history"]
        if moved["what"] == "requested"
    ]
    assert sorted(requested) == sorted((each.action_id, each.attempt) for each in calls)
    in_questions = [
        (each["approval_id"], each["version"], each["decision"], each["digest"])
        for question in decisions["questions"]
        for each in question["decisions"]
    ]
    assert sorted(in_questions) == sorted(
        (each["approval_id"], each["version"], each["decision"], each["digest"])
        for each in decided
        if each is not None
    )
    for section in told:
        msgspec.json.encode(section)
        audit_text.tell(section)
    assert "9. The chain of events" in capsys.readouterr().out
