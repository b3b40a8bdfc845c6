"""What `perdure show` tells of a run's plan, its key facts and the summary of its history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer
from perdure.schemas import topics
from perdure.schemas.records import Window

from perdure.cli import show
from perdure.cli.show import History
from perdure.reading import state_of
from perdure.topics_reader import NoTopic, Raw
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


class Log:
    """Topics with the tasks that were sent, and those that were buried."""

    def __init__(self, *found: Raw) -> None:
        self._found = found

    def scan(self, names: Sequence[str], **_: Any) -> Iterator[Raw | None]:
        if names == [topics.DEAD_LETTERS] and not self._found:
            raise NoTopic("no right to read it")
        yield from (raw for raw in self._found if raw.topic in names)
        yield None


def sent(value: bytes, at: int, key: bytes = b"k") -> Raw:
    return Raw(topics.TASKS, 1, at, 0, key, value)


def buried(value: bytes, at: int, reason: bytes, detail: bytes, key: bytes = b"k") -> Raw:
    headers = (("reason", reason), ("detail", detail), ("topic", b"agent.tasks"),
               ("partition", b"1"), ("offset", b"%d" % at))  # fmt: skip
    return Raw(topics.DEAD_LETTERS, 0, 0, 0, key, value, headers)


OURS = b'{"task_id": "t~1", "agent": "notes"}'


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (Log(), "there is no run t~1"),
        (Log(sent(OURS, 3)), "t~1 is on agent.tasks, but no engine has read it"),
        (
            Log(sent(OURS, 3), buried(OURS, 3, b"bad_id", b"task_id: ~ is for ids made by us")),
            "t~1 never became a run: task_id: ~ is for ids made by us (bad_id); it lies on",
        ),
        (  # the one that was buried was an earlier one
            Log(sent(OURS, 3), sent(OURS, 9), buried(OURS, 3, b"bad_id", b"x")),
            "t~1 is on agent.tasks, but no engine has read it",
        ),
        (  # the task itself was deleted by its retention
            Log(buried(OURS, 3, b"bad_id", b"x")),
            "t~1 never became a run: x (bad_id)",
        ),
        (
            Log(buried(b'{"task_id": "t~1"', 3, b"not_json", b"not JSON", key=b"t~1")),
            "t~1 never became a run: not JSON (not_json)",
        ),
        (
            Log(buried(b'{"task_id": "t~12"}', 3, b"bad_id", b"another's", key=b"t~1")),
            "there is no run t~1",
        ),
    ],
)
def test_a_task_that_was_buried_is_not_waiting_for_an_engine(
    log: Log, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        show._elsewhere(log, "t~1", False)  # type: ignore[arg-type]
    assert told in capsys.readouterr().err
