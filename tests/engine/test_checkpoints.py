"""Snapshots and journal: the state after a crash is the same for every cadence."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.schemas import topics
from perdure.schemas.records import Checkpoint
from perdure.streams.core.apply import BrokenHistory
from perdure.streams.core.state import Run
from perdure.streams.engine import layout
from perdure.streams.engine.checkpoints import Stored, load

from tests.engine.desk import Desk, agent, tool

CADENCES = {
    "1": Checkpoint(every_steps=1),
    "3": Checkpoint(every_steps=3),
    "10": Checkpoint(every_steps=10),
    "never": Checkpoint(every_steps=1_000_000, every_seconds=1e9),
    "4 s": Checkpoint(every_steps=1_000_000, every_seconds=4),
}
TOOLS = ("look", "put", "pay")


def desk(directory: Path, cadence: Checkpoint) -> Desk:
    made = Desk(directory)
    made.catalog(
        tool("look"),
        tool("put", effect="idempotent"),
        tool("pay", effect="external", approval="arguments.n > 6"),
        agent(*TOOLS, checkpoint=cadence),
    )
    return made


def plan(chance: random.Random, steps: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "id": f"s{i}",
            "tool": chance.choice(TOOLS),
            "arguments": {"n": i, "big": 2**70 + i, "half": i / 3},
            "depends_on": [f"s{j}" for j in range(i) if chance.random() < 0.3],
        }
        for i in range(steps)
    ]


def stored(made: Desk, run_id: str = "r1") -> Run:
    found = load(Stored(made.store), run_id)
    assert found is not None
    return found[0]


def whole(run: Run) -> dict[str, Any]:
    """Everything of a run but what the agent's definition, which holds the cadence, makes of it."""
    header = msgspec.to_builtins(run.header)
    del header["hash"]
    found: dict[str, Any] = {"header": header}
    for kind, count in (
        ("a", run.header.next_action),
        ("m", run.header.messages),
        ("p", run.header.next_approval),
    ):
        for n in range(count):
            found[f"{kind}{n}"] = msgspec.to_builtins(run.get((kind, n)))
    return found


def play(made: Desk, seed: int, crash: bool) -> list[dict[str, Any]]:
    """A run with failures, doubles, approvals and waits; the state after each happening."""
    chance = random.Random(seed)
    states: list[dict[str, Any]] = []
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=plan(chance))
    seen = 0
    for _ in range(400):
        forget = chance.random() < 0.3
        if crash and forget:
            made.memos.clear()
        states.append(whole(stored(made)))
        if states[-1]["header"]["status"] in ("done", "failed", "cancelled"):
            return states
        commands = [value for topic, _, value in made.sent if topic.startswith("agent.commands.")]
        if chance.random() < 0.15 or seen == len(commands):
            asked = made.on(topics.PENDING)
            if asked and asked[-1] is not None:
                words = {"approve", "mark_done", "retry"} & set(asked[-1]["allowed_decisions"])
                made.feed(
                    topics.APPROVALS,
                    approval_id=asked[-1]["approval_id"],
                    decision=sorted(words)[0],
                    approver="ann",
                    reason="looked",
                )
            made.tick(chance.choice([0.5, 2, 40]))
            continue
        command = commands[seen]
        seen += chance.random() > 0.1  # sometimes the answer comes twice
        status, error = chance.choice(
            [("started", None)]
            + [("succeeded", None)] * 4
            + [("failed", {"kind": "transient", "code": "rate_limited"})]
        )
        result = {name: command[name] for name in ("run_id", "action_id", "attempt")} | {
            "status": status,
            "result": {"n": 2**65, "text": "é"},
        }
        made.feed(topics.RESULTS, **result, **({"error": error} if error else {}))
    raise AssertionError(f"seed {seed}: the run did not end: {states[-1]['header']}")


@pytest.mark.parametrize("seed", range(12))
def test_the_state_after_a_crash_is_the_same_for_every_cadence(tmp_path: Path, seed: int) -> None:
    expected = play(desk(tmp_path, Checkpoint(every_steps=1)), seed, crash=False)
    assert len(expected) > 12
    for name, cadence in CADENCES.items():
        found = play(desk(tmp_path, cadence), seed, crash=True)
        assert found == expected, f"cadence {name}"


def test_between_snapshots_only_the_journal_is_written(tmp_path: Path) -> None:
    made = desk(tmp_path, CADENCES["3"])
    steps = [{"id": f"s{i}", "tool": "look", "arguments": {"n": i}} for i in range(7)]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    versions = []
    for _ in range(6):
        made.answer({})
        header = Stored(made.store).get(layout.header("r1"))
        versions.append(header.step)
        assert stored(made).header.step > header.step or header.step % 3 == 1
    assert versions == [1, 1, 4, 4, 4, 7]
    made.answer({})
    assert not [key for key in made.store if key.startswith(layout.journal("r1"))]


def test_an_external_call_has_a_snapshot_of_its_own(tmp_path: Path) -> None:
    made = desk(tmp_path, CADENCES["never"])
    steps = [{"id": "a", "tool": "look"}, {"id": "b", "tool": "pay", "arguments": {"n": 1}}]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    made.answer({})
    header = Stored(made.store).get(layout.header("r1"))
    assert header.step == 2
    assert header.version == stored(made).header.version


def test_a_gap_in_the_journal_is_no_state(tmp_path: Path) -> None:
    made = desk(tmp_path, CADENCES["never"])
    steps = [{"id": f"s{i}", "tool": "look"} for i in range(4)]
    made.feed(topics.TASKS, task_id="r1", agent="demo", plan=steps)
    made.answer({})
    made.answer({})
    entries = sorted(key for key in made.store if key.startswith(layout.journal("r1")))
    assert len(entries) == 2
    del made.store[entries[0]]
    with pytest.raises(BrokenHistory, match="journal"):
        stored(made)
