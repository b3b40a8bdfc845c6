"""``retry``: a failed run goes on at what failed; what succeeded is never called again."""

from __future__ import annotations

import pytest
from perdure.schemas.records import Budget

from .harness import BEGAN, PlanStep, World, accepted, refused, tool


def failed(*extra: PlanStep) -> World:
    """a done, b failed, c after b not reached."""
    made = World(tool("look"), tool("put", "idempotent"), tool("pay", "external"))
    made.plan(
        PlanStep(id="a", tool="put"),
        PlanStep(id="b", tool="pay"),
        PlanStep(id="c", tool="look"),
        *extra,
    )
    made.answer(made.command("put"), result={"kept": 1})
    made.fails(made.command("pay"), "business", "no_money")
    assert made.status == "failed"
    return made


def test_the_failed_step_is_called_again_and_the_rest_follows() -> None:
    made = failed()
    sent = len(made.sent)
    accepted(made.control("retry", reason="there is money now"))
    assert made.status == "running"
    (again,) = made.sent[sent:]
    assert (again.target, again.attempt, again.idempotency_key) == ("pay", 2, "r1/2/abcd1234")
    assert (made.header.steps_done, made.step("b"), made.step("c")) == (1, "running", "pending")
    made.answer(again, result={})
    made.answer(made.command("look"), result={})
    assert made.status == "done"
    assert made.outcome().complete
    assert made.listed()["completed"] == ["put", "pay", "look"]
    assert [command.target for command in made.sent] == ["put", "pay", "pay", "look"]


def test_a_second_failure_fails_the_run_again() -> None:
    made = failed()
    made.control("retry")
    made.fails(made.command("pay"), "business", "no_money")
    assert made.status == "failed"
    assert made.header.steps_done == 2
    accepted(made.control("retry"))


def test_what_a_branch_left_in_doubt_is_asked_about_not_called() -> None:
    made = World(tool("pay", "external"), tool("put", "idempotent"))
    made.plan(
        PlanStep(id="a", tool="pay", depends_on=[]), PlanStep(id="b", tool="put", depends_on=[])
    )
    made.fails(made.command("put"), "business", "no")
    made.answer(made.command("pay", "cancel"), "unknown", error={"kind": "unknown", "code": "lost"})
    assert made.status == "failed"
    assert made.listed()["in_doubt"] == ["pay"]
    sent = len(made.sent)
    made.control("retry")
    assert [command.target for command in made.sent[sent:]] == ["put"]
    assert made.approval().kind == "in_doubt"
    made.decide("mark_done", reason="it is on the statement", answer={"paid": 1})
    made.answer(made.command("put"), result={})
    assert made.outcome().complete


def test_a_run_that_has_not_failed_is_refused() -> None:
    made = World(tool("look"))
    made.plan(PlanStep(id="a", tool="look"))
    refused(made.control("retry"), "running", "only a failed one")
    made.answer(made.command(), result={})
    refused(made.control("retry"), "done")


def test_a_failure_without_a_call_is_refused() -> None:
    made = World(tool("look"))
    made.plan(PlanStep(id="a", tool="look", when="input.none"))
    assert made.status == "failed"
    refused(made.control("retry"), "no call of it failed")


def test_after_the_deadline_a_retry_is_refused() -> None:
    made = World(tool("look"), tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"), deadline_at=BEGAN + 60_000)
    made.fails(made.command(), "business")
    made.now = BEGAN + 60_001
    refused(made.control("retry"), "deadline")


def test_the_deadline_counts_again() -> None:
    made = World(tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"), deadline_at=BEGAN + 60_000)
    made.fails(made.command(), "business")
    made.control("retry")
    assert made.header.timers["deadline"] == BEGAN + 60_000


def test_a_failed_run_may_still_be_cancelled() -> None:
    made = failed()
    accepted(made.control("cancel", reason="never mind"))
    assert made.status == "cancelled"
    assert made.outcome().text.startswith("Cancelled: never mind")
    refused(made.control("cancel"), "cancelled")


@pytest.mark.parametrize("command", ["pause", "resume", "message", "extend"])
def test_other_requests_to_a_failed_run_are_refused(command: str) -> None:
    refused(failed().control(command), "failed")


def test_a_key_too_old_for_a_second_call_is_settled_by_a_person() -> None:
    made = World(tool("put", "idempotent", key_valid_seconds=60))
    made.plan(PlanStep(id="a", tool="put"))
    for _ in range(2):
        made.fails(made.command(), "transient", "read_timeout")
        made.timer("act/1")
    made.fails(made.command(), "transient", "read_timeout")
    assert made.approval().kind == "handover"
    made.now += 61_000
    sent = len(made.sent)
    made.decide("retry")
    assert made.sent[sent:] == []
    assert made.approval().kind == "in_doubt"


def test_a_retry_of_a_paused_run_is_taken_up_when_it_is_resumed() -> None:
    made = World(tool("look"), tool("pay", "external"))
    made.plan(PlanStep(id="a", tool="pay"))
    made.control("pause")
    made.fails(made.command(), "business", "no_money")
    accepted(made.control("retry"))
    made.control("resume")
    made.timer("act/1")
    made.answer(made.command("pay"), result={})
    assert made.outcome().complete


def doubtful_backoff() -> World:
    """a (idempotent) may have happened and waits for its next attempt when b fails the run."""
    made = World(tool("put", "idempotent"), tool("look"), tool("see"))
    made.plan(
        PlanStep(id="a", tool="put", depends_on=[]),
        PlanStep(id="b", tool="look", depends_on=[]),
        PlanStep(id="c", tool="see", depends_on=["a", "b"]),
    )
    made.answer(made.command("put"), "unknown", error={"kind": "unknown", "code": "lost"})
    made.fails(made.command("look"), "business", "x")
    assert made.listed()["in_doubt"] == ["put"]
    return made


def test_a_call_given_up_while_it_may_have_happened_is_made_again_with_its_key() -> None:
    made = doubtful_backoff()
    sent = len(made.sent)
    made.control("retry")
    again = {(c.target, c.action_id, c.idempotency_key) for c in made.sent[sent:]}
    assert again == {
        ("put", "r1/1", "r1/1/abcd1234"),
        ("look", "r1/2", "r1/2/abcd1234"),
    }


def test_its_late_success_is_the_steps_result() -> None:
    made = doubtful_backoff()
    first = made.sent[0]
    made.control("retry")
    made.answer(first, "succeeded", result=7)
    made.answer(made.command("look"), result=1)
    made.answer(made.command("see"), result=2)
    assert made.outcome().result == {"a": 7, "b": 1, "c": 2}


def test_a_freed_step_that_is_never_proposed_again_keeps_its_call_in_the_lists() -> None:
    """Cancelled before it was made, and by a second end before a retry had proposed it anew."""
    made = World(tool("put", "idempotent"), tool("pay", "external", approval="always"))
    steps = (PlanStep(id="a", tool="put"), PlanStep(id="b", tool="pay", depends_on=[]))
    made.plan(*steps, budget=Budget(steps=2))
    made.fails(made.command("put"), "business", "no")
    assert made.listed()["not_completed"] == ["put", "pay"]
    accepted(made.control("retry"))
    assert (made.step("b"), made.header.asks) == ("pending", [])  # its budget is used up
    made.control("cancel")
    made.answer(made.command("put"), "cancelled")
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["put", "pay"]
