"""What happens in many runs, a line each: `perdure runs --follow`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from perdure.schemas.records import RunEvent

from perdure.cli import runs as body
from perdure.cli import stories as stories_of
from perdure.cli.stories import Stories
from perdure.cli.timeline import lines
from perdure.topics_reader import Raw
from tests.core.harness import PlanStep, World, agent, tool


class Log:
    """agent.events as a list; ``reads`` counts how often somebody began at its start."""

    def __init__(self, events: Sequence[RunEvent]) -> None:
        self.events = list(events)
        self.reads: list[str | None] = []

    def raws(self, start: int = 0, end: int | None = None) -> list[tuple[Raw, RunEvent]]:
        made = enumerate(self.events)
        found = [(_raw(offset, event), event) for offset, event in made]
        return found[start:end]

    def scan(
        self, names: Sequence[str], *, run_id: str | None = None, follow: bool = False
    ) -> Iterator[Raw | None]:
        self.reads.append(run_id)
        yield from (raw for raw, _ in self.raws())
        yield None


def _raw(offset: int, event: RunEvent) -> Raw:
    return Raw("agent.events", 0, offset, 0, event.run_id.encode(), msgspec.json.encode(event), ())


def history(run_id: str) -> list[RunEvent]:
    """A run that looked something up with a secret, and ended."""
    world = World(tool("look", sensitive=["code"]), agent_spec=agent("look"))
    world.start("the task")
    world.reply(None, ("look", {"code": "4711"}))
    world.answer(world.command("look"), result={"code": "4711", "found": 2})
    world.reply("found it")
    assert world.header.status == "done"
    return [msgspec.structs.replace(event, run_id=run_id) for event in world.events]


def told(
    log: Log, start: int = 0, end: int | None = None, stories: Stories | None = None
) -> list[tuple[str, str]]:
    """What is told of a part of the log as it comes."""
    made = Stories(log) if stories is None else stories  # type: ignore[arg-type]
    return [line for raw, event in log.raws(start, end) if (line := made.tell(raw, event))]


def types(events: Sequence[RunEvent]) -> list[str]:
    return [event.type.replace("_", " ") for event in events]


def test_lines_are_those_of_show_and_secrets_stay_covered() -> None:
    events = history("r1")
    log = Log(events)
    found = told(log)
    assert log.reads == [], "a run that begins before our eyes is not read again"
    plain = [(who, what) for _, _, who, what in lines(events)]
    assert [what.replace("***", "4711") for _, what in found] == [what for _, what in plain]
    assert "***" in json.dumps(found)
    assert "4711" not in json.dumps(found)


def test_a_run_met_in_its_middle_is_read_once_from_its_beginning() -> None:
    log = Log([*history("r2"), *history("r1")])
    middle = len(log.events) * 3 // 4
    found = told(log, middle)
    assert found == told(Log(history("r1")))[-len(found) :]
    assert log.reads == ["r1"]
    assert "4711" not in json.dumps(found)


def test_all_under_way_are_taken_up_with_one_reading() -> None:
    pairs = zip(history("r1"), history("r2"), strict=True)
    log = Log([event for pair in pairs for event in pair])
    stories = Stories(log)  # type: ignore[arg-type]
    stories.read(["r1", "r2"], {0: 8})
    found = told(log, 8, stories=stories)
    assert found == told(log)[-len(found) :]
    assert log.reads == [None]


def test_a_run_that_ended_and_is_tried_again_has_its_story_still() -> None:
    world = World(tool("look", sensitive=["code"]), agent_spec=agent("look", on_failure="stop"))
    world.plan(PlanStep(id="a", tool="look", arguments={"code": "4711"}))
    world.fails(world.command("look"), "business", "full")
    ended = len(world.events)
    world.control("retry", reason="the service is back")
    world.answer(world.command("look"), result={"code": "4711"})
    assert world.status == "done"
    log = Log(world.events)
    found = told(log, ended)
    assert [what for _, what in found] == [
        "look (1) sent, attempt 2",
        'look (1) succeeded: {"code":"***"}',
        "Finished: done",
    ]
    assert log.reads == ["r1"]


@pytest.mark.parametrize("met", [-4, 0, 3])
def test_another_run_of_an_id_is_covered_by_its_own_rules(met: int) -> None:
    """The former one was longer, and nothing in it was secret."""
    world = World(tool("look"), agent_spec=agent("look"))
    world.start("the task")
    for _ in range(6):
        world.reply(None, ("look", {"code": "17"}))
        world.answer(world.command("look"), result={"found": 2})
    world.reply("found it")
    now = history("r1")
    log = Log([*world.events, *now])
    found = told(log, len(world.events) + met)
    assert "4711" not in json.dumps(found)
    assert found[-1][1] == "Finished: done"
    assert any("***" in what for _, what in found)


def test_where_the_beginning_is_gone_nothing_of_it_is_shown() -> None:
    events = history("r1")[5:]
    log = Log(events)
    assert [what for _, what in told(log)] == types(events)
    assert log.reads == ["r1"], "not again for each event"


def test_more_than_are_held_are_told_by_the_types_of_their_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stories_of, "AT_ONCE", 2)
    runs = [history(f"r{n}") for n in range(4)]
    log = Log([event for some in zip(*runs, strict=True) for event in some])
    found = told(log)
    assert log.reads == []
    assert "4711" not in json.dumps(found)
    assert "Finished: done" in [what for _, what in found], "of those that are held"
    assert "run finished" in [what for _, what in found]


def followed(log: Log, **wanted: Any) -> body._Told:
    every = {"status": None, "agent": None, "user": None, "limit": 50}
    fitting = body.Wanted(**{**every, **wanted})
    return body._Told(fitting, body.Overview(), Stories(log), {})  # type: ignore[arg-type]


def play(log: Log, made: body._Told | body._Changes) -> None:
    overview = body.Overview()
    for raw, event in log.raws():
        made.take(raw, event, overview.take(event))


def test_only_the_runs_that_fit_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(history("r1"))
    play(log, followed(log, status="done"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].endswith("Finished: done")
    assert "  r1  " in printed[-1]
    assert "Started with" not in "".join(printed)
    play(log, followed(log, agent="another"))
    assert capsys.readouterr().out == ""


def test_the_question_for_which_a_run_waits_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """It comes a moment before the run's status says that it waits."""
    world = World(tool("pay", approval="always"), agent_spec=agent("pay"))
    world.start("the task")
    world.reply(None, ("pay", {"amount": 5}))
    assert world.status == "waiting_approval"
    log = Log(world.events)
    play(log, followed(log, status="waiting_approval"))
    printed = capsys.readouterr().out.splitlines()
    assert "Question a1 (action)" in printed[-1]
    assert not any("Started" in text for text in printed), "what was before it did not fit"


def test_json_gives_each_run_that_changes_once(capsys: pytest.CaptureFixture[str]) -> None:
    made = body._Changes(body.Wanted(None, None, None, 50), body.Overview())
    play(Log(history("r1")), made)
    made.pause()
    made.pause()
    (found,) = capsys.readouterr().out.splitlines()
    run: dict[str, Any] = json.loads(found)
    assert (run["run_id"], run["status"]) == ("r1", "done")
