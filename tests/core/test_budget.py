"""A model call's estimate is reserved before it is made, and settled with what it used (lifecycle section 6)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from perdure.schemas.records import Budget, BudgetPolicy, ModelSpec, Prices, Usage, Window
from perdure.streams.core.policies.budget import extended

from .harness import PlanStep, World, accepted, agent, tool

OPENAI = ModelSpec(provider="openai", name="m", prices=Prices(input=1_000.0, output=2_000.0))


def world(limits: Budget, model: ModelSpec = OPENAI, **values: object) -> World:
    made = World(tool("look"), agent_spec=agent("look", model=model, **values))
    accepted(made.start("x" * 3_000, budget=limits))
    return made


def test_a_call_that_the_budget_has_no_room_for_is_not_made() -> None:
    made = world(Budget(tokens=500))
    assert not made.commands
    asked = made.approval()
    assert asked.kind == "budget"
    assert "0 of 500 tokens are used, and the next model call needs about " in asked.title
    made.decide("extend", budget=Budget(tokens=5_000))
    assert made.command("m")


def test_it_stops_where_the_agent_says_so() -> None:
    made = world(Budget(tokens=500), budget=BudgetPolicy(then="stop"))
    assert (made.status, made.outcome().complete) == ("done", False)
    assert "0 of 500 tokens" in made.outcome().text


def test_the_replys_limit_is_reserved_too() -> None:
    made = world(
        Budget(tokens=4_000), ModelSpec(provider="openai", name="m", max_output_tokens=3_500)
    )
    assert made.approval().kind == "budget"


def test_the_cost_is_reserved_by_the_prices() -> None:
    """About 1,500 tokens at 1,000 a million: 1.5."""
    assert world(Budget(cost=1.0)).approval().kind == "budget"
    assert world(Budget(cost=3.0)).command("m")


def test_what_was_used_settles_what_was_reserved() -> None:
    made = world(Budget(tokens=4_000))
    call = {"content": None, "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]}
    made.answer(made.command("m"), result=call, usage=Usage(input_tokens=100, output_tokens=10))
    assert made.header.input_tokens + made.header.output_tokens == 110
    made.answer(made.command("look"), result=1)
    assert made.command("m")  # far less than the estimate was used, so there is room


def test_a_script_reads_nothing() -> None:
    made = world(Budget(tokens=10), ModelSpec(provider="scripted", name="m", replies=[]))
    assert made.command("m")


def test_a_summary_reserves_what_it_is_shown_not_the_whole_window() -> None:
    spec = Window(max_tokens=8_000, keep_rounds=1, mode="summary")
    made = World(tool("look"), agent_spec=agent("look", model=OPENAI, window=spec))
    accepted(made.start("the task", budget=Budget(tokens=5_000)))
    made.summary = ""
    for step in range(3):
        made.reply(None, ("look", {"step": step}))
        made.answer(made.command("look"), result="x" * 200)
        if made.action(made.header.next_action - 1).purpose == "summary":
            return
    raise AssertionError("no summary was asked for")


def asks_for_steps(planned: bool) -> World:
    policy = BudgetPolicy(steps=1)
    made = World(tool("look"), agent_spec=agent("look", budget=policy))
    if planned:
        made.plan(PlanStep(id="a", tool="look"), PlanStep(id="b", tool="look"))
    else:
        made.start()
        made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1)
    assert made.approval().kind == "budget"
    return made


@pytest.mark.parametrize("planned", [True, False])
def test_room_given_by_request_answers_the_open_question(planned: bool) -> None:
    made = asks_for_steps(planned)
    accepted(made.control("extend", budget=Budget(steps=5), by="ann", reason="go on"))
    assert (made.status, made.header.asks) == ("running", [])
    said = made.approval(1).decisions[-1]
    assert (said["decision"], said["approver"], said["reason"]) == ("extend", "ann", "go on")
    if planned:
        made.answer(made.command("look"), result=2)
    else:
        made.reply("done")
    assert made.status == "done"


def test_room_that_is_not_what_was_asked_for_leaves_the_question() -> None:
    made = asks_for_steps(planned=True)
    accepted(made.control("extend", budget=Budget(tokens=5)))
    assert [wait["kind"] for wait in made.waits()] == ["budget"]
    accepted(made.decide("extend", budget=Budget(steps=5)))
    assert made.status == "running"


@pytest.mark.parametrize(
    ("most", "more"),
    [
        (Budget(tokens=2**53), {"tokens": 2**53}),
        (Budget(steps=2**53), {"steps": 2**53}),
        (Budget(seconds=315_360_000), {"seconds": 315_360_000}),
    ],
)
def test_a_limit_is_extended_to_the_most_that_it_may_be(most: Budget, more: dict[str, Any]) -> None:
    """Ten years more on a day raised, and the run stood still."""
    policy = BudgetPolicy(steps=1, tokens=50_000, seconds=86_400)
    made = World(tool("look"), agent_spec=agent("look", budget=policy))
    made.start()
    accepted(made.control("extend", budget=Budget(**more)))
    (name,) = more
    assert getattr(made.header.budget, name) == getattr(most, name)


def test_a_question_is_extended_to_the_most_that_a_limit_may_be() -> None:
    made = world(Budget(tokens=500))
    accepted(made.decide("extend", budget=Budget(tokens=2**53)))
    assert made.header.budget.tokens == 2**53
    assert made.command("m")


def test_a_cost_is_extended_to_a_number_that_json_has() -> None:
    assert extended(Budget(cost=1.7e308), Budget(cost=1.7e308)).cost == sys.float_info.max
