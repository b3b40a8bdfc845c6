"""Fixed plans: which steps run, with what, and how the plan ends."""

from __future__ import annotations

import pytest
from perdure.schemas.records import PlanAction

from .harness import PlanStep, World, accepted, refused, tool

LOOK = tool("look")
PUT = tool("put", "idempotent")
ONE_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def world() -> World:
    return World(LOOK, PUT)


def step(name: str, tool: str = "look", **values: object) -> PlanStep:
    return PlanStep(id=name, tool=tool, **values)


def test_arguments_are_worked_out_from_input_steps_and_run() -> None:
    made = world()
    plan = [
        step("a", arguments={"id": {"$": "input.id"}, "who": {"$": "run.user_id"}}),
        step("b", "put", arguments={"deep": [{"n": {"$": "steps.a.result.total * 2"}}]}),
    ]
    accepted(made.plan(*plan, input={"id": 2**70}))
    assert made.command().arguments == {"id": 2**70, "who": "uma"}
    accepted(made.answer(made.command(), result={"total": 21}))
    assert made.command("put").arguments == {"deep": [{"n": 42}]}


def test_a_step_without_depends_on_waits_for_the_step_before() -> None:
    made = world()
    made.plan(step("a"), step("b"), step("c"))
    assert [command.target for command in made.commands] == ["look"]
    made.answer(made.command())
    assert made.step("b") == "running"
    assert made.step("c") == "pending"


def test_steps_whose_dependencies_are_met_run_side_by_side() -> None:
    made = world()
    made.plan(
        step("a"), step("b", depends_on=[]), step("c", depends_on=["a", "b"]), step("d", "put")
    )
    first, second = made.commands
    made.answer(second)
    assert made.step("c") == "pending"
    made.answer(first)
    assert made.step("c") == "running"
    assert made.step("d") == "pending"


def test_a_finished_plan_is_complete_and_its_result_is_by_step() -> None:
    made = world()
    made.plan(step("a"), step("b", "put", depends_on=[]))
    made.answer(made.command("put"), result={"ok": 1})
    made.answer(made.command("look"), result=[2])
    outcome = made.outcome()
    assert (outcome.status, outcome.complete) == ("done", True)
    assert outcome.result == {"a": [2], "b": {"ok": 1}}
    assert made.header.steps_done == made.header.steps_total == 2


def test_when_false_is_a_recorded_branch_and_counts_as_done() -> None:
    made = world()
    made.plan(
        step("a", when="input == 'never'"),
        step("b", arguments={"before": {"$": "steps.a.result"}}),
    )
    assert "branch_skipped" in made.types()
    assert made.command().arguments == {"before": None}
    made.answer(made.command())
    assert made.outcome().complete
    assert made.outcome().result == {"a": None, "b": None}


def test_when_true_is_a_recorded_branch() -> None:
    made = world()
    made.plan(step("a", when="run.step == 0"))
    assert made.types()[1:3] == ["branch_taken", "step_started"]


def test_a_plan_of_skipped_steps_is_done_at_once() -> None:
    made = world()
    made.plan(step("a", when="false"), step("b", when="false"))
    assert made.status == "done"
    assert made.outcome().complete


def test_what_depends_on_a_rejected_step_is_skipped_and_the_run_is_done_but_not_complete() -> None:
    made = world()
    made.plan(
        step("a", "put", approval="always"),
        step("b"),
        step("c", depends_on=["b"]),
        step("free", depends_on=[]),
    )
    made.decide("reject", reason="too much")
    assert [made.step(name) for name in "abc"] == ["rejected", "skipped", "skipped"]
    assert made.status == "running"
    made.answer(made.command("look"))
    outcome = made.outcome()
    assert (outcome.status, outcome.complete) == ("done", False)
    assert made.listed()["not_completed"] == ["put"]
    assert "b, c" in outcome.text


def test_an_approval_in_a_step_adds_a_question() -> None:
    made = world()
    made.plan(step("a", approval="always"))
    assert made.status == "waiting_approval"
    assert not made.commands
    proposed = next(event for event in made.events if event.type == "action_proposed")
    assert [rule["source"] for rule in proposed.data["rules"] if rule["asks"]] == ["plan"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ([step("a", depends_on=["b"]), step("b", depends_on=["a"])], "wait for each other: a, b"),
        ([step("a", depends_on=["a"])], "wait for each other: a"),
        ([step("a"), step("a")], "plan[1] (a): the id is used twice"),
        ([step("a", "nosuch")], "has no tool nosuch; it has look, put"),
        ([step("a", depends_on=["z"])], "depends_on names z, which is no step"),
        ([step("a", when="input ==")], "is not CEL"),
        ([step("a", arguments={"x": [{"$": "((("}]})], "is not CEL"),
        ([], "has no steps"),
        ([step(f"s{n}") for n in range(201)], "at most 200"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: list[PlanStep], words: str) -> None:
    made = world()
    refused(made.plan(*plan), words)
    assert not made.events


def test_fixed_arguments_that_break_the_schema_are_refused_before_anything_runs() -> None:
    made = World(tool("look", parameters=ONE_NUMBER))
    refused(made.plan(step("a", arguments={"n": "x"})), "plan[0] (a): arguments: n:")
    accepted(made.plan(step("a", arguments={"n": {"$": "1"}})))


def test_all_of_a_steps_arguments_may_be_one_expression() -> None:
    made = World(tool("look", parameters=ONE_NUMBER), tool("put", "idempotent"))
    given = step("a", arguments={"$": "input.order"})
    accepted(made.plan(given, step("b", "put", arguments={"$": "steps.a.result"}), input={"order": {"n": 2**70}}))  # fmt: skip
    assert made.command().arguments == {"n": 2**70}
    made.answer(made.command(), result={"m": 1})
    assert made.command("put").arguments == {"m": 1}


@pytest.mark.parametrize("value", ["text", ["a"], 5, None, True])
def test_arguments_that_come_to_no_object_end_the_run_with_the_reason(value: object) -> None:
    made = World(tool("look", fallback="put"), PUT)
    accepted(made.plan(step("a", arguments={"$": "input.x"}), input={"x": value}))
    assert not made.sent
    (error,) = made.outcome().errors
    assert (error["kind"], error["code"]) == ("invalid_arguments", "PLAN_EXPRESSION")
    assert "step a: arguments must come to an object, not to a " in error["message"]


@pytest.mark.parametrize("value", ["text", ["a"]])
def test_an_undoing_whose_arguments_come_to_no_object_goes_to_a_person(value: object) -> None:
    made = World(PUT, LOOK, tool("undo", "idempotent"))
    undo = PlanAction("undo", {"$": "steps.a.result"})
    made.plan(step("a", "put", compensate=undo), step("b"))
    made.answer(made.command(), result=value)
    made.control("cancel", compensate=True)
    made.answer(made.command("look", "cancel"), "cancelled")
    assert made.status == "compensating"
    assert "must come to an object" in made.approval().title


def test_a_task_without_model_needs_a_plan() -> None:
    made = world()
    made.agents["demo"].model = None
    refused(made.start(), "has no model")
    accepted(made.plan(step("a")))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (step("b", arguments={"n": {"$": "steps.a.result.total"}}), "total"),
        (step("b", when="steps.a.result.total > 1"), "total"),
        (step("b", when="'yes'"), "neither true nor false"),
        (step("b", arguments={"n": {"$": "1 / 0"}}), "division by zero"),
        (step("b", arguments={"n": {"$": "0.0 / 0.0"}}), "not JSON"),
        (step("b", arguments={"n": {"$": "timestamp('2024-01-01T00:00:00Z')"}}), "not JSON"),
        (step("b", arguments={"n": {"$": "[b'x']"}}), "not JSON"),
        (step("b", arguments={"n": {"$": "{1: 2}"}}), "not JSON"),
    ],
)
def test_an_expression_without_a_value_ends_the_run_failed_with_the_reason(
    second: PlanStep, words: str
) -> None:
    made = world()
    made.plan(step("a"), second)
    made.answer(made.command(), result={})
    outcome = made.outcome()
    assert outcome.status == "failed"
    assert words in outcome.errors[0]["message"]
    assert outcome.errors[0]["message"].startswith("step b: ")
    assert "step b can't be worked out" in outcome.text
    assert made.listed()["completed"] == ["look"]


def test_a_business_error_in_a_plan_fails_the_run_once_the_others_answered() -> None:
    made = world()
    made.plan(step("a"), step("b", "put", depends_on=[]), step("c"))
    made.fails(made.command("look"), "business", "NO_ORDER")
    assert made.status == "running"
    assert made.header.ending.to == "failed"
    made.answer(made.command("put", "call"), result=1)
    outcome = made.outcome()
    assert outcome.status == "failed"
    assert made.listed() == {"completed": ["put"], "not_completed": ["look"], "in_doubt": []}
    assert "step a (look) failed: it went wrong" in outcome.text
    assert "c" in outcome.text


@pytest.mark.parametrize("kind", ["invalid_arguments", "unavailable"])
def test_a_handover_in_a_plan_takes_an_answer_as_the_result(kind: str) -> None:
    made = world()
    made.plan(step("a"), step("b", arguments={"n": {"$": "steps.a.result"}}))
    made.fails(made.command(), kind)
    assert (made.status, made.approval().kind) == ("waiting_approval", "handover")
    made.decide("answer", answer=7)
    assert made.command().arguments == {"n": 7}
    made.answer(made.command())
    assert made.outcome().result == {"a": 7, "b": None}


def test_a_handover_in_a_plan_may_be_retried() -> None:
    made = world()
    made.plan(step("a"))
    made.fails(made.command(), "invalid_arguments")
    made.decide("retry")
    assert made.command().attempt == 2
    made.answer(made.command(), result=1)
    assert made.outcome().complete


def test_a_queue_that_cannot_be_reached_is_a_handover_and_nothing_is_sent() -> None:
    made = world()
    made.queue_problems["tools"] = "topic agent.commands.tools is missing"
    made.plan(step("a", "put"))
    assert not made.commands
    assert "is missing" in made.approval().title
    made.queue_problems.clear()
    made.decide("retry")
    assert made.command().attempt == 1


def test_results_of_earlier_steps_may_hold_large_exact_integers() -> None:
    made = world()
    made.plan(step("a"), step("b", arguments={"n": {"$": "steps.a.result"}}))
    made.answer(made.command(), result={"id": 2512292042121000001, "big": 10**40})
    assert made.command().arguments == {"n": {"id": 2512292042121000001, "big": 10**40}}
