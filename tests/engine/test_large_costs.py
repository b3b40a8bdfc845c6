"""Costs that add up to more than a number holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perdure.schemas import topics
from perdure.schemas.records import BudgetPolicy, ModelSpec, Prices

from .desk import Desk, agent, tool


def test_a_sum_of_costs_is_a_number(tmp_path: Path) -> None:
    """It was infinite: null in the outcome and in every event that told it."""
    desk = Desk(tmp_path)
    dear = ModelSpec(provider="openai", name="m", prices=Prices(input=1e308, output=1e308))
    demo = agent("look", budget=BudgetPolicy())
    demo.model = dear
    desk.catalog(tool("look"), demo)
    desk.feed(topics.TASKS, task_id="r", agent="demo", input="x")
    replied(desk, {"tool_calls": [{"name": "look", "arguments": {}}]}, 2**53)
    desk.answer(1)
    replied(desk, {"content": "done"}, 1, 1.7e308)
    told = [event["data"]["usage"] for event in desk.on(topics.EVENTS) if "usage" in event["data"]]
    assert [usage["cost"] for usage in told] == [sys.float_info.max, 1.7e308]
    assert desk.outcome()["usage"]["cost"] == sys.float_info.max
    assert json.loads(json.dumps(desk.outcome(), allow_nan=False)) == desk.outcome()


def replied(desk: Desk, reply: dict[str, object], tokens: int, cost: float = 0) -> None:
    command = desk.last_command()
    desk.feed(
        topics.RESULTS,
        run_id="r",
        action_id=command["action_id"],
        attempt=1,
        status="succeeded",
        result=reply,
        usage={"input_tokens": tokens, "output_tokens": tokens, "cost": cost},
    )
