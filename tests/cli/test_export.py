"""`perdure export`: every run as one document, with people's corrections as labels; from events alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas.records import RunEvent

from perdure.cli.export import Exported, Wanted

from ..core.harness import BEGAN, PlanStep, World, agent, rule, tool

SCORE = Path(__file__).parents[2] / "examples" / "evaluation" / "score.py"


def exported(events: list[RunEvent], uncover: bool = False, **wanted: Any) -> list[dict[str, Any]]:
    made = Exported(Wanted(**wanted), uncover)
    for event in events:
        made.take(event)
    assert not made.broken
    documents: list[dict[str, Any]] = json.loads(json.dumps(made.documents()))
    return documents


def door() -> World:
    made = World(
        tool("door", "external", approval="always", sensitive=["code"]),
        tool("look"),
        agent_spec=agent("door", "look", version=3),
    )
    made.start({"which": "north"})
    made.reply(None, ("door", {"which": "north", "code": "4711"}), ("look", {}))
    made.answer(made.command("look"), result=1)
    made.decide("modify", reason="the other one", arguments={"which": "south", "code": "1"})
    made.answer(made.command("door"), result={"open": True, "code": "1"})
    made.reply(None, ("door", {"which": "east", "code": "5"}))
    made.decide("reject", "bob", reason="never")
    made.reply("done")
    return made


def test_a_run_is_its_state_with_input_decisions_and_outcome() -> None:
    (run,) = exported(door().events)
    assert (run["run_id"], run["status"], run["agent_version"]) == ("r1", "done", 3)
    assert run["input"] == {"which": "north"}
    assert [message["role"] for message in run["messages"]][:2] == ["user", "assistant"]
    assert [d["decision"] for d in run["decisions"]] == ["modify", "reject"]
    assert run["outcome"]["complete"] is False
    assert run["started_at"] == BEGAN


def test_what_people_changed_and_declined_are_labels() -> None:
    (run,) = exported(door().events)
    labels = {a["action_id"]: a["label"] for a in run["actions"] if a["label"]}
    assert labels == {
        "r1/2": {
            "verdict": "modified", "approver": "ann", "reason": "the other one",
            "proposed": {"which": "north", "code": "***"},
            "corrected": {"which": "south", "code": "***"},
        },
        "r1/5": {
            "verdict": "rejected", "approver": "bob", "reason": "never",
            "proposed": {"which": "east", "code": "***"},
        },
    }  # fmt: skip


def test_what_is_sensitive_is_covered_everywhere_unless_asked_for() -> None:
    text = json.dumps(exported(door().events))
    assert "4711" not in text
    assert '"code": "1"' not in text
    assert "4711" in json.dumps(exported(door().events, uncover=True))


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"agent": "demo"}, 1),
        ({"agent": "other"}, 0),
        ({"since": BEGAN, "until": BEGAN + 1}, 1),
        ({"since": BEGAN + 1}, 0),
        ({"until": BEGAN}, 0),
        ({"statuses": ("done", "failed")}, 1),
        ({"statuses": ("running",)}, 0),
    ],
)
def test_only_the_wanted_runs(wanted: dict[str, Any], count: int) -> None:
    assert len(exported(door().events, **wanted)) == count


def test_a_run_that_goes_on_has_no_outcome() -> None:
    made = World(tool("look"))
    made.start()
    (run,) = exported(made.events)
    assert (run["status"], run["outcome"]) == ("running", None)


def test_a_broken_history_is_told_and_left_out() -> None:
    events = door().events
    made = Exported(Wanted())
    for event in [events[0], *events[2:]]:
        made.take(event)
    assert list(made.broken) == ["r1"]
    assert made.documents() == []


def test_the_example_scores_an_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text("".join(json.dumps(run) + "\n" for run in exported(door().events)))
    spec = importlib.util.spec_from_file_location("score", SCORE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(str(runs))
    told = capsys.readouterr().out
    assert "demo                       3      1        0%       0 of 2" in told
    assert 'corrected  {"which": "south", "code": "***"}' in told


def test_what_is_sensitive_in_a_plans_result_is_covered() -> None:
    made = World(tool("look", sensitive=["iban"]))
    made.plan(PlanStep(id="a", tool="look"))
    made.answer(made.command("look"), result={"iban": "DE00"})
    assert "DE00" not in json.dumps(exported(made.events))


def test_what_a_policy_declined_is_no_label() -> None:
    asks = [rule(kind="action", tool="door", within_seconds=60, on_timeout="reject")]
    made = World(
        tool("door", "external", approval="always"), agent_spec=agent("door", approvals=asks)
    )
    made.start()
    made.reply(None, ("door", {}))
    made.timer("ask/1")
    made.reply("done")
    (run,) = exported(made.events)
    assert [action["label"] for action in run["actions"] if action["label"]] == []
