"""Summaries: when a model is asked for one, what becomes of it, and that nothing hangs on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from perdure.schemas.records import Budget, BudgetPolicy, ModelSpec, RetryPolicy, Window
from perdure.streams.core.planning import window

from .harness import World, accepted, agent, refused, summarises, tool

OPENAI = ModelSpec(provider="openai", name="m", temperature=0.5, response_schema={"type": "object"})


def world(max_tokens: int = 900, keep_rounds: int = 2, mode: str = "auto", **values: Any) -> World:
    spec = Window(max_tokens=max_tokens, keep_rounds=keep_rounds, mode=mode)  # type: ignore[arg-type]
    spec.long_model = values.pop("long_model", None)
    made = World(tool("look"), agent_spec=agent("look", window=spec, **values))
    made.start(values.get("input", "the task"))
    return made


def turn(made: World, size: int = 300) -> None:
    made.reply(None, ("look", {"step": made.header.step}))
    made.answer(made.command("look"), result=f"result {made.header.step} " + "x" * size)


def to_a_summary(made: World, size: int = 300) -> None:
    """Go on until one is asked for; it stays unanswered."""
    made.summary = ""
    for _ in range(40):
        turn(made, size)
        if any(map(summarises, made.commands)):
            return
    raise AssertionError("no summary was asked for")


def asked(made: World) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = made.command("m").request["messages"]
    return messages


def total(made: World) -> int:
    return int(made.header.input_tokens + made.header.output_tokens)


def test_the_run_waits_for_a_summary_and_then_shows_it() -> None:
    made = world()
    to_a_summary(made)
    step, tokens = made.header.step, total(made)
    action = made.action(made.header.next_action - 1)
    assert (action.kind, action.purpose, action.covers[0]) == ("model", "summary", 0)
    assert made.status == "running"
    told = asked(made)[1]["content"]
    assert "Notes so far:\n(none)" in told
    assert '"content":"the task"' in told
    assert "result 1 xxx" in told
    made.summarise("looked once")
    assert (made.header.step, total(made)) == (step + 1, tokens + 30), "it took no step"
    assert made.types()[-2:] == ["action_proposed", "action_requested"]
    event = next(event for event in made.events if event.type == "context_summarised")
    assert event.data == {
        "n": action.n,
        "from": 0,
        "to": action.covers[1],
        "summary": "looked once",
    }
    assert event.actor == "model:m"
    shown = asked(made)
    assert "So far\n" in shown[0]["content"]
    assert "looked once" in shown[0]["content"]
    assert shown[1] == {"role": "user", "content": "the task"}
    assert sum(message["role"] == "assistant" for message in shown) == 2
    made.reply("done")
    assert made.listed()["completed"] == ["look"] * (step)
    assert made.header.messages > len(shown), "the originals stay"


def test_a_summary_is_extended_by_what_came_since() -> None:
    made = world()
    to_a_summary(made)
    made.summarise("first notes")
    covered = made.header.covered
    to_a_summary(made)
    told = asked(made)[1]["content"]
    assert "Notes so far:\nfirst notes" in told
    assert f"Messages {covered + 1} to" in told
    assert "result 1 " not in told, "what is covered is not read again"
    made.summarise("second notes")
    assert made.run.notes.summary == "second notes"
    assert made.header.covered > covered
    state = [event.data for event in made.events if event.type == "context_summarised"]
    assert [(data["from"], data["to"]) for data in state] == [(0, covered), (covered, made.header.covered)]  # fmt: skip


def test_what_the_model_of_a_summary_is_sent() -> None:
    made = world(2_000, model=OPENAI)
    to_a_summary(made, 900)
    request = made.command("m").request
    assert request["purpose"] == "summary"
    assert "tools" not in request
    assert "response_schema" not in request
    assert (request["temperature"], request["max_output_tokens"]) == (0.5, 500)
    assert window.weight(request["messages"]) <= window.room(made.run)


def test_a_script_has_no_summary_so_one_is_made_of_the_calls() -> None:
    made = world()
    to_a_summary(made)
    stop = made.action(made.header.next_action - 1).covers[1]
    assert made.command("m").request["reply"]["content"].startswith(f"Messages 1 to {stop}. Calls since message 1: look (")  # fmt: skip


def test_a_summary_that_is_too_long_is_cut_with_a_marker() -> None:
    made = world()
    to_a_summary(made)
    made.summarise("z" * 5_000)
    kept = made.run.notes.summary
    assert kept is not None
    assert kept.endswith("[shortened: 5000 characters in all]")
    assert len(kept) <= 3 * 900 // 3


@pytest.mark.parametrize(
    "kind",
    ["content_filter", "context_overflow", "permission", "model_invalid", "invalid_arguments"],
)
def test_a_summary_that_can_not_be_had_is_done_without(kind: str) -> None:
    made = world()
    to_a_summary(made)
    made.fails(made.command("m"), kind)
    assert not made.header.asks
    shown = asked(made)
    assert "left out" in shown[0]["content"]
    assert shown[-1]["content"].startswith('"result')
    turn(made)
    assert summarises(made.command("m")), "the next turn asks for it again"


def test_a_summary_is_tried_again_as_often_as_any_call_and_no_more() -> None:
    made = world(retry=RetryPolicy(attempts=2))
    to_a_summary(made)
    made.fails(made.command("m"), "model_unavailable", "http_503")
    made.timer()
    assert made.command("m").attempt == 2
    assert summarises(made.command("m"))
    made.fails(made.command("m"), "model_unavailable", "http_503")
    assert not summarises(made.command("m"))
    assert not made.header.timers.keys() - {f"act/{made.header.next_action - 1}"}


@pytest.mark.parametrize("reply", [None, {"content": ""}, {"content": 7}, {"tool_calls": []}])
def test_an_answer_without_a_text_is_no_summary(reply: Any) -> None:
    made = world()
    to_a_summary(made)
    made.answer(made.command("m"), result=reply)
    assert "context_summarised" not in made.types()
    assert not summarises(made.command("m"))


def test_a_summary_whose_queue_is_gone_holds_nothing_up_by_itself() -> None:
    made = world()
    made.summary = ""
    while "context_summarised" not in made.types():
        made.queue_problems = {}
        made.reply(None, ("look", {}))
        made.queue_problems = {"models": "agent.commands.models is missing"}
        made.answer(made.command("look"), result="x" * 400)
        (question,) = made.header.asks
        assert made.run.approval(question).action == made.header.next_action - 1
        if made.action(made.header.next_action - 2).purpose == "summary":
            return
        made.queue_problems = {}
        made.decide("retry", n=question)


def test_a_run_that_ends_while_a_summary_is_made_ends() -> None:
    made = world()
    to_a_summary(made)
    made.control("cancel")
    assert made.command("m", "cancel").action_id == f"r1/{made.header.next_action - 1}"
    made.answer(made.command("m", "cancel"), "cancelled")
    assert made.status == "cancelled"


def test_a_summary_that_comes_while_it_ends_is_kept_and_nothing_follows() -> None:
    made = world()
    to_a_summary(made)
    made.control("cancel")
    made.summarise("late")
    assert made.status == "cancelled"
    assert made.run.notes.summary == "late"


def test_a_paused_run_takes_its_summary_and_goes_on_when_it_is_resumed() -> None:
    made = world()
    to_a_summary(made)
    made.control("pause")
    made.summarise("meanwhile")
    assert not made.commands
    made.control("resume")
    assert "meanwhile" in asked(made)[0]["content"]


def test_what_is_said_while_a_summary_is_made_is_read_with_it() -> None:
    made = world()
    to_a_summary(made)
    made.control("message", content="and hurry")
    made.summarise()
    assert asked(made)[-1]["content"] == "and hurry"
    made.reply("done")
    assert made.status == "done", "it was read"


def test_at_the_end_of_the_budget_no_summary_is_made() -> None:
    made = world(budget=BudgetPolicy(steps=4))
    made.summary = ""
    for _ in range(4):
        turn(made, 900)
        while any(map(summarises, made.commands)):
            made.summarise("so far")
    assert made.approval().kind == "budget"
    assert not made.commands
    made.decide("extend", budget=Budget(steps=2))
    assert made.commands


def test_a_fork_to_before_a_summary_has_the_whole_history() -> None:
    source = world()
    to_a_summary(source)
    source.summarise("of the source")
    at = source.types().index("context_summarised") - 3
    made = World(tool("look"), agent_spec=source.agents["demo"])
    made.summary = "of the fork"
    accepted(made.fork(source, at))
    assert made.run.notes.summary == "of the fork"
    assert "of the fork" in asked(made)[0]["content"]


def test_a_fork_takes_a_summary_over_and_makes_one_again_that_was_under_way() -> None:
    source = world()
    to_a_summary(source)
    made = World(tool("look"), agent_spec=source.agents["demo"])
    made.summary = ""
    accepted(made.fork(source))
    assert summarises(made.command("m"))
    assert made.command("m").idempotency_key.startswith("r2/")
    source.summarise("of the source")
    later = World(tool("look"), agent_spec=source.agents["demo"])
    accepted(later.fork(source))
    assert later.run.notes.summary == "of the source"
    assert later.header.covered == source.header.covered


# --- modes ------------------------------------------------------------------------------------


def test_mode_summary_keeps_so_many_rounds_and_no_more() -> None:
    made = world(100_000, keep_rounds=2, mode="summary")
    for n in range(6):
        shown = asked(made)
        assert sum(message["role"] == "assistant" for message in shown) == min(n, 2)
        assert ("So far" in shown[0]["content"]) == (n > 2)
        turn(made)
    assert made.types().count("context_summarised") == 4


def test_mode_summary_without_a_summary_shows_the_last_round() -> None:
    made = world(100_000, keep_rounds=2, mode="summary")
    to_a_summary(made)
    made.fails(made.command("m"), "content_filter")
    shown = asked(made)
    assert [message["role"] for message in shown] == ["system", "user", "assistant", "tool"]
    assert made.action(made.header.next_action - 1).layer == window.SHORT


def test_rounds_that_leave_no_room_are_summarised_with_room_for_the_next_ones() -> None:
    """More rounds are to be kept than fit: as many as fill half, so that not every turn asks."""
    made = world(4_000, keep_rounds=50)
    turns = 60
    for _ in range(turns):
        turn(made, 700)
    assert 2 < made.types().count("context_summarised") < turns // 4
    assert all(made.action(n).layer != window.SHORT for n in range(1, made.header.next_action))


def test_mode_key_state_shows_the_last_round_alone() -> None:
    made = world(100_000, mode="key_state")
    for _ in range(4):
        turn(made)
    made.reply(None, ("pin", {"name": "confirmed_items", "value": ["item1"]}))
    shown = asked(made)
    assert 'Known\n{"confirmed_items":["item1"]}' in shown[0]["content"]
    assert [message["role"] for message in shown] == ["system", "user", "assistant", "tool"]
    assert "context_summarised" not in made.types()


def test_mode_full_asks_a_person_when_the_history_does_not_fit() -> None:
    made = world(600, mode="full")
    while not made.header.asks:
        turn(made)
    question = made.approval()
    assert question.kind == "handover"
    assert "600 fit" in question.question
    sizes_ = question.rule["window"]
    assert sizes_["request"] > sizes_["limit"] == 600
    assert sizes_["request"] == sum(sizes_[name] for name in ("instructions", "tools", "messages"))
    made.decide("retry")
    assert made.approval().kind == "handover", "it still does not fit"
    assert not any(map(summarises, made.sent))


def test_mode_full_gives_what_does_not_fit_to_the_long_model() -> None:
    long = {"provider": "openai", "name": "long", "queue": "large", "timeout_seconds": 300}
    made = world(600, mode="full", long_model=long)
    for _ in range(12):
        command = next(c for c in made.commands if c.target in ("m", "long"))
        if command.target == "long":
            break
        turn(made)
    assert command.request["model"]["name"] == "long"
    assert command.timeout_seconds == 300
    assert window.weight(command.request["messages"]) > 600
    assert len(command.request["messages"]) == made.header.messages + 1
    step = made.header.step
    made.fails(command, "context_overflow", "context_length")
    assert made.approval().kind == "handover"
    assert "the provider refused it" in (made.approval().question or "")
    assert made.header.step == step
    made.decide("retry")
    assert made.command("long").action_id != command.action_id


# --- too long for the provider ----------------------------------------------------------------


def test_a_request_that_is_too_long_is_made_again_with_the_next_layer_at_once() -> None:
    made = world(8_000)
    for _ in range(5):
        turn(made)
    step, first = made.header.step, asked(made)
    made.fails(made.command("m"), "context_overflow", "context_length")
    assert made.run.notes.summary, "the second layer"
    second = asked(made)
    assert made.header.step == step
    assert window.weight(second) < 0.9 * window.weight(first)
    made.fails(made.command("m"), "context_overflow", "context_length")
    third = asked(made)
    assert (made.header.step, window.weight(third)) < (step + 1, window.weight(second))
    assert made.action(made.header.next_action - 1).layer == window.SHORT
    made.reply("done")
    assert made.outcome().complete


def test_past_the_second_layer_no_summary_is_asked_for() -> None:
    made = world(8_000, keep_rounds=3)
    for _ in range(9):
        turn(made)
    made.fails(made.command("m"), "context_overflow", "context_length")
    assert made.types().count("context_summarised") == 1
    turn(made)
    turn(made)
    assert made.action(made.header.next_action - 1).layer == window.SUMMARISED
    made.fails(made.command("m"), "context_overflow", "context_length")
    assert made.action(made.header.next_action - 1).layer == window.SHORT
    assert made.types().count("context_summarised") == 1


def test_a_turn_that_is_made_again_is_not_stopped_by_the_budget_it_has_used() -> None:
    made = world(8_000, budget=BudgetPolicy(steps=4))
    for _ in range(3):
        turn(made)
    made.fails(made.command("m"), "context_overflow", "context_length")
    assert not made.header.asks
    assert made.command("m").action_id == f"r1/{made.header.next_action - 1}"
    made.reply("done")
    assert made.status == "done"


def test_what_the_provider_refused_is_not_tried_again_in_later_turns() -> None:
    made = world(8_000)
    for _ in range(5):
        turn(made)
    failed = window.weight(asked(made))
    made.fails(made.command("m"), "context_overflow", "context_length")
    for _ in range(12):
        assert window.weight(asked(made)) < failed
        turn(made)
    assert made.header.floor == 0


def test_past_the_third_layer_a_person_is_told_the_sizes() -> None:
    made = world(8_000)
    for _ in range(5):
        turn(made)
    step = made.header.step
    for _ in range(3):
        made.fails(made.command("m"), "context_overflow", "context_length")
    question = made.approval()
    assert (question.kind, made.status) == ("handover", "waiting_approval")
    assert "the provider refused it" in (question.question or "")
    assert question.rule["window"]["tools"] == 0
    accepted(made.decide("answer", answer="leave the rest out"))
    assert asked(made)[-1]["content"] == "leave the rest out"
    assert (made.header.step, made.header.refused_tokens) == (step, 0)
    assert made.action(made.header.next_action - 1).layer < window.SHORT, "all is tried again"
    made.reply("done")
    assert made.outcome().complete


# --- the estimate -----------------------------------------------------------------------------


def counted(made: World, tokens: int) -> None:
    """The model answers, and its provider says how many tokens it read."""
    from perdure.schemas.records import Usage

    command = made.command("m")
    reply = {"content": None, "tool_calls": [{"name": "look", "arguments": {}}]}
    made.answer(command, result=reply, usage=Usage(tokens, 1, 0.0))
    made.answer(made.command("look"), result="x" * 600)


def test_what_a_provider_counts_corrects_the_estimate_within_bounds() -> None:
    made = world(1_000, keep_rounds=1)
    made.summary = ""
    turn(made, 600)
    estimate = made.action(made.header.next_action - 1).estimate
    sent = len(json.dumps(asked(made), separators=(",", ":")))
    assert abs(estimate - sent / 3) <= len(asked(made))
    counted(made, 2 * estimate)
    assert made.header.scale == 2_000
    assert window.room(made.run) == 500


def test_a_count_that_can_not_be_is_bounded() -> None:
    few, many = world(1_000), world(1_000)
    for _ in range(12):
        counted(few, 1)
    assert 750 <= few.header.scale < 800, "never below four bytes a token"
    turn(many, 600)
    counted(many, 10**9)
    assert many.header.scale == 4_000


def test_a_small_request_says_little_of_a_full_one() -> None:
    made = world(100_000)
    counted(made, 5_000)
    assert 1_000 < made.header.scale < 1_100


# --- what can't fit ---------------------------------------------------------------------------


def test_an_input_that_fits_in_no_layer_is_refused_with_the_sizes() -> None:
    made = World(tool("look"), agent_spec=agent("look", window=Window(max_tokens=400)))
    refused(made.start("z" * 1_500), "input has about", "instructions", "tools", "400 at most")
    assert not made.events


def test_an_input_for_the_long_model_is_taken() -> None:
    long = {"provider": "openai", "name": "long"}
    spec = Window(max_tokens=400, mode="full", long_model=long)
    made = World(tool("look"), agent_spec=agent("look", window=spec))
    accepted(made.start("z" * 1_500))
    assert made.command("long").request["messages"][-1]["content"] == "z" * 1_500


def test_a_message_or_an_answer_that_fits_in_no_layer_is_refused_with_the_sizes() -> None:
    made = world(400)
    refused(made.control("message", content="z" * 1_500), "content has about", "400 at most")
    made.reply(None, ("ask_user", {"question": "which?"}))
    refused(made.decide("answer", "uma", answer="z" * 1_500), "answer has about")
    accepted(made.decide("answer", "uma", answer="this one"))
    assert asked(made)[-1]["content"] == '"this one"'
