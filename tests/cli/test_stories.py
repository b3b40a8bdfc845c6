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
from tests.core.harness import World, agent, tool


class Log:
    """agent.events as a list; ``reads`` counts how often somebody began at its start."""

    def __init__(self, events: Sequence[RunEvent]) -> None:
        self.events = list(events)
        self.reads: list[str | None] = []

    def scan(
        self, names: Sequence[str], *, run_id: str | None = None, follow: bool = False
    ) -> Iterator[Raw | None]:
        self.reads.append(run_id)
        for offset, event in enumerate(self.events):
            yield Raw(
                "agent.events", 0, offset, 0, event.run_id.encode(), msgspec.json.encode(event), ()
            )
        yield None


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
    log: Log, events: Sequence[RunEvent], stories: Stories | None = None
) -> list[tuple[str, str]]:
    made = Stories(log) if stories is None else stories  # type: ignore[arg-type]
    return [line for event in events if (line := made.tell(event)) is not None]


def test_lines_are_those_of_show_and_secrets_stay_covered() -> None:
    events = history("r1")
    log = Log(events)
    found = told(log, events)
    assert log.reads == [], "a run that begins before our eyes is not read again"
    plain = [(who, what) for _, _, who, what in lines(events)]
    assert [what.replace("***", "4711") for _, what in found] == [what for _, what in plain]
    assert "***" in json.dumps(found)
    assert "4711" not in json.dumps(found)


def test_a_run_met_in_its_middle_is_read_once_from_its_beginning() -> None:
    events, other = history("r1"), history("r2")
    log = Log([*other, *events])
    half = len(events) // 2
    assert told(log, events[half:]) == told(Log(events), events)[-len(told(log, events[half:])) :]
    assert log.reads[:1] == ["r1"]
    assert "4711" not in json.dumps(told(log, events[half:]))


def test_all_under_way_are_taken_up_with_one_reading() -> None:
    first, second = history("r1"), history("r2")
    log = Log([event for pair in zip(first, second, strict=True) for event in pair])
    stories = Stories(log)  # type: ignore[arg-type]
    stories.read({"r1": 4, "r2": 4})
    assert told(log, first[:4] + second[:4], stories) == [], "what the list has shown"
    assert told(log, first[4:] + second[4:], stories)
    assert log.reads == [None]


def test_where_the_beginning_is_gone_nothing_of_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = history("r1")
    log = Log(events[5:])
    found = told(log, events[5:])
    assert [what for _, what in found] == [event.type.replace("_", " ") for event in events[5:]]
    assert log.reads == ["r1"], "not again for each event"


def test_a_run_that_said_nothing_for_long_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories_of, "AT_ONCE", 2)
    runs = [history(f"r{n}") for n in range(3)]
    log = Log([event for run in runs for event in run])
    stories = Stories(log)  # type: ignore[arg-type]
    for run in runs:
        told(log, run[:4], stories)
    assert log.reads == []
    told(log, [runs[2][4], runs[0][4]], stories)
    assert log.reads == ["r0"]


def test_only_the_runs_that_fit_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    events = history("r1")
    log = Log(events)
    overview = body.Overview()
    made = body._Told(body.Wanted("done", None, None, 50), overview, log)  # type: ignore[arg-type]
    for event in events:
        made.take(event, overview.take(event))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("Finished: done")
    assert "  r1  " in line


def test_json_gives_each_run_that_changes_once(capsys: pytest.CaptureFixture[str]) -> None:
    overview = body.Overview()
    made = body._Changes(body.Wanted(None, None, None, 50), overview)
    for event in history("r1"):
        made.take(event, overview.take(event))
    made.pause()
    made.pause()
    (found,) = capsys.readouterr().out.splitlines()
    run: dict[str, Any] = json.loads(found)
    assert (run["run_id"], run["status"]) == ("r1", "done")
