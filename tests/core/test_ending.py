"""Ending is two-phased: recorded, then final when every requested action has its answer."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.streams.core.decide.inputs import Timer

from .harness import BEGAN, PlanStep, World, accepted, refused, tool


def world(*, ask: bool = False, effect: str = "external", has_query: bool = False) -> World:
    made = World(
        tool("pay", effect, has_query=has_query, timeout_seconds=10, settle_seconds=20),
        tool("look"),
        tool("risky", "external", approval="always"),
    )
    steps = [PlanStep(id="p", tool="pay"), PlanStep(id="l", tool="look", depends_on=[])]
    if ask:
        steps.append(PlanStep(id="r", tool="risky", depends_on=[]))
    accepted(made.plan(*steps, PlanStep(id="after", tool="look", depends_on=["p"])))
    return made


def cancelling(**values: Any) -> World:
    made = world(**values)
    accepted(made.control("cancel", reason="enough"))
    return made


def test_cancel_waits_for_what_is_in_flight_and_tells_the_workers() -> None:
    made = cancelling()
    assert (made.status, made.header.ending.to) == ("running", "cancelled")
    told = [(command.target, command.verb) for command in made.sent[2:]]
    assert told == [("pay", "cancel"), ("look", "cancel")]


def test_a_cancelled_call_never_began() -> None:
    made = cancelling()
    for target in ("pay", "look"):
        made.answer(made.command(target, "cancel"), "cancelled")
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["pay", "look"]
    assert made.listed()["in_doubt"] == []


def test_the_calls_own_results_count_while_it_ends() -> None:
    made = cancelling()
    made.answer(made.command("pay", "call"), result=1)
    made.answer(made.command("look", "call"), result=2)
    assert made.status == "cancelled"
    assert made.listed()["completed"] == ["pay", "look"]
    assert made.step("after") == "pending"
    assert not made.outcome().complete


def test_open_questions_are_closed_and_their_actions_cancelled() -> None:
    made = cancelling(ask=True)
    assert not made.header.asks
    assert made.approval(1).closed_by == "user:uma"
    assert made.action(3).status == "cancelled"
    refused(made.decide("approve", n=1), "already closed")


def test_a_backoff_is_dropped() -> None:
    made = world(effect="idempotent")
    made.fails(made.command("pay"), "transient", "connect_refused")
    made.control("cancel")
    assert made.action(1).status == "cancelled"
    made.answer(made.command("look"), result=1)
    assert (made.status, made.listed()["not_completed"]) == ("cancelled", ["pay"])


def test_a_failure_while_it_ends_is_not_tried_again() -> None:
    made = cancelling(effect="idempotent")
    made.fails(made.command("pay", "call"), "transient", "connect_refused")
    made.fails(made.command("look", "call"), "transient", "http_503")
    assert made.status == "cancelled"
    assert made.listed() == {"completed": [], "not_completed": ["pay", "look"], "in_doubt": []}


@pytest.mark.parametrize(("effect", "name"), [("external", "in_doubt"), ("idempotent", "in_doubt")])
def test_an_unknown_outcome_while_it_ends_is_in_doubt_and_asks_nobody(
    effect: str, name: str
) -> None:
    made = cancelling(effect=effect)
    made.answer(made.command("pay", "call"), "unknown")
    made.answer(made.command("look", "call"), "unknown")
    assert (made.status, made.header.next_approval) == ("cancelled", 1)
    assert made.listed() == {"completed": [], "not_completed": ["look"], name: ["pay"]}


def test_a_query_still_settles_while_it_ends() -> None:
    made = cancelling(has_query=True)
    made.answer(made.command("look", "call"))
    made.answer(made.command("pay", "call"), "unknown")
    made.answer(made.command("pay", "query"), "absent")
    made.timer()
    made.answer(made.command("pay", "query"), "absent")
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["pay"]


def test_a_query_that_finds_it_while_it_ends_completes_it() -> None:
    made = cancelling(has_query=True)
    made.answer(made.command("look", "call"))
    made.answer(made.command("pay", "call"), "unknown")
    made.answer(made.command("pay", "query"), result=1, adopted=True)
    assert made.listed()["completed"] == ["pay", "look"]


def test_a_silent_worker_is_waited_for_no_longer_than_a_call_may_last() -> None:
    made = cancelling()
    assert 10_000 <= made.header.timers["act/1"] - made.now <= 20_000
    made.answer(made.command("look", "call"))
    made.timer("act/1")
    assert (made.status, made.listed()["in_doubt"]) == ("cancelled", ["pay"])


@pytest.mark.parametrize("has_query", [False, True])
@pytest.mark.parametrize("effect", ["read_only", "idempotent", "external"])
def test_nobody_answers_and_the_run_still_ends(effect: str, has_query: bool) -> None:
    made = cancelling(effect=effect, has_query=has_query)
    for _ in range(40):
        if made.status == "cancelled":
            break
        made.timer()
    assert made.status == "cancelled"
    writes = effect != "read_only"
    assert made.listed()["in_doubt"] == (["pay"] if writes else [])
    assert made.now - BEGAN < 600_000


def test_a_models_reply_while_it_ends_leads_to_nothing_new() -> None:
    made = World(tool("look"), tool("pay", "external", approval="always"))
    made.start()
    made.control("cancel")
    made.reply(None, ("look", {}), ("pay", {}))
    assert made.status == "cancelled"
    assert [command.target for command in made.sent] == ["m", "m"]
    assert made.header.next_action == 2
    assert made.outcome().usage["input_tokens"] == 10


def test_another_request_to_end_is_refused_meanwhile() -> None:
    made = cancelling()
    refused(made.control("cancel"), "already ending (cancelled)")


def test_a_cancel_raises_a_failing_run_to_cancelled() -> None:
    made = world()
    made.fails(made.command("look"), "business")
    assert made.header.ending.to == "failed"
    accepted(made.control("cancel"))
    made.answer(made.command("pay", "call"), result=1)
    assert made.status == "cancelled"


def test_a_success_after_the_end_is_an_effect_found_and_corrects_the_outcome() -> None:
    made = cancelling()
    for target in ("pay", "look"):
        made.answer(made.command(target, "cancel"), "cancelled")
    before = made.outcome()
    accepted(made.answer(made.sent[0], result={"id": 1}))
    after = made.outcome()
    assert made.types()[-1] == "effect_found"
    assert (after.status, after.version) == ("cancelled", before.version + 1)
    assert made.listed() == {"completed": ["pay"], "not_completed": ["look"], "in_doubt": []}
    assert after.result["p"] == {"id": 1}
    refused(made.answer(made.sent[0], result={"id": 1}), "succeeded")


def test_a_success_of_what_ended_in_doubt_corrects_the_outcome() -> None:
    made = cancelling()
    made.answer(made.command("look", "call"))
    made.answer(made.command("pay", "call"), "unknown")
    assert made.listed()["in_doubt"] == ["pay"]
    accepted(made.answer(made.sent[0], result=1))
    assert made.listed() == {"completed": ["pay", "look"], "not_completed": [], "in_doubt": []}


def test_a_late_success_of_a_read_is_no_effect() -> None:
    made = cancelling()
    for target in ("pay", "look"):
        made.answer(made.command(target, "cancel"), "cancelled")
    refused(made.answer(made.sent[1], result=1), "cancelled")


@pytest.mark.parametrize("status", ["failed", "unknown", "absent", "running", "cancelled", "started", "progress"])  # fmt: skip
def test_nothing_else_changes_a_run_that_has_ended(status: str) -> None:
    made = cancelling()
    for target in ("pay", "look"):
        made.answer(made.command(target, "cancel"), "cancelled")
    refused(made.answer(made.sent[0], status), "cancelled")


@pytest.mark.parametrize("command", ["cancel", "pause", "resume", "message", "extend"])
def test_a_run_that_is_done_takes_no_requests(command: str) -> None:
    made = World(tool("look"))
    made.start()
    made.reply("bye")
    refused(made.control(command, content="x"), "the run is done")


@pytest.mark.parametrize("name", ["deadline", "act/1", "ask/1", "purge", "nonsense", "act/x"])
def test_no_timer_changes_a_run_that_has_ended(name: str) -> None:
    made = World(tool("look"))
    made.start(deadline_at=BEGAN + 10_000)
    made.reply("bye")
    made.now += 10**12
    refused(made.feed(Timer(name)))


# --- the deadline ----------------------------------------------------------------------------


def test_the_deadline_cancels_as_a_policy() -> None:
    made = World(tool("look"))
    made.plan(PlanStep(id="a", tool="look"), deadline_at=BEGAN + 5_000)
    assert made.command().expires_at == BEGAN + 5_000
    made.timer("deadline")
    assert made.header.ending.actor == "policy:deadline"
    made.answer(made.command("look", "cancel"), "cancelled")
    assert made.status == "cancelled"
    assert "the deadline has passed" in made.outcome().text


@pytest.mark.parametrize("deadline", [0, 1, BEGAN - 1, BEGAN])
def test_a_deadline_in_the_past_is_due_at_once(deadline: int) -> None:
    made = World(tool("look"))
    made.plan(PlanStep(id="a", tool="look"), deadline_at=deadline)
    assert made.command().expires_at == BEGAN + 1
    made.timer("deadline")
    assert made.now <= BEGAN + 10
    made.answer(made.command("look", "cancel"), "cancelled")
    assert made.status == "cancelled"


def test_the_deadline_ends_a_run_that_waits_for_a_person() -> None:
    made = World(tool("pay", "external", approval="always"))
    made.plan(PlanStep(id="a", tool="pay"), deadline_at=BEGAN + 5_000)
    made.timer("deadline")
    assert (made.status, made.listed()["not_completed"]) == ("cancelled", ["pay"])


def test_a_deadline_while_it_ends_does_not_end_it_again() -> None:
    made = world()
    made.control("cancel")
    made.now += 10**10
    refused(made.feed(Timer("deadline")), "not due")
