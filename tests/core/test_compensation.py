"""What was done is undone, last first; a saga that fails anywhere ends balanced, or says what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from perdure.schemas.records import PlanAction

from .harness import BEGAN, NOTHING_SENT, PlanStep, World, accepted, agent, refused, rule, tool

UNDO = {"parameters": {"type": "object", "properties": {"room": {}, "result": {}}}}


def saga(count: int = 4, **values: Any) -> World:
    """Steps that book a room each; every booking can be undone."""
    made = World(
        tool("book", "external", compensate="unbook"),
        tool("unbook", "external", approval="always", **UNDO),
        tool("look"),
        agent_spec=agent("book", "look", **values),
    )
    steps = [
        PlanStep(id=f"s{n}", tool="book", arguments={"room": n, "note": "x"}) for n in range(count)
    ]
    made.plan(*steps)
    return made


def book(made: World, count: int) -> None:
    for n in range(count):
        made.answer(made.command("book"), result={"booked": n}, seconds=1)


def undone(made: World) -> list[Any]:
    """The arguments of the undoing calls, first attempts, in order."""
    return [
        c.arguments
        for c in made.sent
        if c.target == "unbook" and c.attempt == 1 and c.verb == "call"
    ]


def test_a_failure_undoes_what_was_done_last_first_and_asks_nobody() -> None:
    made = saga()
    book(made, 3)
    made.fails(made.command("book"), "business", "full")
    assert made.status == "compensating"
    assert undone(made) == [{"room": 2, "result": {"booked": 2}}]
    for _ in range(3):
        assert not made.header.asks
        made.answer(made.command("unbook"), result={})
    assert [each["room"] for each in undone(made)] == [2, 1, 0]
    assert made.status == "failed"
    outcome = made.outcome()
    assert [record["arguments"]["room"] for record in outcome.compensated] == [0, 1, 2]
    assert outcome.completed == []
    assert [record["tool"] for record in outcome.not_completed] == ["book"]
    assert made.step("s1") == "compensated"


@pytest.mark.parametrize("done", range(6))
def test_a_saga_of_six_that_fails_at_each_position_ends_balanced(done: int) -> None:
    made = saga(6)
    book(made, done)
    made.fails(made.command("book"), "business", "full")
    booked = set(range(done))
    while made.status == "compensating":
        command = made.command("unbook")
        booked.remove(command.arguments["room"])
        made.answer(command, result={})
    assert booked == set()
    assert made.status == "failed"


def test_the_agent_may_say_that_nothing_is_undone() -> None:
    made = saga(2, on_failure="stop")
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    assert made.status == "failed"
    assert undone(made) == []


@pytest.mark.parametrize(("asked", "status"), [(True, "compensating"), (False, "cancelled")])
def test_a_cancel_undoes_where_it_says_so(asked: bool, status: str) -> None:
    made = saga()
    book(made, 2)
    made.control("cancel", compensate=asked)
    made.answer(made.command("book", "cancel"), "cancelled")
    assert made.status == status
    if asked:
        made.answer(made.command("unbook"), result={})
        made.answer(made.command("unbook"), result={})
        assert made.status == "cancelled"
        assert len(made.outcome().compensated) == 2


def test_what_was_in_flight_when_it_ended_is_undone_as_well() -> None:
    made = saga()
    book(made, 1)
    made.control("cancel", compensate=True)
    made.answer(made.command("book", "cancel"), "succeeded", result={"booked": 1})
    assert undone(made)[0]["room"] == 1


def test_an_undoing_is_tried_again_and_then_goes_to_a_person() -> None:
    made = saga()
    book(made, 2)
    made.fails(made.command("book"), "business", "full")
    for _ in range(2):
        made.answer(made.command("unbook"), "failed", error=NOTHING_SENT)
        made.timer()
    made.answer(made.command("unbook"), "failed", error=NOTHING_SENT)
    assert made.status == "compensating"
    assert made.approval().kind == "handover"
    made.decide("retry")
    made.answer(made.command("unbook"), result={})
    made.answer(made.command("unbook"), result={})
    assert made.status == "failed"
    assert len(made.outcome().compensated) == 2


@pytest.mark.parametrize("word", ["cancel_run", "answer"])
def test_an_undoing_that_a_person_gives_up_or_has_done_by_hand(word: str) -> None:
    made = saga()
    book(made, 2)
    made.fails(made.command("book"), "business", "full")
    made.fails(made.command("unbook"), "business", "too_late")
    made.decide(
        word, **({"answer": "done by phone"} if word == "answer" else {"reason": "leave it"})
    )
    made.answer(made.command("unbook"), result={})
    assert made.status == "failed"
    listed = [record["arguments"]["room"] for record in made.outcome().compensated]
    kept = [record["arguments"]["room"] for record in made.outcome().completed]
    assert (listed, kept) == (([0], [1]) if word == "cancel_run" else ([0, 1], []))
    if word == "cancel_run":
        assert any(error["code"] == "too_late" for error in made.outcome().errors)


def test_an_undoing_that_may_have_happened_is_asked_about() -> None:
    made = saga()
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    made.answer(made.command("unbook"), "unknown", error={"kind": "unknown", "code": "lost"})
    assert made.approval().kind == "in_doubt"
    assert made.status == "compensating"
    made.decide("mark_done", reason="it is gone")
    assert made.status == "failed"
    assert len(made.outcome().compensated) == 1


def given_up_in_doubt() -> World:
    """Its undoing may have happened, and a person has given it up."""
    made = saga(2)
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    made.answer(made.command("unbook"), "unknown", error={"kind": "unknown", "code": "lost"})
    made.decide("cancel_run", reason="leave it")
    assert made.status == "failed"
    return made


def test_what_may_have_been_undone_is_in_doubt() -> None:
    made = given_up_in_doubt()
    assert made.listed()["in_doubt"] == ["book"]
    assert made.listed()["completed"] == []


def test_an_undoing_that_is_found_to_have_happened_after_all_is_told() -> None:
    made = given_up_in_doubt()
    accepted(made.answer(made.sent[-1], "succeeded", result={}))
    assert len(made.outcome().compensated) == 1
    assert made.listed()["in_doubt"] == []


def test_an_undoing_that_nobody_serves_goes_to_a_person() -> None:
    made = World(tool("book", "external", compensate="gone"), agent_spec=agent("book"))
    made.plan(PlanStep(id="a", tool="book"), PlanStep(id="b", tool="book"))
    made.answer(made.command("book"), result={})
    made.fails(made.command("book"), "business", "full")
    assert made.approval().kind == "handover"
    assert "no worker announces gone" in made.approval().title
    made.decide("cancel_run", reason="leave it")
    assert made.status == "failed"


def test_a_steps_own_undoing_has_the_arguments_it_says() -> None:
    made = World(tool("book", "external"), tool("unbook", "external"), agent_spec=agent("book"))
    undo = PlanAction(tool="unbook", arguments={"id": {"$": "steps.a.result.id"}, "all": True})
    made.plan(PlanStep(id="a", tool="book", compensate=undo), PlanStep(id="b", tool="book"))
    made.answer(made.command("book"), result={"id": 7})
    made.fails(made.command("book"), "business", "full")
    assert undone(made) == [{"id": 7, "all": True}]


def test_while_it_undoes_only_a_cancel_changes_how_it_ends() -> None:
    made = saga()
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    refused(made.control("message", content="x"), "plan")
    accepted(made.control("cancel"))
    refused(made.control("cancel"), "already ending")
    made.answer(made.command("unbook"), result={})
    assert made.status == "cancelled"


def test_a_failed_run_is_undone_by_a_cancel() -> None:
    made = saga(2, on_failure="stop")
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    assert made.status == "failed"
    accepted(made.control("cancel", compensate=True))
    assert made.status == "compensating"
    made.answer(made.command("unbook"), result={})
    assert made.status == "cancelled"
    assert len(made.outcome().compensated) == 1


def test_after_undoing_a_retry_is_refused() -> None:
    made = saga(2)
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    made.answer(made.command("unbook"), result={})
    refused(made.control("retry"), "compensated")


def test_a_paused_run_undoes_when_it_is_resumed() -> None:
    made = saga(3)
    book(made, 2)
    made.control("pause")
    made.fails(made.command("book"), "business", "full")
    assert undone(made) == []
    made.control("resume")
    assert len(undone(made)) == 1


def test_a_model_loop_is_undone_as_well() -> None:
    made = World(
        tool("book", "external", compensate="unbook"),
        tool("unbook", "external", **UNDO),
        agent_spec=agent("book"),
    )
    made.start()
    made.reply(None, ("book", {"room": 1}), ("book", {"room": 2}))
    for _ in range(2):
        made.answer(made.command("book"), result={}, seconds=1)
    made.control("cancel", compensate=True)
    made.answer(made.command("m", "cancel"), "cancelled")
    for _ in range(2):
        made.answer(made.command("unbook"), result={})
    assert [each["room"] for each in undone(made)] == [2, 1]
    assert made.status == "cancelled"


def test_a_result_that_was_adopted_is_undone_once() -> None:
    made = World(
        tool("book", "external", compensate="unbook", key=["room"]), tool("unbook", "external", **UNDO),
        agent_spec=agent("book"),
    )  # fmt: skip
    made.start()
    made.reply(None, ("book", {"room": 1}), ("book", {"room": 1}))
    made.answer(made.command("book"), result={})
    made.control("cancel", compensate=True)
    made.answer(made.command("m", "cancel"), "cancelled")
    made.answer(made.command("unbook"), result={})
    assert len(undone(made)) == 1
    assert made.status == "cancelled"


def test_a_fork_undoes_nothing_of_the_run_it_came_from() -> None:
    source = saga(3)
    book(source, 1)
    forked = World(*source.tools.values(), agent_spec=source.agents["demo"])
    at = next(e.version for e in source.events if e.type == "action_succeeded")
    accepted(forked.fork(source, at))
    forked.answer(forked.command("book"), result={})
    forked.fails(forked.command("book"), "business", "full")
    forked.answer(forked.command("unbook"), result={})
    assert [each["room"] for each in undone(forked)] == [1]
    assert forked.status == "failed"


def test_a_fork_undoes_what_was_asked_about_before_it_and_done_by_it() -> None:
    asked = rule(kind="action", tool="book")
    source = saga(2, approvals=[asked])
    forked = World(*source.tools.values(), agent_spec=source.agents["demo"])
    accepted(forked.fork(source))
    accepted(forked.decide("approve"))
    forked.answer(forked.command("book"), result={})
    forked.control("cancel", compensate=True)
    assert [each["room"] for each in undone(forked)] == [0]


def test_an_effect_found_while_it_undoes_is_undone_too() -> None:
    made = saga(3)
    book(made, 1)
    late = made.command("book")
    made.control("cancel", compensate=True)
    made.answer(made.command("book", "cancel"), "cancelled")
    assert made.status == "compensating"
    accepted(made.answer(late, "succeeded", result={"booked": 1}))
    made.answer(made.command("unbook"), result={})
    made.answer(made.command("unbook"), result={})
    assert [each["room"] for each in undone(made)] == [0, 1]
    assert made.status == "cancelled"


def standing(question: Any) -> list[Any]:
    return [each["arguments"]["room"] for each in question.history["completed"]]


def test_a_handover_names_what_is_not_undone_the_one_it_is_about_and_one_left_before() -> None:
    made = saga()
    book(made, 3)
    made.fails(made.command("book"), "business", "full")
    made.fails(made.command("unbook"), "business", "too_late")
    assert standing(made.approval()) == [0, 1, 2]
    assert "book (r1/3) is not undone" in made.approval().question
    made.decide("cancel_run", reason="leave it")
    made.answer(made.command("unbook"), result={})
    made.fails(made.command("unbook"), "business", "too_late")
    assert standing(made.approval()) == [0, 2]


def test_a_handover_of_a_long_saga_still_names_what_is_not_undone() -> None:
    made = saga(50)
    book(made, 49)
    made.fails(made.command("book"), "business", "full")
    for _ in range(45):
        made.answer(made.command("unbook"), result={})
    made.fails(made.command("unbook"), "business", "too_late")
    assert standing(made.approval()) == [0, 1, 2, 3]


def test_what_may_have_been_undone_is_asked_for_by_name() -> None:
    made = saga()
    book(made, 1)
    made.fails(made.command("book"), "business", "full")
    made.answer(made.command("unbook"), "unknown", error={"kind": "unknown", "code": "lost"})
    assert "Is book (r1/1) undone?" in made.approval().question


def compensated(made: World) -> list[str]:
    return [record["tool"] for record in msgspec.to_builtins(made.outcome().compensated)]


def after_its_deadline(**task: Any) -> World:
    """A call that can be undone is done; the next one is under way, or has failed."""
    made = World(
        tool("book", "external", compensate="unbook"),
        tool("slow"),
        tool("unbook", "external"),
        agent_spec=agent("book", "slow", **task),
    )
    steps = PlanStep(id="a", tool="book"), PlanStep(id="b", tool="slow")
    made.plan(*steps, deadline_at=BEGAN + 60_000)
    made.answer(made.command("book"), result={"id": 7})
    return made


def time_to_begin(made: World, target: str) -> int:
    command = made.command(target)
    return command.expires_at - command.issued_at


def test_what_the_deadline_has_cancelled_has_time_to_be_undone() -> None:
    made = after_its_deadline()
    made.timer("deadline")
    made.answer(made.command("slow", "call"), result=1)
    assert made.status == "compensating"
    assert time_to_begin(made, "unbook") == 300_000
    made.answer(made.command("unbook"), result={})
    assert (made.status, compensated(made)) == ("cancelled", ["book"])


def test_a_failed_run_may_be_undone_after_its_deadline() -> None:
    made = after_its_deadline(on_failure="stop")
    made.fails(made.command("slow"), "business", "full")
    made.now = BEGAN + 90_000
    accepted(made.control("cancel", compensate=True))
    assert time_to_begin(made, "unbook") == 300_000


def test_an_undoing_whose_tool_is_announced_late_is_made_anew_by_a_retry() -> None:
    made = World(tool("book", "external", compensate="unbook"), agent_spec=agent("book"))
    made.plan(PlanStep(id="a", tool="book", arguments={"id": 7}), PlanStep(id="b", tool="book"))
    made.answer(made.command("book"), result={})
    made.fails(made.command("book"), "business", "full")
    takes = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    made.tools["unbook"] = tool("unbook", "idempotent", queue="undo", parameters=takes)
    accepted(made.decide("retry"))
    command = made.command("unbook")
    assert (command.arguments, command.effect) == ({"id": 7}, "idempotent")
    assert made.run.action(made.header.undoing).queue == "undo"
    made.answer(command, result={})
    assert (made.status, compensated(made)) == ("failed", ["book"])


def test_an_undoing_is_never_sent_without_the_arguments_it_says() -> None:
    made = World(tool("book", "external"), tool("unbook", "external"), agent_spec=agent("book"))
    undo = PlanAction(tool="unbook", arguments={"id": {"$": "steps.a.result.id"}})
    made.plan(PlanStep(id="a", tool="book", compensate=undo), PlanStep(id="b", tool="book"))
    made.answer(made.command("book"), result={"ref": 7})
    made.fails(made.command("book"), "business", "full")
    for _ in range(2):
        assert "steps.a.result.id" in made.approval().title
        accepted(made.decide("retry"))
        assert made.commands == []
    made.decide("cancel_run", reason="undone by hand")
    assert (made.status, made.listed()["completed"]) == ("failed", ["book"])


def test_an_undoing_made_anew_waits_while_the_run_is_paused() -> None:
    made = World(tool("book", "external", compensate="unbook"), agent_spec=agent("book"))
    made.plan(PlanStep(id="a", tool="book"), PlanStep(id="b", tool="book"))
    made.answer(made.command("book"), result={})
    made.fails(made.command("book"), "business", "full")
    made.tools["unbook"] = tool("unbook", "external")
    made.control("pause")
    accepted(made.decide("retry"))
    assert made.commands == []
    made.control("resume")
    made.answer(made.command("unbook"), result={})
    assert compensated(made) == ["book"]


def test_a_plan_whose_undoing_can_not_be_read_is_refused() -> None:
    made = World(tool("book", "external"), tool("unbook", "external"), agent_spec=agent("book"))
    undo = PlanAction(tool="unbook", arguments={"id": {"$": "((("}})
    refused(made.plan(PlanStep(id="a", tool="book", compensate=undo)), "plan[0] (a)")
