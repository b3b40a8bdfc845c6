"""What `perdure show` tells of a run's plan, its key facts and the summary of its history."""

from __future__ import annotations

import json
from typing import Any

import pytest
from perdure.schemas.records import Window

from perdure.cli import show
from perdure.cli.show import History
from perdure.reading import state_of
from tests.core.harness import World, agent, tool


@pytest.fixture
def made() -> World:
    spec = agent("look", window=Window(max_tokens=900, keep_rounds=2))
    world = World(tool("look", sensitive=["code"]), agent_spec=spec)
    world.summary = "looked at many things"
    world.start("the task")
    items = [
        {"title": "look", "status": "in_progress"},
        {"title": "pay\u202e", "status": "pending"},
    ]
    world.reply(None, ("update_plan", {"items": items}))
    world.reply(None, ("pin", {"name": "order", "value": {"id": 7, "code": "4711"}}))
    while not world.header.covered:
        world.reply(None, ("look", {}))
        world.answer(world.command("look"), result="x" * 400)
    return world


def shown(made: World, capsys: pytest.CaptureFixture[str], *, uncover: bool = False) -> str:
    history = History(uncover)
    for event in made.events:
        history.take(event)
    show._print(history, -1, False, False, None)
    return capsys.readouterr().out


def test_plan_key_facts_and_summary_are_shown(
    made: World, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(made, capsys)
    assert "plan, 0 of 2 done: look in_progress, pay\\u202e pending" in text
    assert '\n  key fact order: {"id":7,"code":"***"}\n' in text, "as it is now"
    assert ' Key fact order: {"code":"***","id":7}\n' in text, "and when it came"
    covered, whole = made.header.covered, made.header.messages
    assert f"summary of messages 1 to {covered} of {whole}:" in text
    assert "    looked at many things" in text
    assert f"Messages 1 to {covered} summarised: looked at many things" in text
    assert "To-do list of 2: look in progress" in text
    assert "4711" not in text


def test_the_state_has_them_as_json(made: World) -> None:
    state: dict[str, Any] = json.loads(json.dumps(state_of(made.run)))
    assert state["summary"] == "looked at many things"
    assert state["key_state"] == {"order": {"id": 7, "code": "***"}}
    assert state_of(made.run, uncover=True)["key_state"]["order"]["code"] == "4711"
    assert [item["title"] for item in state["plan"]] == ["look", "pay\u202e"]
    assert (state["current_step"], state["steps_done"], state["steps_total"]) == ("look", 0, 2)
