"""Requests to a run: pause and resume, messages, budgets, expected versions."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import AgentSpec

from .harness import Budget, BudgetPolicy, PlanStep, World, accepted, agent, refused, tool


def test_an_expected_version_that_differs_is_refused() -> None:
    made = World(tool("look"))
    made.start()
    refused(made.control("pause", expected_version=2), "has version 4, not 2")
    accepted(made.control("pause", expected_version=4))


def test_a_release_of_a_run_that_is_not_quarantined_is_refused_by_name() -> None:
    made = World(tool("look"))
    made.start()
    refused(made.control("release"), "release")


# --- pause -----------------------------------------------------------------------------------


def paused(*steps: PlanStep) -> World:
    made = World(
        tool("look"),
        tool("put", "idempotent"),
        tool("pay", "external", approval="always"),
    )
    accepted(made.plan(*steps))
    accepted(made.control("pause"))
    return made


def test_a_paused_run_takes_results_and_requests_nothing_new() -> None:
    made = paused(PlanStep(id="a", tool="look"), PlanStep(id="b", tool="put"))
    made.answer(made.command(), result=1)
    assert made.action(1).status == "succeeded"
    assert not made.commands
    accepted(made.control("resume"))
    assert made.command("put")


def test_a_paused_run_takes_decisions_and_runs_them_when_resumed() -> None:
    made = paused(PlanStep(id="a", tool="pay"))
    accepted(made.decide("approve"))
    assert (made.action(1).status, made.commands) == ("approved", [])
    made.control("resume")
    assert made.command("pay")


def test_a_paused_run_takes_expiries() -> None:
    made = paused(PlanStep(id="a", tool="pay"))
    made.timer("ask/1")
    assert made.status == "cancelled"


def test_a_backoff_that_ends_while_paused_is_over_when_resumed() -> None:
    made = paused(PlanStep(id="a", tool="put"))
    made.fails(made.command(), "transient", "connect_refused")
    refused(made.timer("act/1"), "paused")
    made.now += 60_000
    made.control("resume")
    assert made.header.timers["act/1"] == made.now
    made.timer("act/1")
    assert made.command("put").attempt == 2


def test_a_person_who_retries_a_paused_run_is_heard_when_it_is_resumed() -> None:
    made = paused(PlanStep(id="a", tool="put"))
    made.fails(made.command(), "unavailable")
    made.decide("retry")
    assert not made.commands
    made.control("resume")
    made.timer("act/1")
    assert made.command("put").attempt == 2


def test_a_paused_run_proposes_a_replys_calls_when_it_is_resumed() -> None:
    made = World(tool("look"), tool("pay", "external", approval="always"))
    made.start()
    made.control("pause")
    made.reply(None, ("look", {"q": 1}), ("nosuch", {}), ("pay", {"why": "they asked"}))
    assert not made.commands
    assert not made.header.asks
    made.control("message", content="meanwhile")
    made.control("resume")
    assert made.command("look").arguments == {"q": 1}
    assert made.approval().reason == "they asked"
    made.answer(made.command("look"))
    made.decide("approve")
    made.answer(made.command("pay"))
    roles = [message["role"] for message in made.command("m").request["messages"][1:]]
    assert roles == ["user", "assistant", "tool", "tool", "tool", "user"]


def test_a_paused_run_may_be_cancelled() -> None:
    made = paused(PlanStep(id="a", tool="pay"))
    made.control("cancel")
    assert made.status == "cancelled"


def test_pausing_twice_and_resuming_what_runs_is_refused() -> None:
    made = paused(PlanStep(id="a", tool="pay"))
    refused(made.control("pause"), "already paused")
    made.control("resume")
    refused(made.control("resume"), "not paused")


# --- messages --------------------------------------------------------------------------------


def test_a_message_to_a_plan_is_refused() -> None:
    made = paused(PlanStep(id="a", tool="pay"))
    refused(made.control("message", content="hi"), "follows a plan")


def test_a_message_without_content_is_refused() -> None:
    made = World(tool("look"))
    made.start()
    refused(made.control("message"), "needs content")


def test_a_message_to_a_run_that_ends_is_refused() -> None:
    made = World(tool("look"))
    made.start()
    made.control("cancel")
    refused(made.control("message", content="hi"), "is ending")


# --- budget ----------------------------------------------------------------------------------


def limited(then: str = "ask", **limits: Any) -> World:
    made = World(tool("look"), agent_spec=agent("look", budget=BudgetPolicy(then=then, **limits)))
    made.start()
    return made


def turn(made: World) -> None:
    made.reply(None, ("look", {}))
    made.answer(made.command("look"))


@pytest.mark.parametrize(("limits", "turns"), [({"steps": 2}, 2), ({"tokens": 31}, 3), ({"cost": 1.0}, 2)])  # fmt: skip
def test_a_used_up_budget_asks_before_the_next_step(limits: dict[str, Any], turns: int) -> None:
    made = limited(**limits)
    for _ in range(turns):
        assert not made.header.asks
        turn(made)
    assert (made.status, made.approval().kind) == ("waiting_approval", "budget")
    assert made.header.step == turns
    assert not made.commands


def test_an_extended_budget_goes_on() -> None:
    made = limited(steps=1)
    turn(made)
    accepted(made.decide("extend", budget=Budget(steps=2)))
    assert made.header.budget.steps == 3
    turn(made)
    turn(made)
    assert made.approval().kind == "budget"
    assert made.header.next_approval == 3


def test_an_extension_of_another_limit_asks_again() -> None:
    made = limited(steps=1)
    turn(made)
    made.decide("extend", budget=Budget(tokens=1000))
    assert made.header.asks == [2]


def test_extend_without_a_budget_is_refused() -> None:
    made = limited(steps=1)
    turn(made)
    refused(made.decide("extend"), "extend needs a budget")


def test_a_rejected_extension_stops_with_a_partial_outcome() -> None:
    made = limited(steps=1)
    turn(made)
    made.decide("reject", reason="enough")
    outcome = made.outcome()
    assert (outcome.status, outcome.complete) == ("done", False)
    assert made.listed()["completed"] == ["look"]


def test_a_budget_may_stop_by_itself() -> None:
    made = limited("stop", steps=1)
    turn(made)
    outcome = made.outcome()
    assert (outcome.status, outcome.complete) == ("done", False)
    assert "all 1 steps are used" in outcome.text
    assert made.header.ending.actor == "policy:budget"


def test_a_budget_question_may_cancel_the_run() -> None:
    made = limited(steps=1)
    turn(made)
    made.decide("cancel_run")
    assert made.status == "cancelled"


def test_a_plan_that_runs_out_of_budget_asks_when_nothing_is_in_flight() -> None:
    spec = agent("look", budget=BudgetPolicy(steps=2))
    made = World(tool("look"), agent_spec=spec)
    made.plan(*(PlanStep(id=name, tool="look", depends_on=[]) for name in "abc"))
    assert not made.header.asks
    made.answer(made.command())
    assert not made.header.asks
    made.answer(made.command())
    assert made.approval().kind == "budget"
    made.decide("extend", budget=Budget(steps=1))
    made.answer(made.command())
    assert made.outcome().complete


def test_extend_as_a_request_adds_before_it_is_used_up() -> None:
    made = limited(steps=1)
    accepted(made.control("extend", budget=Budget(steps=4)))
    turn(made)
    assert made.header.budget.steps == 5
    assert not made.header.asks


@pytest.mark.parametrize(("asked", "gets"), [(5, 5), (50, 20), (None, 20)])
def test_a_task_may_lower_the_agents_budget_never_raise_it(asked: int | None, gets: int) -> None:
    made = World(tool("look"), agent_spec=agent("look", budget=AgentSpec(name="x").budget))
    made.start(budget=Budget(steps=asked))
    assert made.header.budget.steps == gets


def test_the_budget_is_overspent_by_no_more_than_the_calls_in_flight() -> None:
    made = limited(tokens=15)
    turn(made)
    assert made.header.input_tokens + made.header.output_tokens == 15
    assert made.approval().kind == "budget"


def test_a_message_that_came_while_the_model_was_answering_is_read_before_the_end() -> None:
    made = World(tool("look"))
    made.start()
    accepted(made.control("message", content="wait: half of it"))
    made.reply("all of it is done")
    assert made.status == "running"
    told = [message["content"] for message in made.command("m").request["messages"]]
    assert told[-3:] == [
        "wait: half of it",
        "all of it is done",
        "(A message came while you were answering: take it into account before you finish.)",
    ]
    made.reply("half of it, then")
    assert made.outcome().result == "half of it, then"


def test_a_message_before_a_call_is_read_with_its_result() -> None:
    made = World(tool("look"))
    made.start()
    made.control("message", content="hurry")
    made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1)
    made.reply("done")
    assert made.status == "done"


# --- seconds of the budget -------------------------------------------------------------------


def timed(**values: object) -> World:
    spec = agent("look", "pay", budget=BudgetPolicy(seconds=100), **values)
    made = World(tool("look"), tool("pay", "external", approval="always"), agent_spec=spec)
    made.start()
    return made


def test_a_run_that_takes_its_seconds_asks_for_more() -> None:
    made = timed()
    made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1, seconds=101)
    assert made.approval().kind == "budget"
    assert made.approval().title.endswith("100 seconds are used")
    accepted(made.decide("extend", budget=Budget(seconds=50)))
    made.reply("done")
    assert made.status == "done"


def test_the_time_that_people_take_is_nobodys_budget() -> None:
    made = timed()
    made.reply(None, ("pay", {}))
    made.now += 5_000_000
    made.decide("approve")
    made.control("pause")
    made.now += 5_000_000
    made.control("resume")
    made.answer(made.command("pay"), result=1, seconds=50)
    assert not made.header.asks
    made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1, seconds=60)
    assert made.approval().kind == "budget"
