"""The export of decisions, the times it takes, and finding runs: from events alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from perdure.schemas.records import Person, RunEvent
from perdure.streams.core import keys

from perdure.cli import find
from perdure.cli.audit_decisions import Decisions, Range
from perdure.cli.moments import moment
from perdure.cli.progress import Progress

from ..core.harness import World, agent, rule, tool


def decided(events: list[RunEvent], uncover: bool = False) -> list[dict[str, Any]]:
    made = Decisions(uncover)
    return [found for event in events if (found := made.take(event)) is not None]


def door(**values: Any) -> World:
    made = World(
        tool("door", "external", approval="always", sensitive=["code"]),
        agent_spec=agent(
            "door",
            people={"ops": Person(members=["ann", "bob"]), "top": Person(members=["zoe"])},
            approvals=[rule(kind="action", tool="door", approvers=["ops"], **values)],
        ),
    )
    made.start()
    made.reply(None, ("door", {"which": "north", "code": "4711"}))
    return made


def test_each_decision_of_a_quorum_is_one_record() -> None:
    made = door(required=2)
    made.now += 60_000
    made.decide("approve", "ann", reason="fine")
    made.decide("approve", "bob")
    first, second = decided(made.events)
    assert (first["approver"], first["closes"], first["reason"]) == ("ann", False, "fine")
    assert (second["approver"], second["closes"], second["verified"]) == ("bob", True, "none")
    assert first["arguments"] == {"which": "north", "code": "***"}
    assert first["waited_seconds"] == pytest.approx(60, abs=0.1)
    assert first["digest"] == made.approval(1).digest
    assert (first["run_id"], first["action_id"], first["policy"]) == ("r1", "r1/2", None)
    assert decided(made.events, uncover=True)[0]["arguments"]["code"] == "4711"


def test_a_modify_is_told_with_its_own_arguments_and_digest() -> None:
    made = door(required=2)
    asked = made.approval(1).digest
    made.decide("modify", "ann", arguments={"which": "south", "code": "1"}, reason="that one")
    made.decide("approve", "bob")
    first, second = decided(made.events)
    assert first["arguments"] == second["arguments"] == {"which": "south", "code": "***"}
    assert first["digest"] == second["digest"] == made.approval(1).digest != asked


def test_what_a_policy_did_is_a_decision_too() -> None:
    made = door(on_timeout="escalate", escalate_to=["top"], within_seconds=60)
    made.timer("ask/1")
    made.timer("ask/1")
    first, second = decided(made.events)
    assert (first["decision"], first["policy"], first["closes"]) == ("escalate", "escalate", False)
    assert first["to"] == ["zoe"]
    assert (second["decision"], second["policy"]) == ("cancel_run", "cancel_run")
    assert second["approver"] == "policy:timeout"
    assert second["verified"] is None
    assert second["waited_seconds"] == 120


def test_a_fork_does_not_count_what_was_decided_before() -> None:
    source = door()
    source.decide("approve", "ann")
    source.answer(source.command("door"), result=1)
    made = World(*source.tools.values(), agent_spec=source.agents["demo"])
    made.fork(source)
    assert any(event.type == "approval_decided" for event in made.events)
    assert decided(made.events) == []


def test_arguments_are_covered_whole_where_the_runs_start_is_gone() -> None:
    made = door()
    made.decide("approve", "ann")
    (found,) = decided(made.events[1:])
    assert found["arguments"] == "***"


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Range(), True),
        (Range(since=5), True),
        (Range(since=6), False),
        (Range(until=5), False),
        (Range(until=6), True),
        (Range(agent="demo", approver="ann"), True),
        (Range(agent="other"), False),
        (Range(approver="bob"), False),
    ],
)
def test_the_range_is_half_open(wanted: Range, fits: bool) -> None:
    assert wanted.fits({"decided_at": 5, "agent": "demo", "approver": "ann"}) is fits


# --- times ---------------------------------------------------------------------------------------


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-01", datetime(2026, 10, 31, 23, tzinfo=UTC)),
        ("2026-07-01T12:00", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("2026-11-01 09:30:15.250", datetime(2026, 11, 1, 8, 30, 15, 250_000, tzinfo=UTC)),
        ("2026-11-01T09:30Z", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T09:30+05:30", datetime(2026, 11, 1, 4, tzinfo=UTC)),
        ("1793527200000", datetime(2026, 11, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_time_as_people_write_it(berlin: None, text: str, at: datetime) -> None:
    assert moment(text) == round(at.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "tomorrow", "1793527200", "2026-13-01", "9" * 15, "٢٠٢٦"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time|out of range"):
        moment(text)


def test_progress_is_told_only_of_a_long_scan(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = Progress(lambda: now)
    for _ in range(5_000):
        progress.step()
    assert capsys.readouterr().err == ""
    now = 2.5
    for _ in range(1_500):
        progress.step()
    assert capsys.readouterr().err == "... 6000 events read\n"


# --- find ----------------------------------------------------------------------------------------


def rows(made: World, **flags: Any) -> list[dict[str, Any]]:
    given = {"tool": None, "given": [], "key": None, "user": None, **flags}
    wanted = find.wanted(**given)
    candidates = find.Candidates(wanted)
    found = find.Found()
    for event in made.events:
        candidates.take(event)
        found.take(event)
    listed = list(find.rows_of("r1", found, wanted, uncover=False))
    assert list(candidates.runs) == (["r1"] if listed else []), "the first scan and the fold differ"
    return listed


@pytest.mark.parametrize(
    ("flags", "actions"),
    [
        ({"given": ["order_id=A-1"]}, ["r1/2", "r1/3"]),
        ({"given": ["order_id=A-1"], "tool": "pay"}, ["r1/3"]),
        ({"given": ["order_id=A-1", "amount=30"]}, ["r1/3"]),
        ({"given": ["amount=30.0"]}, ["r1/3"]),
        ({"given": ["order_id=A"]}, []),
        ({"given": ["amount=true"]}, []),
        ({"given": ["flag=true"]}, ["r1/4"]),
        ({"given": ["deep.inner=7"]}, ["r1/4"]),
        ({"given": ["list.1=b"]}, ["r1/4"]),
        ({"given": ['deep={"inner": 7}']}, ["r1/4"]),
        ({"given": ["eq=a=b"]}, ["r1/4"]),
        ({"given": ["no.such=1"]}, []),
        ({"tool": "pay"}, ["r1/3", "r1/4"]),
        ({"tool": "other"}, []),
        ({"key": "r1/3/"}, ["r1/3"]),
        ({"key": keys.request_id("r1/3/abcd1234").upper()}, ["r1/3"]),
        ({"key": "r1/3/", "user": "uma"}, ["r1/3"]),
        ({"user": "uma"}, [None]),
        ({"user": "ann"}, []),
    ],
)
def test_find(flags: dict[str, Any], actions: list[str | None]) -> None:
    made = World(tool("look"), tool("pay", "external"))
    made.start()
    made.reply(
        None,
        ("look", {"order_id": "A-1"}),
        ("pay", {"order_id": "A-1", "amount": 30}),
        ("pay", {"flag": True, "deep": {"inner": 7}, "list": ["a", "b"], "eq": "a=b"}),
    )
    assert [row["action_id"] for row in rows(made, **flags)] == actions


def test_find_knows_both_what_was_asked_and_what_ran() -> None:
    made = door()
    made.decide("modify", "ann", arguments={"which": "south", "code": "4711"}, reason="that one")
    made.answer(made.command("door"), result=1)
    for which in ("north", "south"):
        (row,) = rows(made, given=[f"which={which}"])
        assert (row["status"], row["run_status"]) == ("succeeded", "running")
        assert row["arguments"] == {"which": "south", "code": "***"}
