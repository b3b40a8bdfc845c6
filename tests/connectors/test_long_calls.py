"""Calls that outlive their time-out because they tell how far they are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import ToolContext, ledger, tool

from .world import World, command

Make = Callable[..., World]
TIMEOUT = 0.25
STEP = 0.1
STEPS = 5


def long_tool(kind: str, effect: str, steps: int = STEPS, silent: float = 0.0) -> Any:
    if kind == "async":

        @tool("t", effect=effect)
        async def walk(context: ToolContext) -> int:
            for n in range(steps):
                await asyncio.sleep(STEP)
                await context.save_progress({"done": n})
            await asyncio.sleep(silent)
            return steps

        return walk

    @tool("t", effect=effect)
    def walk_blocking(context: ToolContext) -> int:
        for n in range(steps):
            threading.Event().wait(STEP)
            context.save_progress({"done": n})
        threading.Event().wait(silent)
        return steps

    return walk_blocking


@pytest.mark.parametrize("kind", ["async", "def"])
@pytest.mark.parametrize("effect", ["idempotent", "external"])
def test_a_call_that_tells_how_far_it_is_runs_on(world: Make, kind: str, effect: str) -> None:
    w = world(long_tool(kind, effect))
    found = w.answer(command(effect=effect, timeout_seconds=TIMEOUT))
    assert (found["status"], found["result"]) == ("succeeded", STEPS)
    told = [each["progress"] for each in w.results() if each["status"] == "progress"]
    assert told == [{"done": n} for n in range(STEPS)]


def test_one_that_falls_silent_is_given_up_a_time_out_later(world: Make) -> None:
    w = world(long_tool("async", "idempotent", steps=2, silent=5))
    found = w.answer(command(effect="idempotent", timeout_seconds=TIMEOUT))
    assert found["error"]["code"] == "read_timeout"


def test_the_ledger_knows_that_the_call_lives(world: Make) -> None:
    go = threading.Event()

    @tool("t", effect="external")
    def act(context: ToolContext) -> None:
        context.save_progress(1)
        go.wait(5)

    w = world(act)
    w.take(command(timeout_seconds=1))
    key = next(key for key in w.store if key.startswith(ledger.OPEN))
    began = w.store[key].at
    w.now += 700
    w.until(lambda: w.store[key].at > began)
    assert ledger.foreign_due(w.store[key]) == w.now + 1_000 + ledger.FOREIGN_GRACE_MS
    go.set()
    w.until(lambda: "succeeded" in w.statuses())
    w.drain()
    assert not [key for key in w.store if key.startswith(ledger.OPEN)]


def test_the_next_attempt_gets_what_was_saved_last(world: Make) -> None:
    seen = []

    @tool("t", effect="idempotent")
    async def act(context: ToolContext) -> None:
        seen.append(context.progress)

    w = world(act)
    w.answer(command(effect="idempotent", attempt=2, progress={"done": 3}))
    assert seen == [{"done": 3}]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_the_same_attempt_after_a_crash_gets_what_was_saved(world: Make, kind: str) -> None:
    go = threading.Event()
    seen: list[Any] = []

    if kind == "async":

        @tool("t", effect="idempotent")
        async def act(context: ToolContext) -> None:
            seen.append(context.progress)
            await context.save_progress({"page": len(seen)})
            while not go.is_set():
                await asyncio.sleep(0.01)

    else:

        @tool("t", effect="idempotent")
        def act(context: ToolContext) -> None:
            seen.append(context.progress)
            context.save_progress({"page": len(seen)})
            go.wait(5)

    w = world(act)
    w.take(command(effect="idempotent"))
    w.until(lambda: any(key.startswith(ledger.PROGRESS) for key in w.store))
    again = world(act, store=w.store)  # the process died
    again.taken_before = True
    go.set()
    again.take(command(effect="idempotent"))
    again.until(lambda: "succeeded" in again.statuses())
    assert seen == [None, {"page": 1}]
    again.until(lambda: not any(key.startswith(ledger.PROGRESS) for key in again.store))
