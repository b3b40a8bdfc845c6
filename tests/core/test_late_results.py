"""Late, double and foreign results: refused and counted, with the state as it was."""

from __future__ import annotations

import pytest
from perdure.schemas.records import ActionCommand, ActionResult, Usage

from .harness import PlanStep, World, accepted, refused, tool

STATUSES = ["started", "progress", "succeeded", "failed", "unknown", "absent", "running", "cancelled"]  # fmt: skip


def world() -> World:
    made = World(
        tool("look"), tool("put", "idempotent"), tool("pay", "external", approval="always")
    )
    accepted(made.plan(PlanStep(id="a", tool="put"), PlanStep(id="b", tool="look")))
    return made


def result(action_id: str, status: str = "succeeded", attempt: int = 1) -> ActionResult:
    return ActionResult("r1", action_id, attempt, status, worker="w9")


@pytest.mark.parametrize("action_id", ["r2/1", "r1/2", "r1/999999999", "r1x/1"])
def test_a_foreign_result_is_refused(action_id: str) -> None:
    refused(world().feed(result(action_id)), action_id)


@pytest.mark.parametrize("status", STATUSES)
def test_an_attempt_that_was_never_requested_is_refused(status: str) -> None:
    refused(world().feed(result("r1/1", status, attempt=2)), "never requested")


@pytest.mark.parametrize("status", STATUSES)
def test_a_result_for_an_action_that_waits_for_a_person_is_refused(status: str) -> None:
    made = World(tool("pay", "external", approval="always"))
    made.plan(PlanStep(id="a", tool="pay"))
    refused(made.feed(result("r1/1", status)), "never requested")


@pytest.mark.parametrize("status", STATUSES)
def test_a_second_answer_after_the_result_is_refused(status: str) -> None:
    made = world()
    made.answer(made.command(), result=1)
    refused(made.feed(result("r1/1", status)), "action 1 is succeeded")


@pytest.mark.parametrize("status", ["failed", "unknown", "absent", "running", "cancelled", "started", "progress"])  # fmt: skip
def test_what_is_not_a_success_of_an_earlier_attempt_is_refused(status: str) -> None:
    made = world()
    made.fails(made.command(), "transient", "http_503")
    made.timer("act/1")
    refused(made.feed(result("r1/1", status, attempt=1)))


def test_a_success_of_any_attempt_counts() -> None:
    made = world()
    made.fails(made.command(), "transient", "http_503")
    made.timer("act/1")
    accepted(made.feed(result("r1/1", "succeeded", attempt=1)))
    assert made.action(1).status == "succeeded"
    refused(made.feed(result("r1/1", "succeeded", attempt=2)), "succeeded")


@pytest.mark.parametrize("status", ["absent", "running"])
def test_an_answer_to_a_query_that_was_not_asked_is_refused(status: str) -> None:
    refused(world().feed(result("r1/1", status)), "requested")


def test_a_second_started_is_refused() -> None:
    made = world()
    accepted(made.feed(result("r1/1", "started")))
    refused(made.feed(result("r1/1", "started")), "started")


def test_a_failure_after_the_handover_is_refused() -> None:
    made = world()
    command = made.command()
    made.fails(command, "unavailable")
    refused(made.fails(command, "business"), "failed")
    assert made.approval().open


def test_a_success_after_the_handover_settles_it() -> None:
    made = world()
    command = made.command()
    made.fails(command, "unavailable")
    accepted(made.answer(command, result=1))
    assert made.approval().closed_by == "result"
    assert made.step("a") == "done"


def test_a_success_after_a_failure_the_model_was_told_of_is_an_effect_found() -> None:
    made = World(tool("put", "idempotent"))
    made.start()
    made.reply(None, ("put", {}))
    command = made.command("put")
    made.fails(command, "transient", "connection_lost")
    made.timer("act/2")
    made.fails(made.command("put"), "business", "TWICE")
    accepted(made.answer(command, attempt=1, result=7))
    assert made.types()[-1] == "effect_found"
    made.reply("bye")
    assert made.listed()["completed"] == ["put"]


def test_a_rejected_action_stays_rejected() -> None:
    made = World(tool("pay", "external", approval="always"), tool("look"))
    made.start()
    made.reply(None, ("pay", {}))
    made.decide("reject", reason="no")
    refused(made.feed(result("r1/2")), "never requested")


def test_a_late_unknown_of_a_second_delivery_makes_a_refused_idempotent_call_doubtful() -> None:
    made = World(tool("put", "idempotent"))
    made.plan(PlanStep(id="a", tool="put"))
    command = made.command()
    made.fails(command, "business", "no")
    assert made.listed()["not_completed"] == ["put"]
    lost = {"kind": "unknown", "code": "read_timeout"}
    accepted(made.answer(command, "unknown", error=lost))
    assert made.status == "failed"
    assert made.listed()["in_doubt"] == ["put"]
    refused(made.answer(command, "unknown", error=lost), "failed")


def test_a_late_unknown_of_an_external_call_that_was_refused_changes_nothing() -> None:
    """Its ledger lets no second delivery begin."""
    made = World(tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"))
    command = made.command()
    made.fails(command, "business", "no")
    refused(made.answer(command, "unknown", error={"kind": "unknown", "code": "lost"}), "failed")


def twice_asked() -> tuple[World, ActionCommand, ActionCommand]:
    """A model that was slow: its call was made a second time, and neither is answered."""
    made = World(tool("look"))
    made.start()
    first = made.command("m")
    made.timer()
    made.timer()  # the wait before the second attempt
    second = made.command("m") if made.command("m") is not first else made.commands[-1]
    assert (first.attempt, second.attempt) == (1, 2)
    return made, first, second


REPLY = {
    "content": None,
    "tool_calls": [{"name": "look", "arguments": {}}],
    "finish_reason": "tool_calls",
}


@pytest.mark.parametrize("late", [1, 2])
def test_what_an_answer_has_cost_counts_although_it_came_too_late(late: int) -> None:
    made, first, second = twice_asked()
    used = {1: Usage(10, 5, 0.5), 2: Usage(1000, 7, 7.5)}
    early, after = (second, first) if late == 1 else (first, second)
    accepted(made.answer(early, result=REPLY, usage=used[3 - late]))
    accepted(made.answer(after, result=REPLY, usage=used[late]))
    assert made.types()[-1] == "action_progressed"
    spent = (made.header.input_tokens, made.header.output_tokens, made.header.cost)
    assert spent == (1010, 12, 8.0)
    for command in (first, second):  # each once more
        refused(made.answer(command, result=REPLY, usage=used[command.attempt]), "is succeeded")
    assert made.header.input_tokens == 1010
    assert [a.target for a in made.run.open_actions()] == ["look"]


def test_of_a_failed_attempt_too_and_only_while_the_run_goes_on() -> None:
    made, first, second = twice_asked()
    error = {"kind": "model_invalid", "code": "x", "message": "cut off"}
    accepted(made.answer(first, "failed", error=error, usage=Usage(10, 5, 0.5)))
    assert made.header.input_tokens == 10
    made.answer(second, result={"content": "done", "finish_reason": "stop"})
    assert made.status == "done"
    refused(made.answer(second, "failed", error=error, usage=Usage(9, 9, 9.0)), "is succeeded")
    assert made.header.input_tokens == 10
