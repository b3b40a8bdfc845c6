"""What a model keeps in view: `pin` a key fact, `update_plan` the to-do list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from perdure.schemas.records import Window
from perdure.streams.core.policies import outcome

from .harness import World, accepted, agent, tool

TODO = [
    {"title": "look", "status": "done"},
    {"title": "pay", "status": "in_progress"},
    {"title": "tell", "status": "pending", "id": "mail"},
]


def world(max_tokens: int = 8_000, *tools: Any) -> World:
    own = tools or (tool("look"),)
    names = [each.name for each in own]
    made = World(*own, agent_spec=agent(*names, window=Window(max_tokens=max_tokens)))
    made.start()
    return made


def result(made: World) -> str:
    """What the model reads as the result of its last call."""
    content: str = made.command("m").request["messages"][-1]["content"]
    return content


def system(made: World) -> str:
    content: str = made.command("m").request["messages"][0]["content"]
    return content


def state(made: World) -> dict[str, Any]:
    return outcome.run_state(made.run, [])


def test_a_fact_is_kept_at_once_and_stands_under_known() -> None:
    made = world()
    made.reply(None, ("pin", {"name": "order", "value": {"id": 7}}))
    assert not made.header.asks
    assert result(made) == '{"kept":"order","facts":["order"]}'
    assert system(made) == 'Be careful.\n\nKnown\n{"order":{"id":7}}'
    made.reply(
        None, ("pin", {"name": "items", "value": ["a"]}), ("pin", {"name": "order", "value": 8})
    )
    assert system(made).endswith('Known\n{"items":["a"],"order":8}')
    assert state(made)["key_state"] == {"order": 8, "items": ["a"]}
    made.reply(None, ("pin", {"name": "order", "value": None}))
    assert result(made) == '{"removed":"order","facts":["items"]}'
    assert state(made)["key_state"] == {"items": ["a"]}
    made.reply("done")
    assert made.listed() == {"completed": [], "not_completed": [], "in_doubt": []}
    assert made.outcome().complete


@pytest.mark.parametrize(
    "given",
    [{"name": "a"}, {"value": 1}, {"name": "1st", "value": 1}, {"name": "a" * 61, "value": 1}],
)
def test_a_fact_without_a_name_or_a_value_is_told(given: dict[str, Any]) -> None:
    made = world()
    made.reply(None, ("pin", given))
    assert result(made).startswith("Error: invalid arguments")
    assert state(made)["key_state"] is None


def test_a_value_that_is_too_large_is_told_and_not_kept() -> None:
    made = world()
    made.reply(None, ("pin", {"name": "a", "value": "x" * 4_094}))
    made.reply(None, ("pin", {"name": "b", "value": "x" * 4_095}))
    assert "value: has 4097 bytes of JSON; at most 4096 are kept: shorten it" in result(made)
    assert list(state(made)["key_state"]) == ["a"]


def test_all_facts_together_take_a_quarter_of_the_window() -> None:
    made = world(1_000)
    for name in "abc":
        made.reply(None, ("pin", {"name": name, "value": name * 300}))
    assert "a quarter of the window" in result(made)
    assert "bytes: c 302, b 302, a 302" in result(made) or "a 302, b 302, c 302" in result(made)
    assert sorted(state(made)["key_state"]) == ["a", "b"]
    made.reply(
        None, ("pin", {"name": "a", "value": None}), ("pin", {"name": "c", "value": "c" * 300})
    )
    assert sorted(state(made)["key_state"]) == ["b", "c"]


def test_a_to_do_list_is_the_runs_progress() -> None:
    made = world()
    assert (made.header.current_step, made.header.steps_total) == ("m", None)
    made.reply(None, ("update_plan", {"items": TODO}))
    assert result(made) == '{"items":3,"left":2}'
    found = state(made)
    assert found["plan"] == [
        {"id": "1", "title": "look", "status": "done"},
        {"id": "2", "title": "pay", "status": "in_progress"},
        {"id": "mail", "title": "tell", "status": "pending"},
    ]
    assert (found["current_step"], found["steps_done"], found["steps_total"]) == ("pay", 1, 3)
    known = json.loads(system(made).rpartition("\n")[2])
    assert known == {"plan": [{"title": i["title"], "status": i["status"]} for i in TODO]}
    made.reply(None, ("look", {}))
    made.answer(made.command("look"), result=1)
    found = state(made)
    assert (found["current_step"], found["steps_done"]) == ("pay", 1), "turns do not change it"
    made.reply("done")
    assert made.outcome().complete, "a list that is not done is no call that is missing"


def test_an_empty_list_is_none() -> None:
    made = world()
    made.reply(None, ("update_plan", {"items": TODO}))
    made.reply(None, ("update_plan", {"items": []}))
    found = state(made)
    assert (found["plan"], found["steps_total"], found["steps_done"]) == ([], None, 2)
    assert found["current_step"] == "m"
    assert system(made) == "Be careful."


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([{"title": "a", "status": "open"}], "invalid arguments"),
        ([{"title": "", "status": "done"}], "invalid arguments"),
        ([{"title": "a", "status": "done"}] * 51, "invalid arguments"),
        ([{"title": "a", "status": "done", "id": "x"}] * 2, "the id x stands there twice"),
    ],
)
def test_a_broken_list_is_told(items: list[Any], told: str) -> None:
    made = world()
    made.reply(None, ("update_plan", {"items": items}))
    assert told in result(made)
    assert state(made)["plan"] == []


def test_a_list_that_takes_too_much_of_the_window_is_told() -> None:
    made = world(1_000)
    made.reply(None, ("update_plan", {"items": [{"title": "t" * 90, "status": "pending"}] * 9}))
    assert "a quarter of the window" in result(made)
    assert state(made)["plan"] == []


@pytest.mark.parametrize("name", ["pin", "update_plan"])
def test_a_tool_of_the_agents_own_takes_the_place(name: str) -> None:
    made = world(8_000, tool(name, "external"))
    made.reply(None, (name, {"anything": 1}))
    assert made.command(name).effect == "external"
    assert "Known" not in str(made.sent[0].request)


def test_calls_of_a_paused_run_are_kept_when_it_is_resumed() -> None:
    made = world()
    made.control("pause")
    made.reply(None, ("pin", {"name": "a", "value": 1}), ("update_plan", {"items": TODO}))
    assert state(made)["key_state"] is None
    made.control("resume")
    assert state(made)["key_state"] == {"a": 1}
    assert "Known" in system(made)


def test_a_fork_keeps_what_was_pinned_and_begins_between_a_call_and_its_fact() -> None:
    source = world()
    source.reply(None, ("pin", {"name": "a", "value": 1}))
    for at in (None, source.types().index("key_state_changed")):
        made = World(tool("look"), agent_spec=source.agents["demo"])
        accepted(made.fork(source, at))
        assert state(made)["key_state"] == {"a": 1}
        assert "Known" in system(made)
