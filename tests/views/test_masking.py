"""Sensitive values are covered wherever a view shows them, also where a run's state can't be made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.schemas import codec, topics
from perdure.schemas.records import RunEvent, ToolSpec
from perdure.streams.core.events import hash_of
from perdure.streams.views.masking import COVER

from .histories import golden
from .world import World, access

TOOL, NAME = "look", "q"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(access(tmp_path / "tokens"))
    yield made
    made.index.close()


def announce(world: World, tool: str, *sensitive: str, version: int = 1) -> None:
    spec = ToolSpec(
        name=tool, description="", effect="external", sensitive=list(sensitive), version=version
    )
    world.board.take(topics.CATALOG, f"tool/{tool}".encode(), codec.encode(spec))


def chained(events: list[RunEvent]) -> list[RunEvent]:
    before = ""
    for version, event in enumerate(events, events[0].version):
        event.version, event.previous_hash = version, before
        event.hash = before = hash_of(event)
    return events


def marked(name: str, run_id: str, tool: str = TOOL, names: str = NAME) -> list[RunEvent]:
    """A recorded history whose tool had marked an argument."""
    events = golden(name, run_id)
    events[0].data["tools"][tool]["sensitive"] = [names]
    return chained(events)


def values(world: World, run_id: str) -> list[Any]:
    """Of the argument, wherever it is shown of the run."""
    answers = world.parts.answers
    story = answers.timeline(run_id, 0, 2000)["entries"]
    whole = [answers.event(run_id, each["version"], uncover=False) for each in story]
    return found(NAME, [story, whole, answers.run(run_id), answers.actions(run_id)])


def found(name: str, value: Any) -> list[Any]:
    if isinstance(value, dict):
        here = [inner for key, inner in value.items() if key == name]
        return here + [one for inner in value.values() for one in found(name, inner)]
    return [one for inner in value for one in found(name, inner)] if type(value) is list else []


def test_a_whole_run(world: World) -> None:
    world.feed(marked("0.1-first-model_loop", "r1"))
    assert set(values(world, "r1")) == {COVER}


def test_a_run_whose_beginning_is_gone_shows_no_value_of_any_call(world: World) -> None:
    events = marked("0.1-first-model_loop", "r1")
    world.feed(events[1:])
    assert values(world, "r1") == []
    assert "arguments" in str(world.parts.answers.timeline("r1", 0, 2000))


def test_an_event_of_a_newer_version_uncovers_nothing(world: World) -> None:
    events = marked("0.1-first-model_loop", "r1")
    later = msgspec.structs.replace(events[-1], type="something_new")
    rows = world.projector.take(world.tables, [codec.encode(e) for e in chained([*events, later])])
    world.index.put(0, rows)
    assert rows[0].gap
    assert set(values(world, "r1")) == {COVER}


def test_the_plan_of_a_run_is_covered_step_by_step(world: World) -> None:
    events = golden("0.1-first-plan", "r1")
    step = next(step for step in events[0].data["plan"] if step.get("arguments"))
    (name, value), *_ = step["arguments"].items()
    events[0].data["tools"][step["tool"]]["sensitive"] = [name]
    world.feed(chained(events))
    begun = world.parts.answers.event("r1", 1, uncover=False)
    shown = next(each for each in begun["data"]["plan"] if each["id"] == step["id"])  # type: ignore[index]
    assert shown["arguments"][name] == COVER
    told = world.parts.answers.event("r1", 1, uncover=True)
    assert value in found(name, told)


@pytest.mark.parametrize("asked", ["pay", None])
def test_calls_before_a_question_are_covered_by_their_own_tools(
    world: World, asked: str | None
) -> None:
    announce(world, "kyc", "ssn")
    announce(world, "pay")
    done = {"action_id": "r1/1", "tool": "kyc", "arguments": {"ssn": "123-45-6789", "of": "kim"}}
    made = world.ask(tool=asked, history={"completed": [done], "errors": []})
    shown = world.parts.answers.shown(made)
    assert shown["history"]["completed"][0]["arguments"] == {"ssn": COVER, "of": "kim"}


def test_a_question_stays_covered_whatever_the_catalog_says_later(world: World) -> None:
    announce(world, "pay", "card", version=2)
    made = world.ask(tool="pay", arguments={"card": "4111"})
    announce(world, "pay", version=1)  # an older worker
    assert world.board.tools()["pay"].version == 2
    assert world.parts.answers.shown(made)["arguments"] == {"card": COVER}
    announce(world, "pay", version=3)  # not marked any more: it was when this was asked
    assert world.parts.answers.shown(made)["arguments"] == {"card": COVER}
    world.board.take(topics.CATALOG, b"tool/pay", None)
    assert world.parts.answers.shown(made)["arguments"] == {"card": COVER}
    assert world.parts.answers.shown(made, uncover=True)["arguments"] == {"card": "4111"}


def test_an_id_that_began_anew_is_told_anew(world: World) -> None:
    world.feed(golden("0.1-first-model_loop", "r1", user_id="old"))
    assert world.parts.answers.run("r1")["run"]["user_id"] == "old"
    new = golden("0.1-first-plan", "r1", 1_760_000_000_000, user_id="new")
    world.feed(new)
    story = world.parts.answers.timeline("r1", 0, 2000)["entries"]
    assert [each["at"] for each in story] == [event.at for event in new]
