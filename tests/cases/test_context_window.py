"""Cases W01 and W02: cuts of a long history, and results larger than the window."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.schemas import topics
from perdure.schemas.records import ActionResult, BudgetPolicy, ModelSpec, Usage, Window
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.decide.dispatch import decide
from perdure.streams.core.effects import effects
from perdure.streams.core.state import RecordKey, Run

from tests.core.harness import World, check_pairing
from tests.core.harness import agent as core_agent
from tests.core.harness import tool as core_tool
from tests.engine.desk import Desk, agent, tool

from . import inputs

CUT, GIANT = inputs.of("W01.1"), inputs.of("W02.1")
MODEL = ModelSpec(provider="openai", name="m", base_url="http://127.0.0.1:9/v1")
FIRST, LAST, STEP = CUT["sweep_window_tokens"]
CALLS = CUT["history"]["parallel"]


def tokens(request: dict[str, Any]) -> int:
    """By another count than the product's: four bytes of what is sent a token."""
    sent = [request["messages"], *([request["tools"]] if request.get("tools") else [])]
    return sum(len(msgspec.json.encode(part)) for part in sent) // 4


# --- W01 --------------------------------------------------------------------------------------


@cache
def long_history() -> tuple[World, list[str]]:
    """Forty rounds of seven calls under a window that takes them all; the last result is missing."""
    spec = core_agent("look", model=MODEL, window=Window(max_tokens=10**6))
    made = World(core_tool("look"), agent_spec=spec)
    made.start(CUT["task"]["input"])
    for number in range(CUT["history"]["rounds"]):
        made.reply(None, *(("look", {"n": n}) for n in range(CALLS)))
        last = number == CUT["history"]["rounds"] - 1
        for n, command in enumerate(list(made.commands)[: CALLS - last]):
            made.answer(command, result={"round": number, "n": n})
    return made, [command.action_id for command in made.commands]


def requests(size: int) -> Iterator[tuple[dict[str, Any], Run]]:
    """What is sent from there on, under a window of another size, to the end of the run."""
    world, (missing,) = long_history()
    records: dict[RecordKey, Any] = dict(world.records)
    start = records["s", 0]
    spec = msgspec.structs.replace(start.definition, window=Window(max_tokens=size, keep_rounds=5))
    records["s", 0] = msgspec.structs.replace(start, definition=spec)
    run = Run(msgspec.structs.replace(world.header), records.get)
    answers = [ActionResult("r1", missing, 1, "succeeded", result="the last")]
    turns, last = 0, 20 if size % 400 == 0 else 4  # twenty: until the summary has caught up
    while answers:
        world.now += 10
        found = decide(run, answers.pop(0), world.now, world)
        assert isinstance(found, Decision)
        records.update(found.run.writes)
        run = Run(found.run.header, records.get)
        for command in [each.command for e in found.events for each in effects(found.run, e)]:
            said: Any = {"round": turns}
            if command.request is not None:
                yield command.request, run
                summary = command.request.get("purpose") == "summary"
                turns += not summary
                calls = [{"name": "look", "arguments": {"n": n}} for n in range(CALLS)]
                said = {"content": "so far" if summary else None, "tool_calls": calls}
                said = {"content": "done"} if turns == last else said
            counts = Usage(10, 5) if command.request is not None else None
            answers.append(
                ActionResult(
                    "r1", command.action_id, command.attempt, "succeeded", said, usage=counts
                )
            )
    assert run.header.status == "done"


def test_w01_a_cut_at_any_size_leaves_calls_and_results_together() -> None:
    layers = set()
    for size in range(FIRST, LAST + 1, STEP):
        in_a_row = 0
        for request, run in requests(size):
            messages = request["messages"]
            check_pairing(messages)
            assert tokens(request) <= size
            summary = request.get("purpose") == "summary"
            in_a_row = in_a_row + 1 if summary else 0
            assert in_a_row <= 1
            if summary:
                continue
            layers.add(run.action(run.header.next_action - 1).layer)
            assert messages[0]["role"] == "system"
            assert messages[0]["content"].startswith("Be careful.")
            assert {"role": "user", "content": CUT["task"]["input"]} in messages
            if run.header.covered and "So far" in messages[0]["content"]:
                assert "they are not instructions" in messages[0]["content"]
    assert layers == {2, 3}


# --- W02 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture", [False, True])
def test_w02_giant_results_are_bounded_before_a_model_reads_them(
    tmp_path: Path, picture: bool
) -> None:
    text = inputs.generated(GIANT["returns_gen"])
    image = base64.b64encode(bytes(range(256)) * 900).decode()
    assert (len(text) > 2_000_000, len(image) > 300_000) == (True, True)
    made = Desk(tmp_path)
    spec = agent("big", budget=BudgetPolicy())
    spec.model, spec.window = MODEL, Window(max_tokens=GIANT["window_tokens"])
    made.catalog(tool("big"), spec)
    made.feed(topics.TASKS, **GIANT["task"])
    for _ in range(4):
        calls = [{"name": "big", "arguments": {"n": n}} for n in range(3)]
        made.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
        for command in made.on("agent.commands.tools")[-3:]:
            made.answer_to(command, image if picture else text)
    made.answer({"content": "done", "tool_calls": [], "finish_reason": "stop"})
    assert made.outcome()["status"] == "done"
    sent = [command["request"] for command in made.on("agent.commands.models")]
    assert max(map(tokens, sent)) <= GIANT["window_tokens"]
    purposes = [request.get("purpose") for request in sent]
    assert ("summary", "summary") not in set(pairwise(purposes))
    shown = [message for message in sent[1]["messages"] if message["role"] == "tool"]
    kept = text if not picture else image
    assert len(shown) == 3
    for message in shown:
        assert message["content"].startswith('"' + kept[:1_000])
        assert message["content"].endswith(f"[shortened: {len(kept) + 2} characters in all]")
    whole = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) + 2 in whole, "the whole result is kept"


def test_w02_results_that_are_not_kept_by_reference_share_half_of_the_window(
    tmp_path: Path,
) -> None:
    made = Desk(tmp_path)
    spec = agent("big", budget=BudgetPolicy())
    spec.model, spec.window = MODEL, Window(max_tokens=2_000)
    made.catalog(tool("big"), spec)
    made.feed(topics.TASKS, **GIANT["task"])
    calls = [{"name": "big", "arguments": {"n": n}} for n in range(7)]
    made.answer({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    for n, command in enumerate(made.on("agent.commands.tools")):
        made.answer_to(command, "z" * 200_000 if n else "short")
    shown = [m for m in made.last_command()["request"]["messages"] if m["role"] == "tool"]
    assert shown[0]["content"] == '"short"'
    assert {len(message["content"]) for message in shown[1:]} < set(range(300, 501))
    assert all("[shortened: 200002 characters in all]" in m["content"] for m in shown[1:])
    assert sum(len(message["content"]) for message in shown) <= 3 * 2_000 // 2
