"""What keeps going wrong, and what stands in for it (lifecycle section 3)."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.schemas.records import (
    Budget,
    ModelSpec,
    PlanStep,
    Prices,
    RetryPolicy,
    Usage,
    Window,
)

from .harness import NOTHING_SENT, World, accepted, agent, tool

TEXT = {"type": "object", "properties": {"n": {"type": "integer"}}}


def world(*tools: Any, **values: Any) -> World:
    made = World(
        *tools,
        agent_spec=agent(*(t.name for t in tools if not t.name.startswith("spare")), **values),
    )
    accepted(made.start("hello"))
    return made


def gone(made: World, target: str, code: str = "http_503") -> None:
    """The service can't be reached, for good."""
    made.fails(made.command(target), "unavailable", code)


def results(made: World) -> list[str]:
    messages: list[dict[str, Any]] = made.command("m").request["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


# --- fallback tools --------------------------------------------------------------------------


def test_the_fallback_takes_the_failed_calls_place() -> None:
    made = world(tool("look", fallback="spare", parameters=TEXT), tool("spare", parameters=TEXT))
    made.reply(None, ("look", {"n": 1}))
    gone(made, "look")
    spare = made.command("spare")
    assert (spare.action_id, spare.arguments) == ("r1/3", {"n": 1})
    assert made.status == "running"
    made.answer(spare, result="from spare")
    assert results(made) == ['"from spare"']
    made.reply("ok")
    assert made.listed()["completed"] == ["spare"]
    assert made.listed()["not_completed"] == []
    assert made.outcome().complete


def test_after_three_tries_the_fallback_is_called() -> None:
    made = world(tool("look", fallback="spare"), tool("spare"))
    made.reply(None, ("look", {}))
    for _ in range(2):
        made.fails(made.command("look"), "transient", "http_503")
        made.timer("act/2")
    made.fails(made.command("look"), "transient", "http_503")
    assert made.command("spare").attempt == 1
    assert made.action(2).error["code"] == "API_UNAVAILABLE"


def test_a_fallback_takes_the_arguments_that_it_has() -> None:
    made = world(tool("look", fallback="spare"), tool("spare", parameters=TEXT))
    made.reply(None, ("look", {"n": 1, "other": 2}))
    gone(made, "look")
    assert made.command("spare").arguments == {"n": 1}


def test_a_fallback_that_the_arguments_do_not_fit_is_none() -> None:
    strict = {**TEXT, "required": ["m"]}
    made = world(tool("look", fallback="spare"), tool("spare", parameters=strict))
    made.reply(None, ("look", {"n": 1}))
    gone(made, "look")
    assert made.approval().kind == "handover"


def test_a_fallback_that_fails_too_goes_to_a_person() -> None:
    made = world(tool("look", fallback="spare"), tool("spare", fallback="look"))
    made.reply(None, ("look", {}))
    gone(made, "look")
    gone(made, "spare")
    assert (made.approval().kind, made.approval().action) == ("handover", 3)
    assert not made.commands


@pytest.mark.parametrize("code", ["read_timeout", "connect_refused"])
def test_what_may_have_happened_or_yet_happen_is_not_done_by_another_tool_too(code: str) -> None:
    """Of an idempotent call a second delivery may be on its way, whatever the first one says."""
    made = world(tool("pay", "idempotent", fallback="spare"), tool("spare", "idempotent"))
    made.reply(None, ("pay", {}))
    for _ in range(2):
        made.fails(made.command("pay"), "transient", code)
        made.timer("act/2")
    made.fails(made.command("pay"), "transient", code)
    assert made.approval().kind == "handover"
    assert not made.commands


def test_what_did_not_happen_may_be_done_by_another_tool() -> None:
    made = world(tool("pay", "external", fallback="spare"), tool("spare", "external"))
    made.reply(None, ("pay", {}))
    for _ in range(2):
        made.answer(made.command("pay"), "failed", error=NOTHING_SENT)
        made.timer("act/2")
    made.answer(made.command("pay"), "failed", error=NOTHING_SENT)
    assert made.command("spare").effect == "external"


def test_a_fallback_asks_what_it_asks() -> None:
    made = world(tool("look", fallback="spare"), tool("spare", "external", approval="always"))
    made.reply(None, ("look", {}))
    gone(made, "look")
    assert (made.approval().kind, made.approval().tool) == ("action", "spare")
    made.decide("approve")
    made.answer(made.command("spare"), result=1)
    assert results(made) == ["1"]


def test_in_a_plan_the_fallback_is_the_step() -> None:
    made = World(
        tool("look", fallback="spare"), tool("spare", "idempotent", compensate="undo"), tool("undo")
    )
    accepted(made.plan(PlanStep(id="a", tool="look"), PlanStep(id="b", tool="look")))
    gone(made, "look")
    made.answer(made.command("spare"), result=5)
    assert made.step("a") == "done"
    assert made.header.steps_done == 1
    made.answer(made.command("look"), result=6)
    assert made.outcome().result == {"a": 5, "b": 6}
    assert made.outcome().complete


def test_a_paused_run_falls_back_when_it_is_resumed() -> None:
    made = world(tool("look", fallback="spare"), tool("spare"))
    made.reply(None, ("look", {}))
    command = made.command("look")
    made.control("pause")
    made.fails(command, "unavailable", "http_503")
    assert not made.commands
    made.control("resume")
    made.timer("act/2")
    gone(made, "look")
    assert made.command("spare").attempt == 1


# --- an older result -------------------------------------------------------------------------


def stale(**values: Any) -> World:
    made = world(tool("look", stale_ok_seconds=60, parameters=TEXT, **values))
    made.reply(None, ("look", {"n": 1}))
    made.answer(made.command("look"), result="old")
    return made


def test_the_last_good_result_stands_in_and_says_so() -> None:
    made = stale()
    made.now += 20_000
    made.reply(None, ("look", {"n": 1}))
    gone(made, "look")
    action = made.action(4)
    assert (action.status, action.result) == ("succeeded", "old")
    assert action.degraded["from"] == "r1/2"
    assert 20 <= action.degraded["age_seconds"] < 21
    assert results(made)[1].startswith("[look can't be reached: this is its answer of 20 s ago.] ")
    made.reply("ok")
    assert made.listed()["degraded"] == ["look"]
    assert made.listed()["completed"] == ["look"]
    assert not made.outcome().complete
    assert "Answered from an older result: look (4)." in made.outcome().text


def test_a_result_that_is_too_old_or_of_another_call_does_not_stand_in() -> None:
    made = stale()
    made.reply(None, ("look", {"n": 2}))
    gone(made, "look")
    assert made.approval().kind == "handover"
    made = stale()
    made.now += 61_000
    made.reply(None, ("look", {"n": 1}))
    gone(made, "look")
    assert made.approval().kind == "handover"


def test_a_stand_in_is_no_good_result_itself() -> None:
    made = stale()
    for n in (4, 6):
        made.now += 29_000
        made.reply(None, ("look", {"n": 1}))
        gone(made, "look")
        assert made.action(n).degraded["from"] == "r1/2"
    made.now += 29_000
    made.reply(None, ("look", {"n": 1}))
    gone(made, "look")
    assert made.approval().kind == "handover"


# --- the same again --------------------------------------------------------------------------


def test_the_same_error_in_a_row_goes_to_a_person_with_steps_and_errors() -> None:
    made = world(tool("look", parameters=TEXT), tool("other"), handover_after=3)
    made.reply(None, ("other", {}))
    made.answer(made.command("other"), result=1)
    for n in range(3):
        assert not made.header.asks
        made.reply(None, ("look", {"n": n}))
        made.fails(made.command("look"), "internal", "KeyError", message=f"text {n}")
    asked = made.approval()
    assert (asked.kind, asked.action, made.status) == ("handover", 8, "waiting_approval")
    assert asked.rule["in_a_row"] == 3
    assert [done["tool"] for done in asked.history["completed"]] == ["other"]
    assert len(asked.history["errors"]) == 3
    made.decide("answer", answer="use the other one")
    assert made.command("m").request["messages"][-1]["content"] == "use the other one"
    made.reply(None, ("look", {"n": 9}))
    made.fails(made.command("look"), "internal", "KeyError")
    assert not made.header.asks  # it has been looked at: the count begins anew


def test_a_retry_of_a_handover_calls_it_again() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    for n in range(2):
        made.reply(None, ("look", {"n": n}))
        made.fails(made.command("look"), "business", "not_found")
    made.decide("retry")
    made.answer(made.command("look"), result="there")
    assert results(made)[1] == '"there"'


def test_another_error_or_a_success_breaks_the_row() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    for n, code in enumerate(("a", "b", "a")):
        made.reply(None, ("look", {"n": n}))
        made.fails(made.command("look"), "business", code)
    made.reply(None, ("look", {"n": 4}))
    made.answer(made.command("look"), result=1)
    made.reply(None, ("look", {"n": 5}))
    made.fails(made.command("look"), "business", "a")
    assert not made.header.asks


def test_the_same_error_in_a_row_is_what_a_fallback_is_for() -> None:
    made = world(
        tool("look", parameters=TEXT, fallback="spare"),
        tool("spare", parameters=TEXT),
        handover_after=2,
    )
    for n in range(2):
        made.reply(None, ("look", {"n": n}))
        made.fails(made.command("look"), "business", "a")
    made.answer(made.command("spare"), result="it")
    assert results(made)[1] == '"it"'


def test_the_same_call_in_a_row_goes_to_a_person_before_it_is_made() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=3)
    for _ in range(2):
        made.reply(None, ("look", {"n": 1}))
        made.answer(made.command("look"), result="same")
    made.reply(None, ("look", {"n": 1}))
    assert not made.commands
    assert (made.approval().kind, made.approval().rule) == ("handover", {"in_a_row": 3})
    assert (made.action(6).status, made.status) == ("proposed", "waiting_approval")
    made.decide("retry")
    made.answer(made.command("look"), result="same")
    made.reply(None, ("look", {"n": 1}))
    assert made.command("look")  # once a person has looked, it counts from the beginning


def test_a_repeated_call_that_is_let_go_on_still_asks_what_it_asks() -> None:
    made = world(tool("pay", "external", approval="always", parameters=TEXT), handover_after=2)
    made.reply(None, ("pay", {"n": 1}))
    made.decide("approve")
    made.answer(made.command("pay"), result=1)
    made.reply(None, ("pay", {"n": 1}))
    made.decide("retry")
    assert (made.approval().kind, made.commands) == ("action", [])
    made.decide("approve")
    assert made.command("pay")


def test_what_a_person_says_instead_of_a_repeated_call_is_its_result() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    made.reply(None, ("look", {"n": 1}))
    made.answer(made.command("look"), result="same")
    made.reply(None, ("look", {"n": 1}))
    made.decide("answer", answer="it will not change")
    assert "not called" in results(made)[1]
    assert made.command("m").request["messages"][-1]["content"] == "it will not change"


def test_equal_calls_of_one_reply_are_one_time() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    made.reply(None, *[("look", {"n": 1})] * 5)
    assert len(made.commands) == 5


def test_calls_in_turns_are_none_in_a_row() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    for n in (1, 2, 1, 2):
        made.reply(None, ("look", {"n": n}))
        made.answer(made.command("look"), result=n)
    assert not made.header.asks


def test_a_call_declined_twice_goes_to_a_person() -> None:
    made = world(tool("pay", "external", approval="always", parameters=TEXT))
    for n in range(2):
        made.reply(None, ("pay", {"n": n}))
        made.decide("reject", reason="too much")
    asked = made.approval()
    assert (asked.kind, asked.action, asked.rule["times"]) == ("handover", None, 2)
    assert not made.commands
    made.decide("answer", answer="stop that", n=asked.n)
    assert made.command("m").request["messages"][-1]["content"] == "stop that"


def test_a_call_that_was_made_in_between_breaks_the_row_of_noes() -> None:
    made = world(tool("pay", "external", approval="always", parameters=TEXT))
    for n, word in enumerate(("reject", "approve", "reject")):
        made.reply(None, ("pay", {"n": n}))
        made.decide(word, reason="because")
        if word == "approve":
            made.answer(made.command("pay"), result=1)
    assert not made.header.asks


# --- breakers --------------------------------------------------------------------------------


def test_an_open_breaker_is_waited_for_where_people_can_see_it() -> None:
    made = world(tool("look"))
    made.reply(None, ("look", {}))
    error = {"kind": "unavailable", "code": "BREAKER_OPEN", "retry_after_seconds": 42.0}
    made.answer(made.command("look"), "failed", error=error)
    waits = made.waits()
    assert [(wait["kind"], wait["target"]) for wait in waits] == [("breaker", "look")]
    assert made.header.timers["act/2"] - made.now >= 42_000 - 100
    for _ in range(2):
        made.timer("act/2")
        made.answer(made.command("look"), "failed", error=error)
    assert made.approval().kind == "handover"


def test_an_open_breaker_is_not_waited_for_where_something_stands_in() -> None:
    made = world(tool("look", fallback="spare"), tool("spare"))
    made.reply(None, ("look", {}))
    error = {"kind": "unavailable", "code": "BREAKER_OPEN", "retry_after_seconds": 42.0}
    made.answer(made.command("look"), "failed", error=error)
    assert made.command("spare")


# --- models ----------------------------------------------------------------------------------


def models(*names: str, **values: Any) -> World:
    fallbacks = [ModelSpec(provider="scripted", name=name, replies=[]) for name in names]
    return world(tool("look"), fallback_models=fallbacks, **values)


def test_a_model_out_of_reach_gives_way_to_the_next_in_the_same_step() -> None:
    made = models("m2", "m3")
    made.fails(made.command("m"), "model_unavailable", "http_404")
    made.fails(made.command("m2"), "permission", "http_401")
    made.reply("hello", target="m3")
    assert (made.status, made.header.step, made.outcome().result) == ("done", 1, "hello")


def test_a_model_has_its_tries_before_the_next_one() -> None:
    made = models("m2")
    for _ in range(2):
        made.fails(made.command("m"), "transient", "http_503")
        made.timer("act/1")
    made.fails(made.command("m"), "transient", "http_503")
    assert made.command("m2").attempt == 1


def test_a_fallback_stays_in_use_and_then_the_first_is_tried_again() -> None:
    made = models("m2")
    made.fails(made.command("m"), "model_unavailable")
    made.reply(None, ("look", {}), target="m2")
    made.answer(made.command("look"), result=1)
    made.reply(None, ("look", {}), target="m2")
    made.now += 300_000
    made.answer(made.command("look"), result=1)
    assert made.command("m").attempt == 1


def test_with_all_models_down_the_run_is_kept_and_all_are_tried_again() -> None:
    made = models("m2")
    waits = []
    for _ in range(12):
        made.fails(made.command("m"), "model_unavailable", "http_404")
        began = made.now
        made.fails(made.command("m2"), "model_unavailable", "http_404")
        assert not made.commands
        [wait] = made.waits()
        assert (wait["kind"], wait["target"]) == ("model", "m2")
        waits.append((wait["until"] - began) / 1000)
        made.timer()
    assert 8 <= waits[0] <= 10.1
    assert all(720 <= wait <= 900.1 for wait in waits[-3:])
    made.fails(made.command("m"), "transient", "http_503")  # while all are down, one try each
    made.reply("back", target="m2")
    assert (made.status, made.header.step) == ("done", 1)


def test_unusable_replies_three_times_are_the_next_models_turn() -> None:
    made = models("m2")
    for _ in range(3):
        made.reply("")
    assert made.command("m2").attempt == 1
    for _ in range(3):
        made.reply("", target="m2")
    assert made.approval().kind == "handover"


def test_a_filtered_reply_is_not_asked_for_again() -> None:
    made = models("m2")
    made.answer(made.command("m"), result={"content": "half", "finish_reason": "content_filter"})
    assert (made.approval().kind, made.action(1).error["kind"]) == ("handover", "content_filter")
    assert not made.commands


def test_an_ending_run_calls_no_other_model() -> None:
    made = models("m2")
    command = made.command("m")
    made.control("cancel")
    made.fails(command, "model_unavailable")
    assert made.status == "cancelled"
    assert not [sent for sent in made.commands if sent.verb == "call"]


# --- cut replies -----------------------------------------------------------------------------


def limited(limit: int = 300) -> World:
    model = ModelSpec(provider="openai", name="m", max_output_tokens=limit)
    made = World(tool("note", parameters={"type": "object", "properties": {"t": {}}}),
                 agent_spec=agent("note", model=model))  # fmt: skip
    accepted(made.start("hello"))
    return made


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
@pytest.mark.parametrize("given", [{"arguments": None, "raw": '{"t": "lorem'}, {"arguments": {}}])
def test_half_arguments_never_run_and_there_is_more_room_next_time(
    finish: str, given: dict[str, Any]
) -> None:
    made = limited()
    call = {"id": "c1", "name": "note", **given}
    reply = {"content": None, "tool_calls": [call], "finish_reason": finish}
    made.answer(made.command("m"), result=reply, usage=Usage(input_tokens=10, output_tokens=300))
    assert not [sent for sent in made.commands if sent.target == "note"]
    assert "truncated" in results(made)[0]
    assert made.command("m").request["max_output_tokens"] == 600


def test_what_was_complete_when_a_reply_was_cut_may_run() -> None:
    made = limited()
    call = {"id": "c1", "name": "note", "arguments": {"t": 1}}
    reply = {"content": None, "tool_calls": [call], "finish_reason": "length"}
    made.answer(made.command("m"), result=reply)
    assert made.command("note").arguments == {"t": 1}


# --- prices ----------------------------------------------------------------------------------


def test_prices_make_the_cost_and_the_cost_its_budget() -> None:
    model = ModelSpec(provider="openai", name="m", prices=Prices(input=2.0, output=10.0))
    made = World(tool("look"), agent_spec=agent("look", model=model))
    accepted(made.start("hello", budget=Budget(cost=0.004)))
    reply = {"content": None, "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]}
    made.answer(made.command("m"), result=reply, usage=Usage(input_tokens=1000, output_tokens=200))
    assert made.header.cost == pytest.approx(0.004)
    made.answer(made.command("look"), result=1)
    assert made.approval().kind == "budget"


def test_a_cost_that_the_provider_names_is_taken_as_it_is() -> None:
    model = ModelSpec(provider="openai", name="m", prices=Prices(input=2.0))
    made = World(tool("look"), agent_spec=agent("look", model=model))
    accepted(made.start("hello"))
    reply = {"content": "done", "tool_calls": [], "finish_reason": "stop"}
    made.answer(made.command("m"), result=reply, usage=Usage(input_tokens=1000, cost=0.5))
    assert made.header.cost == 0.5


def test_a_retry_policy_of_one_try_gives_way_at_once() -> None:
    made = models("m2", retry=RetryPolicy(attempts=1))
    made.fails(made.command("m"), "transient", "http_503")
    assert made.command("m2")


# --- what a review has found -----------------------------------------------------------------


def keyed(*tools: Any) -> World:
    made = World(*tools, agent_spec=agent("pay"))
    accepted(made.start("hello"))
    return made


def test_a_declared_key_is_honoured_by_what_stands_in() -> None:
    made = keyed(
        tool("pay", "external", key=["order"], fallback="spare"),
        tool("spare", "external", parameters={"properties": {"order": {}}}),
    )
    made.reply(None, ("pay", {"order": 1}), ("pay", {"order": 1}))
    gone(made, "pay")
    assert [command.target for command in made.commands] == ["spare"]  # the second waits for it
    made.answer(made.command("spare"), result="paid")
    made.reply(None, ("pay", {"order": 1}))
    assert results(made) == ['"paid"'] * 3
    assert [command.target for command in made.sent if command.target != "m"] == ["pay", "spare"]


def test_two_calls_with_one_key_do_not_wait_for_each_other() -> None:
    made = keyed(tool("pay", "idempotent", key=["order"]))
    made.reply(None, ("pay", {"order": 1}), ("pay", {"order": 1}))
    made.answer(made.command("pay"), "failed", error=NOTHING_SENT)
    made.timer("act/2")
    assert made.command("pay").attempt == 2
    made.answer(made.command("pay"), result="paid")
    assert results(made) == ['"paid"'] * 2


def test_equal_calls_of_a_reply_are_asked_about_once() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    made.reply(None, ("look", {"n": 1}))
    made.answer(made.command("look"), result=1)
    made.reply(None, *[("look", {"n": 1})] * 3)
    assert (len(made.header.asks), made.commands) == (1, [])
    made.decide("answer", answer="no")
    assert made.command("m").request["messages"][-1]["content"] == "no"
    assert len(results(made)) == 4


def test_letting_one_go_on_lets_its_like_go_on() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    made.reply(None, ("look", {"n": 1}))
    made.answer(made.command("look"), result=1)
    made.reply(None, *[("look", {"n": 1})] * 3)
    made.decide("retry")
    assert len(made.commands) == 3


def test_three_declined_calls_of_a_reply_are_one_handover() -> None:
    made = world(tool("pay", "external", approval="always", parameters=TEXT))
    made.reply(None, *[("pay", {"n": n}) for n in range(3)])
    for n in (1, 2, 3):
        made.decide("reject", n=n, reason="no")
    assert [made.approval(n).kind for n in made.header.asks] == ["handover"]


def test_a_call_that_was_never_made_says_nothing_of_its_service() -> None:
    made = world(tool("look", parameters=TEXT), handover_after=2)
    for _ in range(2):
        made.reply(None, ("look", {"n": 1}))
        if made.commands:
            made.answer(made.command("look"), result=1)
    made.decide("answer", answer="no")
    assert made.header.api["look"]["status"] == "ok"


def test_a_models_queue_that_is_not_there_is_the_next_models_turn() -> None:
    other = ModelSpec(provider="scripted", name="m2", replies=[], queue="other")
    made = World(tool("look"), agent_spec=agent("look", fallback_models=[other]))
    made.queue_problems["models"] = "it has no topic"
    accepted(made.start("hello"))
    assert made.command("m2").attempt == 1
    made.queue_problems["other"] = "neither has it"
    made.fails(made.command("m2"), "model_unavailable")
    assert [wait["kind"] for wait in made.waits()] == ["model"]
    made.queue_problems.clear()
    made.timer()
    assert made.command("m")


def test_a_refused_key_beside_a_model_that_is_down_is_waited_out() -> None:
    made = models("m2")
    made.fails(made.command("m"), "model_unavailable", "http_404")
    made.fails(made.command("m2"), "permission", "http_401")
    assert (made.header.asks, [wait["kind"] for wait in made.waits()]) == ([], ["model"])
    made.timer()
    made.fails(made.command("m"), "permission", "http_401")
    made.fails(made.command("m2"), "permission", "http_401")
    asked = made.approval()
    assert (asked.kind, "refuses the key" in str(asked.question)) == ("handover", True)


def test_a_long_model_that_gives_unusable_replies_is_handed_over() -> None:
    long = {"provider": "scripted", "name": "long", "replies": []}
    spare = [ModelSpec(provider="scripted", name="m2", replies=[])]
    made = World(
        tool("look"),
        agent_spec=agent(
            "look",
            fallback_models=spare,
            window=Window(max_tokens=100, mode="full", long_model=long),
        ),
    )
    accepted(made.start("x" * 2_000))
    for _ in range(6):
        made.fails(made.command("long"), "model_invalid", "empty_reply")
    assert made.approval().kind == "handover"


def test_what_a_person_answers_is_no_good_result_of_the_service() -> None:
    plan = World(tool("look", stale_ok_seconds=60))
    accepted(plan.plan(PlanStep(id="a", tool="look"), PlanStep(id="b", tool="look")))
    gone(plan, "look")
    plan.decide("answer", answer="by hand")
    gone(plan, "look")
    assert plan.approval().kind == "handover"


def test_a_later_doubt_of_a_held_call_leaves_its_question_and_is_in_the_outcome() -> None:
    made = world(tool("pay", "idempotent"))
    made.reply(None, ("pay", {}))
    command = made.command("pay")
    gone(made, "pay")
    made.answer(command, "unknown", error={"kind": "unknown", "code": "worker_lost"})
    assert made.approval().open
    made.decide("answer", answer="go on")
    made.reply("done")
    assert made.listed()["in_doubt"] == ["pay"]


# --- authority for what a fallback has done -------------------------------------------------------


def denied_twice(spare_ends: str) -> World:
    """The second "permission denied" in a row goes to the fallback, which does it or is refused too."""
    made = world(
        tool("pay", "external", fallback="spare", has_query=True),
        tool("spare", "external"),
        handover_after=2,
    )
    for n in range(2):
        made.reply(None, ("pay", {"n": n}))
        made.fails(made.command("pay"), "permission", "http_403")
    if spare_ends == "done":
        made.answer(made.command("spare"), result="by the spare")
    else:
        made.fails(made.command("spare"), "permission", "http_401")
    return made


@pytest.mark.parametrize("named", [{}, {"tool": "pay"}])
def test_authority_is_not_asked_for_a_call_that_a_fallback_has_made(named: dict[str, Any]) -> None:
    """Else both would be made. What is left is the first call, which nothing stands in for."""
    made = denied_twice("done")
    made.reply(None, ("ask_authority", {"reason": "r", **named}))
    assert made.approval().action == 2
    made.decide("reject", reason="no")
    made.reply(None, ("ask_authority", {"reason": "r", **named}))
    made.decide("approve")
    made.answer(made.command("pay"), result="in the end")
    made.reply("done")
    assert made.action(4).attempt == 1
    assert made.listed()["completed"] == ["pay", "spare"]


@pytest.mark.parametrize("named", [{}, {"tool": "pay"}, {"tool": "spare"}])
def test_authority_is_asked_for_the_fallback_that_was_refused_too(named: dict[str, Any]) -> None:
    made = denied_twice("refused")
    made.reply(None, ("ask_authority", {"reason": "r", **named}))
    assert (made.approval().tool, made.approval().action) == ("spare", 5)
    made.decide("approve")
    assert made.command("spare").attempt == 2
