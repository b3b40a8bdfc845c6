"""What a worker counts of its calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from perdure.connectors.errors import BusinessError
from perdure.connectors.models.provider import ModelContext, Reply
from perdure.connectors.tool import tool
from perdure.schemas.records import Usage

from .world import World, command


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for each in made:
        each.close()


def seen(w: World, name: str) -> Any:
    (family,) = [each for each in w.worker.measures.families if each.name == name]
    return family.values()


def test_calls_by_target_and_outcome(worlds: list[World]) -> None:
    @tool("t", effect="read_only")
    async def t(n: int) -> int:
        if n > 1:
            raise BusinessError("no such order")
        w.now += 40
        return n

    worlds.append(w := World([t]))
    w.answer(command(arguments={"n": 1}))
    w.take(command(arguments={"n": 2}, action_id="r/2"))
    w.until(lambda: w.statuses().count("failed") == 1)
    w.take(command("none", action_id="r/3"))
    assert seen(w, "calls") == {
        ("t", "succeeded", "none"): 1,
        ("t", "failed", "business"): 1,
        ("none", "failed", "unavailable"): 1,
    }
    counts, total = seen(w, "call_seconds")[("t",)]
    assert (counts[-1], total) == (2, 0.04)


def test_calls_under_way_those_that_wait_and_threads(worlds: list[World]) -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    @tool("t", effect="read_only")
    def t() -> None:
        begun.release()
        end.wait(10)

    worlds.append(w := World([t], threads_per_tool=2))
    for n in range(5):
        w.take(command(action_id=f"r/{n}"))
    assert begun.acquire(timeout=5)
    assert begun.acquire(timeout=5)
    now = {name: seen(w, name)[()] for name in ("calls_running", "calls_waiting", "threads_busy")}
    assert now == {"calls_running": 2, "calls_waiting": 3, "threads_busy": 2}
    end.set()
    w.until(lambda: len(w.results()) == 5)
    w.until(lambda: seen(w, "threads_busy") == {(): 0})
    assert seen(w, "calls_running") == {(): 0}


def test_tokens_and_cost_of_a_model(worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    class Paid:
        async def complete(self, request: Any, context: ModelContext) -> Reply:
            return Reply("hi", [], "stop", usage=Usage(input_tokens=7, output_tokens=3, cost=0.5))

    worlds.append(w := World(models=True))
    assert w.worker._models is not None
    monkeypatch.setattr(w.worker._models, "get", lambda name: Paid())
    request = {"model": {"provider": "paid", "name": "m"}, "messages": []}
    w.answer(command("m", request=request, arguments=None))
    assert seen(w, "model_tokens") == {("m", "input"): 7, ("m", "output"): 3}
    assert seen(w, "model_cost") == {("m",): 0.5}
