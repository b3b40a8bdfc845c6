"""Every cell of the table of effects (contract section 6): what an unknown outcome leads to."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import RetryPolicy

from .harness import PlanStep, World, accepted, refused, tool

SETTLE = 20.0


def calling(effect: str, has_query: bool = False, **values: Any) -> World:
    values = {"timeout_seconds": 10, "settle_seconds": SETTLE, **values}
    made = World(tool("call", effect, has_query=has_query, **values))
    accepted(made.plan(PlanStep(id="a", tool="call", arguments={"n": 1})))
    return made


def unknown(effect: str, has_query: bool = False, **values: Any) -> World:
    """The worker does not know whether the call happened."""
    made = calling(effect, has_query, **values)
    error = {"kind": "unknown", "code": "read_timeout", "message": "no answer"}
    accepted(made.answer(made.command(), "unknown", error=error))
    return made


def verbs(made: World) -> list[str]:
    return [f"{command.verb} {command.attempt}" for command in made.sent]


def proves_absence(made: World) -> None:
    """The query says so, and again once everything has landed."""
    made.answer(made.command(verb="query"), "absent")
    made.timer("act/1")
    made.answer(made.command(verb="query"), "absent")


def in_doubt(made: World) -> bool:
    return made.action(1).status == "in_doubt" and made.approval().kind == "in_doubt"


def finish(made: World) -> dict[str, list[str]]:
    made.answer(made.command(verb="call"), result=1)
    assert made.status == "done"
    return made.listed()


# --- called again ----------------------------------------------------------------------------


@pytest.mark.parametrize("has_query", [False, True])
def test_read_only_is_called_again(has_query: bool) -> None:
    made = unknown("read_only", has_query)
    made.timer("act/1")
    assert verbs(made) == ["call 1", "call 2"]
    assert finish(made)["completed"] == ["call"]


def test_idempotent_without_a_query_is_called_again_with_the_same_key() -> None:
    made = unknown("idempotent")
    made.timer("act/1")
    assert verbs(made) == ["call 1", "call 2"]
    assert len({command.idempotency_key for command in made.sent}) == 1
    assert len({command.request_id for command in made.sent}) == 1


def test_idempotent_without_a_query_is_a_handover_after_three_tries() -> None:
    made = unknown("idempotent")
    for _ in range(2):
        made.timer("act/1")
        made.answer(made.command(), "unknown")
    assert made.approval().kind == "handover"
    assert made.action(1).error["code"] == "API_UNAVAILABLE"
    made.decide("cancel_run")
    assert made.listed()["in_doubt"] == ["call"]


def test_a_silent_worker_is_an_unknown_outcome() -> None:
    made = calling("idempotent")
    made.timer("act/1")
    made.timer("act/1")
    assert verbs(made) == ["call 1", "call 2"]


# --- queried ---------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("effect", ["idempotent", "external"])


@BOTH
def test_a_tool_with_a_query_is_queried_never_called(effect: str) -> None:
    made = unknown(effect, True)
    assert verbs(made) == ["call 1", "query 1"]
    assert made.action(1).status == "querying"
    assert made.command("call", "query").arguments == {"n": 1}


@BOTH
def test_found_is_adopted(effect: str) -> None:
    made = unknown(effect, True)
    accepted(made.answer(made.command(verb="query"), result={"id": 9}, adopted=True))
    assert made.outcome().result == {"a": {"id": 9}}
    assert made.outcome().complete
    assert "action_adopted" in made.types()
    assert verbs(made) == ["call 1", "query 1"]


def test_idempotent_and_absent_is_called_again_at_once() -> None:
    made = unknown("idempotent", True)
    made.answer(made.command(verb="query"), "absent")
    assert verbs(made) == ["call 1", "query 1", "call 2"]
    assert finish(made)["completed"] == ["call"]


def test_external_and_absent_before_it_settled_is_asked_again_then() -> None:
    made = unknown("external", True)
    began = made.now
    made.answer(made.command(verb="query"), "absent")
    assert made.header.timers["act/1"] == began + SETTLE * 1000
    made.timer("act/1")
    assert verbs(made) == ["call 1", "query 1", "query 1"]


def test_external_and_absent_after_it_settled_is_called_again() -> None:
    made = unknown("external", True)
    proves_absence(made)
    assert verbs(made) == ["call 1", "query 1", "query 1", "call 2"]
    assert finish(made)["completed"] == ["call"]


def test_the_settle_time_is_the_tools_timeout_where_it_names_none() -> None:
    made = unknown("external", True, settle_seconds=None)
    made.answer(made.command(verb="query"), "absent", seconds=9.9)
    assert made.action(1).status == "unknown"
    made.timer("act/1")
    made.answer(made.command(verb="query"), "absent")
    assert verbs(made)[-1] == "call 2"


def test_an_answer_that_lay_on_its_topic_proves_what_was_so_when_it_was_asked() -> None:
    """A simulated seed (2076): the engine was away, and the request landed after the query."""
    made = unknown("external", True)
    made.answer(made.command(verb="query"), "absent", seconds=10 * SETTLE)
    assert "call 2" not in verbs(made)
    made.timer("act/1")
    made.answer(made.command(verb="query"), "succeeded", result=1, adopted=True)
    assert made.listed()["completed"] == ["call"]


def test_after_a_proof_of_absence_a_failed_second_call_is_not_in_doubt() -> None:
    made = unknown("external", True)
    proves_absence(made)
    made.fails(made.command(verb="call"), "business")
    assert made.listed()["not_completed"] == ["call"]


def test_idempotent_proven_absent_and_then_refused_is_not_in_doubt() -> None:
    made = unknown("idempotent", True, settle_seconds=0)
    made.answer(made.command(verb="query"), "absent")
    made.fails(made.command(verb="call"), "business")
    assert made.listed()["not_completed"] == ["call"]


@pytest.mark.parametrize("word", ["unknown", "nobody answers"])
def test_idempotent_and_unclear_is_called_again_with_the_same_key(word: str) -> None:
    made = unknown("idempotent", True)
    if word == "unknown":
        made.answer(made.command(verb="query"), "unknown")
    else:
        made.timer("act/1")
    assert made.action(1).status == "backing_off"
    made.timer("act/1")
    assert verbs(made) == ["call 1", "query 1", "call 2"]
    assert len({command.idempotency_key for command in made.sent}) == 1


def test_a_long_time_to_settle_is_asked_through_to_its_end() -> None:
    made = unknown("external", True, settle_seconds=3600)
    while not in_doubt(made):
        if made.action(1).status == "querying":
            made.answer(made.command(verb="query"), "unknown")
        else:
            made.timer("act/1")
    assert made.now - made.events[0].at >= 3_600_000
    assert verbs(made).count("query 1") > 50


def doubtful() -> World:
    made = unknown("external", True)
    while not in_doubt(made):
        made.timer("act/1")
    return made


def test_absent_after_it_settled_closes_the_doubt_and_calls() -> None:
    made = doubtful()
    late = made.command(verb="query")
    accepted(made.answer(late, "absent"))
    assert verbs(made)[-1] == "call 2"
    assert not made.header.asks
    assert finish(made)["completed"] == ["call"]


def test_absent_of_before_it_settled_closes_no_doubt() -> None:
    made = unknown("external", False)
    assert in_doubt(made)
    refused(made.answer(made.sent[0], "absent"), "in_doubt")
    assert made.header.asks


def test_external_and_unclear_until_it_settled_is_in_doubt() -> None:
    made = unknown("external", True)
    gaps, last = [], made.now
    while not in_doubt(made):
        if made.action(1).status == "querying":
            gaps.append(made.now - last)
            last = made.now
            made.answer(made.command(verb="query"), "unknown")
        else:
            made.timer("act/1")
    assert "call 2" not in verbs(made)
    assert gaps[2] > gaps[1] > 0, "asked again with backoff"
    assert made.now - made.events[0].at >= SETTLE * 1000


def test_a_query_that_is_never_answered_is_asked_again_then_in_doubt() -> None:
    made = unknown("external", True)
    for _ in range(40):
        if in_doubt(made):
            break
        made.timer("act/1")
    assert in_doubt(made)
    assert 2 <= verbs(made).count("query 1") <= 9
    assert "call 2" not in verbs(made)


@BOTH
def test_running_is_waited_for(effect: str) -> None:
    made = unknown(effect, True)
    made.answer(made.command(verb="query"), "running")
    assert made.action(1).status == "unknown"
    made.timer("act/1")
    made.answer(made.command(verb="query"), "running")
    assert set(verbs(made)) == {"call 1", "query 1"}
    made.answer(made.sent[0], result=1)
    assert made.status == "done"


def test_running_is_waited_for_no_longer_than_it_may_run() -> None:
    made = unknown("external", True)
    last = made.sent[0].expires_at + SETTLE * 1000
    for _ in range(200):
        if in_doubt(made):
            break
        if made.action(1).status == "querying":
            made.answer(made.command(verb="query"), "running")
        else:
            made.timer("act/1")
    assert in_doubt(made)
    assert last <= made.now <= last + 60_000
    assert "call 2" not in verbs(made)


@BOTH
def test_the_call_itself_may_answer_while_it_is_queried(effect: str) -> None:
    made = unknown(effect, True)
    accepted(made.answer(made.sent[0], result=5))
    assert made.outcome().result == {"a": 5}
    refused(made.answer(made.command(verb="query"), "absent"), "succeeded")


@BOTH
def test_a_failure_of_the_queried_attempt_settles_it(effect: str) -> None:
    made = unknown(effect, True)
    accepted(made.fails(made.sent[0], "business", "NO_MONEY"))
    assert made.listed()["not_completed"] == ["call"]


# --- in doubt --------------------------------------------------------------------------------


def test_external_without_a_query_is_in_doubt() -> None:
    made = unknown("external")
    assert in_doubt(made)
    assert (made.status, verbs(made)) == ("waiting_approval", ["call 1"])
    assert made.approval().arguments == {"n": 1}


def test_an_external_call_that_nobody_answers_is_in_doubt() -> None:
    made = calling("external")
    made.timer("act/1")
    assert in_doubt(made)


def test_mark_done_takes_the_answer_as_the_result() -> None:
    made = unknown("external")
    accepted(made.decide("mark_done", reason="I saw it", answer={"id": 4}))
    assert made.outcome().result == {"a": {"id": 4}}
    assert made.outcome().complete
    assert verbs(made) == ["call 1"]


def test_mark_not_done_calls_again() -> None:
    made = unknown("external")
    accepted(made.decide("mark_not_done", reason="nothing there"))
    assert verbs(made) == ["call 1", "call 2"]
    assert finish(made)["completed"] == ["call"]


def test_a_call_marked_not_done_and_then_refused_is_not_in_doubt() -> None:
    made = unknown("external")
    made.decide("mark_not_done", reason="nothing there")
    made.fails(made.command(verb="call"), "business")
    assert made.listed()["not_completed"] == ["call"]


def test_cancel_run_leaves_it_in_doubt_in_the_outcome() -> None:
    made = unknown("external")
    accepted(made.decide("cancel_run"))
    assert (made.status, made.listed()["in_doubt"]) == ("cancelled", ["call"])
    assert "Unknown whether done: call (1)" in made.outcome().text


@pytest.mark.parametrize("word", ["mark_done", "mark_not_done"])
def test_a_mark_needs_a_reason(word: str) -> None:
    made = unknown("external")
    refused(made.decide(word), "needs a reason")
    assert in_doubt(made)


def test_a_late_success_settles_what_was_in_doubt_and_closes_the_question() -> None:
    made = unknown("external")
    accepted(made.answer(made.sent[0], result=3))
    assert made.outcome().complete
    assert made.approval().closed_by == "result"
    refused(made.decide("mark_not_done", reason="r"), "already closed")


def test_a_late_refusal_settles_what_was_in_doubt() -> None:
    made = unknown("external")
    accepted(made.fails(made.sent[0], "business"))
    assert made.listed() == {"completed": [], "not_completed": ["call"], "in_doubt": []}


def test_another_unknown_does_not_settle_what_is_in_doubt() -> None:
    made = unknown("external")
    refused(made.answer(made.sent[0], "unknown"))
    refused(made.fails(made.sent[0], "unknown"), "in_doubt")
    assert in_doubt(made)


@pytest.mark.parametrize("status", ["started", "progress", "running", "cancelled"])
def test_in_doubt_answers_that_prove_nothing_leave_the_question_open(status: str) -> None:
    made = unknown("external")
    made.answer(made.sent[0], status)
    assert status == "cancelled" or in_doubt(made)


# --- a key that is too old -------------------------------------------------------------------


def test_an_old_key_protects_nothing_so_a_call_without_a_query_is_in_doubt() -> None:
    made = calling("idempotent", key_valid_seconds=5)
    made.now += 6_000
    made.answer(made.command(), "unknown")
    assert in_doubt(made)


def test_an_old_key_makes_a_dropped_connection_in_doubt() -> None:
    made = calling("idempotent", key_valid_seconds=5)
    made.now += 6_000
    made.fails(made.command(), "transient", "connection_lost")
    assert in_doubt(made)


def test_an_old_key_does_not_matter_where_nothing_happened() -> None:
    made = calling("idempotent", key_valid_seconds=5)
    made.now += 6_000
    made.fails(made.command(), "transient", "connect_refused")
    made.timer("act/1")
    assert verbs(made) == ["call 1", "call 2"]


def test_a_key_that_runs_out_during_the_backoff_is_not_used_again() -> None:
    made = calling("idempotent", key_valid_seconds=60)
    made.fails(made.command(), "transient", "connection_lost")
    made.now += 3_600_000
    made.timer("act/1")
    assert in_doubt(made)
    assert verbs(made) == ["call 1"]


def test_an_old_key_with_a_query_waits_for_the_settle_time() -> None:
    made = calling("idempotent", True, key_valid_seconds=5)
    made.now += 6_000
    made.answer(made.command(), "unknown")
    made.answer(made.command(verb="query"), "absent")
    assert verbs(made) == ["call 1", "query 1"]
    made.timer("act/1")
    made.answer(made.command(verb="query"), "absent")
    assert verbs(made)[-1] == "call 2"


def test_an_old_key_whose_query_stays_unclear_is_in_doubt() -> None:
    made = calling("idempotent", True, key_valid_seconds=5)
    made.now += 6_000
    made.answer(made.command(), "unknown")
    made.answer(made.command(verb="query"), "unknown", seconds=SETTLE)
    made.timer("act/1")
    made.answer(made.command(verb="query"), "unknown")
    assert in_doubt(made)


def test_a_call_that_never_arrives_is_handed_over_after_its_tries() -> None:
    made = unknown("idempotent", True)
    for _ in range(2):
        made.answer(made.command(verb="query"), "absent")
        error = {"kind": "unknown", "code": "read_timeout", "message": "no answer"}
        accepted(made.answer(made.command(verb="call"), "unknown", error=error))
    made.answer(made.command(verb="query"), "absent")
    assert verbs(made) == ["call 1", "query 1", "call 2", "query 2", "call 3", "query 3"]
    assert made.approval().kind == "handover"
    assert "never happened" in made.action(1).error["message"]


# --- what is no proof ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost",
    [
        {"error": {"kind": "unknown", "code": "worker_lost"}},
        {"error": {"kind": "unknown", "code": "read_timeout"}, "started_at": 1},
    ],
)
def test_the_calls_own_unknown_is_not_the_answer_of_its_query(lost: dict[str, Any]) -> None:
    made = unknown("external", True)
    made.now += 60_000
    refused(made.answer(made.sent[0], "unknown", **lost), "querying")
    assert not made.header.asks
    proves_absence(made)
    assert verbs(made)[-1] == "call 2"


def test_absent_before_it_settled_proves_nothing_of_an_idempotent_call() -> None:
    """Its request may land yet: to call again is fine, to say that it was not done is not."""
    made = unknown("idempotent", True, retry=RetryPolicy(attempts=1))
    made.answer(made.command(verb="query"), "absent")
    made.decide("cancel_run")
    assert made.listed()["in_doubt"] == ["call"]


def test_absent_after_it_settled_is_proof_of_an_idempotent_call() -> None:
    made = unknown("idempotent", True, retry=RetryPolicy(attempts=1), settle_seconds=0)
    made.answer(made.command(verb="query"), "absent")
    made.decide("cancel_run")
    assert made.listed()["not_completed"] == ["call"]


@pytest.mark.parametrize("settle", [SETTLE, 0])
def test_absent_while_ending_is_proof_once_it_settled(settle: float) -> None:
    made = unknown("idempotent", True, settle_seconds=settle)
    made.control("cancel")
    made.answer(made.command(verb="query"), "absent")
    if settle:  # the request may be on its way: it is asked about once more
        assert made.status == "running"
        made.timer("act/1")
        made.answer(made.command(verb="query"), "absent")
    assert made.listed()["not_completed"] == ["call"]


TIMED_OUT = {"kind": "transient", "code": "read_timeout", "message": "no answer"}


def test_an_idempotent_call_that_timed_out_while_ending_is_asked_about_if_it_can_be() -> None:
    """It is not called again; without an answer nobody could tell whether there is one to undo."""
    made = calling("idempotent", True)
    made.control("cancel")
    made.answer(made.command(verb="call"), "failed", error=TIMED_OUT)
    assert verbs(made)[-1] == "query 1"
    made.answer(made.command(verb="query"), "succeeded", result=1, adopted=True)
    assert made.listed()["completed"] == ["call"]


def test_an_idempotent_call_that_timed_out_while_ending_is_else_in_doubt() -> None:
    made = calling("idempotent")
    made.control("cancel")
    made.answer(made.command(verb="call"), "failed", error=TIMED_OUT)
    assert made.listed()["in_doubt"] == ["call"]
