"""Five hundred rounds in a window of 8,000 tokens: every round costs alike, and a crash changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from perdure.schemas import topics
from perdure.schemas.records import BudgetPolicy, ModelSpec, Window
from perdure.streams.core.state import Run
from perdure.streams.engine.checkpoints import Stored, load

from tests.engine.desk import Desk, agent, tool

ROUNDS: Final = 500
WINDOW: Final = 8_000
CRASHES: Final = (137, 138, 402)


class Long(Desk):
    """One run; what each request weighs, by a count of our own (four bytes a token)."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        spec = agent("look", budget=BudgetPolicy(), window=Window(max_tokens=WINDOW))
        spec.model = ModelSpec(provider="openai", name="m")
        self.catalog(tool("look"), spec)
        self.feed(topics.TASKS, task_id="r1", agent="demo", input="the task")
        self.weights: list[int] = []
        """Of each round: all that models read in it."""
        self.largest = 0
        self.summaries = 0

    def round(self, number: int) -> None:
        weight = 0
        for said in (
            {"content": f"so far: {number}" + "s" * 2_000},
            {"tool_calls": [{"name": "look", "arguments": {"n": number}}]},
        ):
            request = self.last_command()["request"]
            summary = request.get("purpose") == "summary"
            if summary == ("content" in said):
                size = (
                    len(msgspec.json.encode([request["messages"], request.get("tools", [])])) // 4
                )
                weight += size
                self.largest = max(self.largest, size)
                self.summaries += summary
                self.answer_to(self.last_command(), said)
        self.answer_to(self.last_command(), {"number": number, "text": "x" * 900})
        self.weights.append(weight)
        # What was sent is not looked at again; kept, it would make each round slower than the last.
        kept = self.sent[-1:]
        self.seen += [(topic, key) for topic, key, _ in self.sent]
        self.events += [value for topic, _, value in self.sent if topic == topics.EVENTS]
        self.sent = kept

    seen: list[Any]
    events: list[Any]

    def play(self, rounds: int, crashes: tuple[int, ...] = ()) -> Run:
        self.seen, self.events = [], []
        for number in range(rounds):
            if number in crashes:
                self.take_over()  # nothing that was only in memory is there any more
            self.round(number)
        found = load(Stored(self.store), "r1")
        assert found is not None
        return found[0]


def records(run: Run) -> dict[str, Any]:
    found = {"header": msgspec.to_builtins(run.header), "n": msgspec.to_builtins(run.notes)}
    for kind, count in (("a", run.header.next_action), ("m", run.header.messages)):
        found |= {f"{kind}{n}": msgspec.to_builtins(run.get((kind, n))) for n in range(count)}
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Long, Run]:
    made = Long(tmp_path_factory.mktemp("long"))
    return made, made.play(ROUNDS)


def test_requests_are_bounded_and_every_hundred_rounds_cost_the_same(
    played: tuple[Long, Run],
) -> None:
    made, run = played
    assert run.header.step == ROUNDS + 1
    assert made.largest <= WINDOW
    assert 10 < made.summaries < ROUNDS // 4
    assert run.header.messages == 1 + 2 * ROUNDS, "the originals stay"
    early, late = sum(made.weights[100:200]), sum(made.weights[400:500])
    assert late < 1.2 * early
    assert len(msgspec.json.encode(run.header)) < 3_000
    assert len(msgspec.json.encode(run.notes)) < WINDOW


def test_a_run_that_crashes_on_its_way_does_the_same(
    played: tuple[Long, Run], tmp_path: Path
) -> None:
    made, run = played
    crashed = Long(tmp_path)
    again = crashed.play(ROUNDS, CRASHES)
    assert crashed.weights == made.weights
    assert [event["data"] for event in crashed.events] == [event["data"] for event in made.events]
    assert records(again) == records(run)


def test_a_purged_run_leaves_no_notes(tmp_path: Path) -> None:
    made = Long(tmp_path)
    made.play(60)
    assert any(key.startswith(b"n/r1/") for key in made.store)
    made.answer({"content": "done"})
    made.tick(7 * 86_400 + 1)
    assert not [key for key in made.store if b"/r1/" in key]
