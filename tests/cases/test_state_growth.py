"""Case D06: what a long run costs. Bytes grow with the steps, not with their square."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import BudgetPolicy

from tests.engine.desk import Desk, agent, tool

from . import inputs

CASE = inputs.of("D06.1")
BYTES = CASE["result_bytes"]


class Counted(Desk):
    """Counts the bytes that go to the changelog and to the topics, by topic."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bytes: dict[str, int] = {"changelog": 0}

    def _merge(self, ctx: Any) -> None:
        before = dict(self.store)
        super()._merge(ctx)
        for key, raw in self.store.items():
            if before.get(key) is not raw:
                self.bytes["changelog"] += len(key) + len(raw)

    def run(self, steps: int, first: Any = None) -> None:
        """One model run with so many calls, each with a result of 4 kB."""
        budget = BudgetPolicy(steps=CASE["task"]["budget"]["steps"], tokens=10**9)
        self.catalog(tool("call"), agent("call", budget=budget))
        self.feed(topics.TASKS, **CASE["task"])
        for number in range(steps):
            calls = [{"name": "call", "arguments": {"n": number}}]
            self.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
            self.answer(
                first if number == 0 and first is not None else chr(97 + number % 26) * BYTES
            )


@pytest.fixture
def make(tmp_path: Path) -> Any:
    numbers = iter(range(9))
    return lambda: Counted(tmp_path / str(next(numbers)))


def sums(made: Counted) -> dict[str, int]:
    found = dict(made.bytes)
    for topic, _, value in made.sent:
        found[topic] = found.get(topic, 0) + len(json.dumps(value))
    return found


def test_d06_bytes_grow_with_the_steps(make: Any) -> None:
    """A third of the case's 300 steps, compared with a third of that."""
    third, whole = make(), make()
    third.run(33)
    whole.run(99)
    small, large = sums(third), sums(whole)
    for name in ("changelog", topics.EVENTS, "agent.commands.models", "agent.commands.tools"):
        assert large[name] < 3.2 * small[name], name
    allowed = CASE["assert_"]["changelog_bytes_max"] / CASE["synthetic_steps"]
    assert large["changelog"] < 99 * allowed
    assert large[topics.EVENTS] < 99 * allowed


def test_d06_a_large_value_is_stored_once_and_referenced(make: Any, tmp_path: Path) -> None:
    image = base64.b64encode(bytes(range(256)) * 1_200).decode()
    plain, pictured = make(), make()
    plain.run(20)
    pictured.run(20, image)
    assert sums(pictured)["changelog"] < sums(plain)["changelog"] + BYTES
    (blob,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert blob.stat().st_size == len(image) + 2


def test_d06_a_finished_run_is_gone_after_its_retention(make: Any) -> None:
    made = make()
    made.run(10)
    made.answer({"content": "done", "tool_calls": [], "finish_reason": "stop"})
    assert made.outcome()["status"] == "done"
    held = sum(len(raw) for raw in made.store.values())
    assert held > 10 * BYTES
    made.tick(7 * 86_400 + 1)
    assert sum(len(raw) for raw in made.store.values()) < 500
    made.feed(topics.TASKS, **CASE["task"])  # its id is still taken
    assert len(made.on(topics.OUTCOMES)) == 1
    made.tick(31 * 86_400)
    assert made.store == {}
    assert made.timers == {}
