"""What any connector may announce or answer, and no decision may stumble over."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import ModelSpec, PlanStep, ToolSpec

from .harness import World, accepted, agent, refused, tool

PYTHON = ModelSpec(provider="python", name="m", function="a:b")
SCHEMAS = [
    {"type": "object", "properties": None},
    {"type": "object", "properties": [], "required": None},
    {"properties": {"a": {}}, "required": None},
    {"properties": "why", "required": "ab"},
    {"properties": 7},
]


def offered(made: World) -> dict[str, Any]:
    tools = made.command("m").request["tools"]
    return next(each["parameters"] for each in tools if each["name"] == "look")


@pytest.mark.parametrize("approval", ["always", "never"])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_that_is_none_stops_no_run(schema: dict[str, Any], approval: str) -> None:
    """Every new task of the agents that use the tool was quarantined at its first model request."""
    odd = ToolSpec(name="look", effect="read_only", parameters=schema, approval=approval)
    made = World(odd, tool("other"), agent_spec=agent("look", "other", model=PYTHON))
    accepted(made.start())
    shown = offered(made)
    assert isinstance(shown.get("properties", {}), dict)
    assert isinstance(shown.get("required", []), list)
    assert ("why" in shown.get("required", ())) == (approval == "always")
    accepted(made.reply(None, ("look", {"why": "x"}), ("other", {})))
    assert made.command("other")


def test_a_plan_for_such_a_tool_is_refused_with_the_reason() -> None:
    odd = ToolSpec(name="look", effect="read_only", parameters={"properties": 7}, approval="never")
    refused(World(odd).plan(PlanStep("a", "look")), "its connector must mend it")


def test_such_a_tool_can_stand_for_nothing_and_undo_nothing() -> None:
    """A fallback's and an undoing's arguments are taken by the names in their schema."""
    odd = ToolSpec(name="odd", effect="idempotent", parameters={"properties": None})
    made = World(
        tool("look", fallback="odd"),
        tool("pay", "idempotent", compensate="odd"),
        odd,
        agent_spec=agent("look", "pay"),
    )
    accepted(made.plan(PlanStep("a", "pay"), PlanStep("b", "look")))
    accepted(made.answer(made.command("pay"), result=1))
    accepted(made.fails(made.command("look"), "unavailable", "gone"))
    assert made.approval().kind == "handover"
    accepted(made.control("cancel", compensate=True))
    assert made.approval().kind == "handover"
    assert "its connector must mend it" in made.approval().title


@pytest.mark.parametrize("reason", [{"a": 1}, ["stop"], 7, True, "x" * 5_000_000])
def test_a_finish_reason_that_is_no_word_is_an_unknown_one(reason: Any) -> None:
    made = World(tool("look"), agent_spec=agent("look", model=PYTHON))
    accepted(made.start())
    accepted(made.reply("hello", finish_reason=reason))
    assert made.status == "running"
    told = made.command("m").request["messages"][-1]["content"]
    assert "ended with the unknown reason" in told
    assert len(told) < 400
