"""Transient errors: when a call is made again, and what happens when that does not help."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import RetryPolicy
from perdure.streams.core.policies.retry import wait_seconds

from .harness import PlanStep, World, accepted, refused, tool


def planned(effect: str = "read_only", **values: Any) -> World:
    made = World(tool("call", effect, **values))
    accepted(made.plan(PlanStep(id="a", tool="call")))
    return made


def wait(made: World) -> float:
    return float(made.header.timers["act/1"] - made.now) / 1000


def test_a_transient_error_is_tried_again_after_a_durable_backoff() -> None:
    made = planned()
    made.fails(made.command(), "transient", "http_503")
    assert (made.action(1).status, made.status) == ("backing_off", "running")
    assert 0.8 <= wait(made) <= 1.2
    made.timer("act/1")
    again = made.command()
    assert (again.attempt, again.idempotency_key) == (2, made.sent[0].idempotency_key)


def test_the_wait_doubles_up_to_the_longest() -> None:
    made = planned(retry=RetryPolicy(attempts=7))
    for bare in (1, 2, 4, 8, 10, 10):
        made.fails(made.command(), "transient", "http_503")
        assert 0.8 * bare <= wait(made) <= 1.2 * bare
        made.timer("act/1")


def test_the_wait_is_spread_by_the_actions_id_and_the_same_every_time() -> None:
    waits = []
    for run_id in ("r1", "r1", "r2", "r3"):
        made = World(tool("call"))
        made.plan(PlanStep(id="a", tool="call"), run_id=run_id)
        made.fails(made.command(), "transient", "http_503")
        waits.append(wait(made))
    assert waits[0] == waits[1]
    assert len(set(waits)) == 3


def test_the_spread_reaches_from_four_to_six_fifths() -> None:
    waits = [wait_seconds(RetryPolicy(), f"r{n}/1", 1, {}) for n in range(300)]
    assert 0.8 <= min(waits) < 0.82
    assert 1.18 < max(waits) <= 1.2


@pytest.mark.parametrize(("asked", "least", "most"), [(60, 60, 60), (0.1, 0.8, 1.2), (9000, 300, 300)])  # fmt: skip
def test_retry_after_is_never_shortened_and_capped(asked: float, least: float, most: float) -> None:
    made = planned()
    made.fails(made.command(), "transient", "http_429", retry_after_seconds=asked)
    assert least <= wait(made) <= most


def test_a_timer_before_its_time_is_refused() -> None:
    from perdure.streams.core.decide.inputs import Timer

    made = planned()
    made.fails(made.command(), "transient", "http_503")
    refused(made.feed(Timer("act/1")), "not due")


def exhausted(effect: str = "read_only", code: str = "http_503") -> World:
    made = planned(effect)
    for attempt in (1, 2, 3):
        assert made.command().attempt == attempt
        made.fails(made.command(), "transient", code)
        if attempt < 3:
            made.timer("act/1")
    return made


def test_after_three_tries_it_is_a_handover_named_api_unavailable() -> None:
    made = exhausted()
    assert (made.status, made.approval().kind) == ("waiting_approval", "handover")
    assert made.action(1).error["code"] == "API_UNAVAILABLE"
    assert made.action(1).error["kind"] == "unavailable"
    assert "http_503" in made.action(1).error["message"]
    assert made.header.api["call"]["consecutive"] == 3


def test_a_retried_handover_keeps_the_key_and_tries_once_more() -> None:
    made = exhausted()
    made.decide("retry")
    assert made.command().attempt == 4
    assert made.command().idempotency_key == made.sent[0].idempotency_key
    made.fails(made.command(), "transient", "http_503")
    assert made.approval().kind == "handover"
    made.decide("retry")
    made.answer(made.command(), result=1)
    assert made.outcome().complete


def test_an_answered_handover_in_a_model_run_is_a_message() -> None:
    made = World(tool("call"))
    made.start()
    made.reply(None, ("call", {}))
    made.fails(made.command("call"), "unavailable", "NO_SUCH_TOOL")
    assert made.status == "waiting_approval"
    made.decide("answer", answer="It is closed today.")
    messages = made.command("m").request["messages"]
    assert [message["role"] for message in messages[-2:]] == ["tool", "user"]
    assert "unavailable" in messages[-2]["content"]
    assert messages[-1]["content"] == "It is closed today."


def test_a_handover_may_cancel_the_run() -> None:
    made = exhausted()
    made.decide("cancel_run")
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["call"]


@pytest.mark.parametrize("code", ["connect_refused", "dns_failed", "rate_limited", "http_503"])
def test_an_external_call_that_provably_never_happened_is_not_in_doubt(code: str) -> None:
    made = exhausted("external", code)
    made.decide("cancel_run")
    assert made.listed() == {"completed": [], "not_completed": ["call"], "in_doubt": []}


def test_an_idempotent_call_cut_off_on_its_last_try_is_in_doubt() -> None:
    made = exhausted("idempotent", "connection_lost")
    made.decide("cancel_run")
    assert made.listed()["in_doubt"] == ["call"]


def test_an_idempotent_call_that_was_always_refused_is_not_in_doubt() -> None:
    made = exhausted("idempotent", "connect_refused")
    made.decide("cancel_run")
    assert made.listed()["not_completed"] == ["call"]


def test_a_command_that_expired_in_its_queue_is_tried_again() -> None:
    made = planned("external")
    made.fails(made.command(), "transient", "EXPIRED")
    made.timer("act/1")
    assert made.command().attempt == 2


def test_success_of_an_earlier_attempt_counts_while_it_backs_off() -> None:
    made = planned("idempotent")
    first = made.command()
    made.fails(first, "transient", "connection_lost")
    made.answer(first, result=1)
    assert made.outcome().complete


def test_failure_of_an_earlier_attempt_is_refused() -> None:
    made = planned("idempotent")
    first = made.command()
    made.fails(first, "transient", "connection_lost")
    made.timer("act/1")
    refused(made.fails(first, "business"), "requested")
    assert made.action(1).status == "requested"


def test_usage_of_every_result_counts() -> None:
    made = World(tool("call"))
    made.start()
    usage = {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}
    from perdure.schemas.records import Usage

    for _ in range(2):
        error = {"kind": "transient", "code": "http_500"}
        made.answer(made.command("m"), "failed", error=error, usage=Usage(**usage))
        made.timer("act/1")
    made.reply("done")
    assert made.outcome().usage == {"steps": 1, "input_tokens": 16, "output_tokens": 13, "cost": 1}


def test_a_call_that_nobody_answers_is_looked_into_after_it_expired() -> None:
    made = planned(timeout_seconds=10)
    command = made.command()
    assert command.expires_at - command.issued_at == 100_000
    made.timer("act/1")
    assert made.now > command.expires_at
    assert made.action(1).status == "backing_off"


def test_a_call_that_began_is_overdue_after_its_own_timeout() -> None:
    made = planned(timeout_seconds=10)
    made.answer(made.command(), "started")
    assert 10 < wait(made) < 20


def test_progress_moves_the_timer_and_is_handed_to_the_next_attempt() -> None:
    made = planned(timeout_seconds=10)
    made.answer(made.command(), "started")
    made.answer(made.command(), "progress", progress={"page": 3}, seconds=9)
    assert wait(made) > 10
    made.fails(made.command(), "transient", "http_503")
    made.timer("act/1")
    assert made.command().progress == {"page": 3}


def test_a_worker_that_gave_a_call_up_lets_it_be_called_again() -> None:
    made = planned("external")
    made.answer(made.command(), "cancelled")
    made.timer("act/1")
    assert made.command().attempt == 2
    made.fails(made.command(), "business")
    assert made.listed()["not_completed"] == ["call"]


def test_a_failure_without_a_reason_is_internal() -> None:
    made = planned()
    made.answer(made.command(), "failed")
    assert made.outcome().errors[0]["kind"] == "internal"
