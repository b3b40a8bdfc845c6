"""What a model request carries: never more for a longer run, never half a round."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from perdure.schemas.records import BudgetPolicy, Window
from perdure.streams.core.decide.inputs import Control, Decided
from perdure.streams.core.planning import window

from .harness import World, agent, check_pairing, tool

__all__ = ["Control", "Decided"]


def world(max_tokens: int = 500, keep_rounds: int = 5, **task: Any) -> World:
    spec = agent(
        "look", window=Window(max_tokens=max_tokens, keep_rounds=keep_rounds), budget=BudgetPolicy()
    )
    made = World(tool("look"), agent_spec=spec)
    made.start(task.pop("input", "the task"), **task)
    return made


def turn(made: World, calls: int = 1, size: int = 40) -> None:
    made.reply(None, *(("look", {"q": n}) for n in range(calls)))
    for command in list(made.commands):
        made.answer(command, result="x" * size)


def request(made: World) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = made.command("m").request["messages"]
    return messages


def weight(messages: list[dict[str, Any]]) -> int:
    return len(msgspec.json.encode(messages))


def test_a_history_that_fits_is_sent_whole() -> None:
    made = world(8000)
    for _ in range(4):
        turn(made)
    assert [message["role"] for message in request(made)] == [
        "system",
        "user",
        *(["assistant", "tool"] * 4),
    ]


def test_a_long_run_sends_no_larger_request_than_a_short_one() -> None:
    made = world(500, keep_rounds=3)
    for _ in range(120):
        turn(made)
        assert weight(request(made)) <= 4 * 500  # four bytes a token: no report makes it more


def test_a_window_too_small_for_a_summary_keeps_the_task_and_the_last_round() -> None:
    made = world(100, keep_rounds=2)
    for _ in range(20):
        turn(made, size=10)
    roles = [message["role"] for message in request(made)]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "left out" in request(made)[0]["content"]
    assert request(made)[1]["content"] == "the task"
    assert "context_summarised" not in made.types()


@pytest.mark.parametrize("max_tokens", range(100, 900, 50))
@pytest.mark.parametrize("calls", [1, 7])
def test_no_cut_is_between_a_call_and_its_result(max_tokens: int, calls: int) -> None:
    made = world(max_tokens)  # the harness checks the pairing of every request
    for _ in range(6):
        turn(made, calls)


def test_a_giant_result_is_shortened_with_a_marker_and_stays_whole_in_the_state() -> None:
    made = world(1000)
    turn(made, size=50_000)
    shown = request(made)[-1]["content"]
    assert len(shown) < 1100
    assert "shortened: 50002 characters" in shown
    assert len(made.action(2).result) == 50_000


def test_the_task_is_kept_and_not_the_earlier_conversation() -> None:
    turns = [
        {"role": role, "content": f"{role} {n} " + "y" * 400}
        for n in range(10)
        for role in ("user", "assistant")
    ]
    made = world(200, messages=turns, input="what I want now")
    shown = [message["content"] for message in request(made)]
    assert "what I want now" in shown
    for _ in range(10):
        turn(made)
        assert "what I want now" in [message["content"] for message in request(made)]


def test_what_a_person_said_before_the_first_reply_is_not_lost() -> None:
    made = world(800, input="z" * 2000)
    made.control("message", content="and hurry")
    made.fails(made.command("m"), "model_invalid", "no_choices")
    shown = [message["content"] for message in request(made)]
    assert shown[1].startswith("zzz")
    assert "and hurry" in shown


def test_messages_between_rounds_do_not_break_the_pairing() -> None:
    made = world(150)
    for n in range(12):
        made.reply(None, ("look", {"q": n}), *([("nosuch", {})] if n % 2 else []))
        made.control("message", content=f"note {n}")
        made.answer(made.command("look"), result="x" * 60)
    assert "note 11" in [message["content"] for message in request(made)]


def test_the_window_of_any_moment_pairs_calls_and_results() -> None:
    made = world(8000)
    made.reply(None, ("look", {}), ("look", {}))
    made.answer(made.command("look"), result=1)
    check_pairing(window.request_messages(made.run))


def test_a_run_of_500_steps_is_bounded_and_whole() -> None:
    made = world(400, keep_rounds=2)
    for _ in range(500):
        turn(made, size=30)
        assert weight(request(made)) <= 4 * 400
    assert len(msgspec.json.encode(made.header)) < 3000
    assert made.header.step == 501
    assert made.header.messages == 1001
