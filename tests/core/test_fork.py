"""Forks: state as of a version, finished calls kept, nothing of theirs made again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from perdure.streams.core.apply import fold
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.policies.budget import seconds_used

from .golden import record
from .harness import (
    BEGAN,
    Budget,
    BudgetPolicy,
    PlanStep,
    World,
    accepted,
    agent,
    refused,
    rule,
    tool,
)

TOOLS = (
    tool("look"),
    tool("put", "idempotent"),
    tool("pay", "external", key=["order"]),
    tool("ask", "external", approval="always"),
)


def source() -> World:
    """A model run: look and pay done, then another model call under way."""
    made = World(*TOOLS)
    made.start("refund order 7", session_id="s9", tenant="acme")
    made.reply(None, ("look", {"q": 1}), ("pay", {"order": 7}))
    made.answer(made.command("look"), result={"total": 5})
    made.answer(made.command("pay"), result={"paid": 5})
    return made


def version_of(made: World, type: str, **data: Any) -> int:
    """The version of the last event of a type whose data has these values."""
    for event in reversed(made.events):
        if event.type == type and data.items() <= event.data.items():
            return event.version
    raise AssertionError(f"no {type} {data}")


def test_finished_actions_keep_results_and_keys_and_are_not_called() -> None:
    first = source()
    forked = World(*TOOLS)
    accepted(forked.fork(first))
    assert [(c.target, c.verb, c.action_id, c.attempt) for c in forked.sent] == [
        ("m", "call", "r2/4", 2)
    ]
    for n in (2, 3):
        assert forked.action(n).result == first.action(n).result
        assert forked.action(n).key == first.action(n).key
    assert forked.header.inherited == 4
    assert (forked.header.user_id, forked.header.session_id, forked.header.tenant) == (
        "uma",
        "s9",
        "acme",
    )
    assert first.command("m").request["messages"] == forked.command("m").request["messages"]
    forked.reply(None, ("pay", {"order": 7}))
    assert forked.action(5).result == {"paid": 5}, "its declared key stands for the finished call"
    forked.reply("all done")
    assert forked.outcome().complete
    assert fold(forked.events).header == forked.header


def test_the_source_goes_on_untouched() -> None:
    first = source()
    before = len(first.events)
    World(*TOOLS).fork(first)
    assert len(first.events) == before
    first.reply("done")
    assert first.status == "done"


def test_an_earlier_version_forgets_what_came_later() -> None:
    first = source()
    at = version_of(first, "action_proposed", n=2)
    forked = World(*TOOLS)
    accepted(forked.fork(first, at))
    assert [c.target for c in forked.sent] == ["look"]
    assert forked.command("look").idempotency_key == "r2/2/dcba4321"
    forked.answer(forked.command("look"), result={"total": 6})
    assert forked.command("pay").idempotency_key.endswith("/dcba4321")


def test_a_writing_call_that_was_open_refuses() -> None:
    first = source()
    at = version_of(first, "action_requested", n=3)
    refused(World(*TOOLS).fork(first, at), "pay (r1/3)", "open then")


@pytest.mark.parametrize("status", ["started", "unknown"])
def test_a_doubtful_writing_call_refuses(status: str) -> None:
    first = World(*TOOLS)
    first.start()
    first.reply(None, ("pay", {"order": 1}))
    error = {"error": {"kind": "unknown", "code": "lost"}} if status == "unknown" else {}
    first.answer(first.command("pay"), status, **error)
    refused(World(*TOOLS).fork(first), "pay (r1/2)")


def test_an_open_question_is_asked_anew() -> None:
    first = World(*TOOLS)
    first.start()
    first.reply(None, ("ask", {}))
    forked = World(*TOOLS)
    forked.now = first.now + 3_600_000
    accepted(forked.fork(first))
    mine, theirs = forked.approval(), first.approval()
    assert mine.open
    assert mine.digest != theirs.digest
    assert mine.expires_at - forked.now == theirs.expires_at - theirs.requested_at
    refused(forked.decide("approve", approval_id="r1/a1"), "not of run")
    accepted(forked.decide("approve", digest=mine.digest))
    assert forked.command("ask").idempotency_key == "r2/2/dcba4321"


@pytest.mark.parametrize("kind", ["model", "builtin"])
def test_a_call_proposed_and_not_yet_made_or_asked_is_taken_up(kind: str) -> None:
    """A fork may begin between any two events, also of one decision."""
    first = World(*TOOLS)
    first.start()
    first.reply(None, ("ask_user", {"question": "Which?"}))
    forked = World(*TOOLS)
    accepted(forked.fork(first, version_of(first, "action_proposed", kind=kind)))
    if kind == "model":
        assert forked.command("m").idempotency_key == "r2/1/dcba4321"
    else:
        assert (forked.approval().kind, forked.approval().question) == ("clarification", "Which?")
        accepted(forked.decide("answer", "uma", answer="this"))
        forked.reply("done")
        assert forked.outcome().complete


def test_a_reading_call_that_failed_and_was_not_asked_about_yet_is_made_again() -> None:
    first = World(*TOOLS)
    first.plan(PlanStep(id="a", tool="look"))
    first.fails(first.command("look"), "unavailable", "NO_SUCH_TOOL")
    assert first.approval().kind == "handover"
    forked = World(*TOOLS)
    accepted(forked.fork(first, version_of(first, "action_failed")))
    forked.answer(forked.command("look"), result={})
    assert forked.outcome().complete


@pytest.mark.parametrize("word", ["cancel_run", "answer"])
def test_between_a_decision_and_what_it_does_no_fork_begins(word: str) -> None:
    first = World(*TOOLS)
    first.start()
    first.reply(None, ("ask", {}), ("ask_user", {"question": "Which?"}))
    if word == "answer":
        first.decide("answer", "uma", answer="this", approval_id="r1/a2")
    else:
        first.decide("cancel_run", "ann", approval_id="r1/a1", reason="no")
    refused(World(*TOOLS).fork(first, version_of(first, "approval_decided")), "just decided")


def test_a_notice_on_its_way_is_the_other_runs_and_people_hear_of_the_forks_question() -> None:
    from perdure.schemas.records import Person

    from .harness import NOTHING_SENT, agent, rule

    ops = Person(members=["ann"], notify={"tool": "mail"})
    spec = agent("ask", approvals=[rule(kind="action", approvers=["ops"])], people={"ops": ops})
    first = World(*TOOLS, tool("mail", "external"), agent_spec=spec)
    first.start()
    first.reply(None, ("ask", {}))
    first.answer(first.command("mail"), "failed", error=NOTHING_SENT)
    forked = World(*TOOLS, tool("mail", "external"), agent_spec=spec)
    accepted(forked.fork(first))
    assert [(c.target, c.idempotency_key) for c in forked.sent] == [("mail", "r2/4/dcba4321")]
    assert not [name for name in forked.header.timers if name == "act/3"]


def test_a_question_half_answered_refuses() -> None:

    twice = agent("ask", approvals=[rule(kind="action", tool="ask", required=2)])
    first = World(*TOOLS, agent_spec=twice)
    first.start()
    first.reply(None, ("ask", {}))
    first.decide("approve", "ann")
    refused(World(*TOOLS).fork(first), "half answered")


def test_an_approved_call_not_yet_made_refuses() -> None:
    first = World(*TOOLS)
    first.start()
    first.reply(None, ("ask", {}))
    first.decide("approve", "ann")
    at = version_of(first, "approval_decided")
    refused(World(*TOOLS).fork(first, at), "approved and not yet called")


def test_a_run_that_had_ended_refuses() -> None:
    first = source()
    first.reply("done")
    refused(World(*TOOLS).fork(first), "ended")
    accepted(World(*TOOLS).fork(first, version_of(first, "step_started")))


@pytest.mark.parametrize(("n", "refuses"), [(3, True), (4, False), (9, False)])
def test_only_what_the_fork_would_build_on_refuses_when_it_was_undone(
    n: int, refuses: bool
) -> None:
    first = source()
    at = len(first.events)
    undone = msgspec.structs.replace(
        first.events[-1], type="compensation_started", data={"n": n, "action": 20}
    )
    first.events.append(undone)
    found = World(*TOOLS).fork(first, at)
    if refuses:
        refused(found, "undone")
    else:
        accepted(found)


def test_an_escalated_question_has_its_time_anew() -> None:
    asks = rule(
        kind="action", tool="ask", within_seconds=100, on_timeout="escalate", escalate_to=["cas"],
        remind_seconds=40,
    )  # fmt: skip
    spec = agent("ask", approvals=[asks])
    first = World(*TOOLS, agent_spec=spec)
    first.start()
    first.reply(None, ("ask", {}))
    first.timer("ask/1")
    forked = World(*TOOLS, agent_spec=spec)
    forked.now = first.now + 86_400_000
    accepted(forked.fork(first))
    assert forked.approval().expires_at == forked.now + 100_000
    assert all(due > forked.now for due in forked.header.timers.values())
    assert forked.status == "waiting_approval"


def test_neither_the_time_before_nor_an_open_question_is_the_forks_time() -> None:
    spec = agent("ask", budget=BudgetPolicy(seconds=3_600))
    first = World(*TOOLS, agent_spec=spec)
    first.start()
    first.reply(None, ("ask", {}), seconds=60)
    second = World(*TOOLS, agent_spec=spec)
    second.now = first.now + 3 * 86_400_000
    accepted(second.fork(first))
    third = World(*TOOLS, agent_spec=spec)
    third.now = second.now + 3 * 86_400_000
    found = third.fork(second, run_id="r3", source_id="r2")
    accepted(found)
    assert 59 <= seconds_used(third.run, third.now) <= 61


def test_where_a_retry_had_just_begun_is_no_place_to_fork() -> None:
    first = World(tool("pay", "external"))
    first.plan(PlanStep(id="a", tool="pay"))
    first.fails(first.command(), "business", "no")
    first.control("retry")
    at = version_of(first, "status_changed", to="running")
    refused(World(tool("pay", "external")).fork(first, at), "retry had just begun")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"version": 0}, "versions"),
        ({"version": 999}, "versions"),
        ({"hash": "beef"}, "hash"),
        ({"agent": "other"}, "agent"),
        ({"plan": [PlanStep(id="a", tool="look")]}, "plan"),
        ({"input": "something else"}, "input"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    refused(World(*TOOLS).fork(source(), **values), words)


def test_a_broken_history_refuses() -> None:
    first = source()
    first.events[4].data = {**first.events[4].data, "forged": True}
    refused(World(*TOOLS).fork(first), "broken at 5")


def test_a_fork_may_lower_what_is_left_of_the_budget() -> None:
    forked = World(*TOOLS)
    forked.fork(source(), budget=Budget(steps=2))
    assert forked.header.step == 2
    forked.reply(None, ("look", {}))
    forked.answer(forked.command("look"), result={})
    assert forked.approval().kind == "budget"


def test_a_plan_forked_between_its_steps_goes_on() -> None:
    first = World(*TOOLS)
    first.plan(PlanStep(id="a", tool="put"), PlanStep(id="b", tool="pay", arguments={"order": 1}))
    first.answer(first.command("put"), result={})
    at = version_of(first, "action_succeeded", n=1)
    forked = World(*TOOLS)
    accepted(forked.fork(first, at, deadline_at=BEGAN + 10_000_000))
    assert forked.command("pay").action_id == "r2/2"
    assert forked.header.deadline_at == BEGAN + 10_000_000
    forked.answer(forked.command("pay"), result={})
    assert forked.outcome().complete


def test_the_time_before_it_began_is_not_the_forks() -> None:
    spec = agent("look", budget=BudgetPolicy(seconds=100))
    first = World(tool("look"), agent_spec=spec)
    first.start()
    first.reply(None, ("look", {}), seconds=40)
    forked = World(tool("look"), agent_spec=spec)
    forked.now = first.now + 10_000_000
    accepted(forked.fork(first))
    forked.answer(forked.command("look"), result=1, seconds=50)
    assert not forked.header.asks
    forked.reply(None, ("look", {}), seconds=20)
    forked.answer(forked.command("look"), result=1)
    assert forked.approval().kind == "budget"


@pytest.mark.parametrize("play", [record.troubles, record.windowed], ids=lambda play: play.__name__)
def test_at_every_version_of_a_troubled_run_a_fork_is_refused_or_goes_on(play: Any) -> None:
    """Between a failed call and the one that takes its place, a summary and what it is for, ..."""
    first = play()
    taken = 0
    for version in range(1, len(first.events)):
        forked = World(*first.tools.values(), agent_spec=first.agents["demo"])
        found = forked.fork(
            first, version
        )  # the world sees that an accepted one waits for something
        taken += isinstance(found, Decision)
    assert taken > 0.8 * len(first.events)


def test_between_a_failed_call_and_the_one_in_its_place_no_fork_begins() -> None:
    tools = (tool("look", fallback="spare"), tool("spare"))
    first = World(*tools, agent_spec=agent("look"))
    first.plan(PlanStep(id="a", tool="look"))
    first.fails(first.command("look"), "unavailable", "down")
    version = version_of(first, "action_failed")
    refused(World(*tools, agent_spec=agent("look")).fork(first, version), "giving way")


def test_a_call_that_a_person_declined_to_repeat_is_not_made_by_a_fork() -> None:
    spec = agent("pay", handover_after=2)
    first = World(tool("pay", "external"), agent_spec=spec)
    first.start()
    first.reply(None, ("pay", {"n": 1}))
    first.answer(first.command("pay"), result=1)
    first.reply(None, ("pay", {"n": 1}))
    first.decide("answer", answer="not again")
    version = version_of(first, "approval_decided")
    refused(World(tool("pay", "external"), agent_spec=spec).fork(first, version), "looked at")
    before = World(tool("pay", "external"), agent_spec=spec)
    accepted(before.fork(first, version_of(first, "action_proposed", target="pay")))
    assert (before.approval().kind, before.commands) == ("handover", [])
