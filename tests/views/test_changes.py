"""The live stream, and several processes behind one address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from perdure.streams.views.access import Access

from .histories import golden
from .world import World, client, local

AT = 1_750_000_000_000


def world() -> World:
    return World(Access(None, local()))


@contextmanager
def stream(who: httpx.Client, last: str | None = None) -> Iterator[Iterator[tuple[str, str, Any]]]:
    """(event, id, data) of each message as it comes."""
    headers = {} if last is None else {"Last-Event-ID": last}
    with who.stream("GET", "/api/changes", headers=headers) as found:
        assert found.headers["content-type"] == "text/event-stream"

        def messages() -> Iterator[tuple[str, str, Any]]:
            held: dict[str, str] = {}
            for line in found.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    held[name] = value
                elif held:
                    if "data" in held:
                        yield held["event"], held.get("id", ""), json.loads(held["data"])
                    held = {}

        lines = messages()
        yield lines


def wanted(messages: Iterator[tuple[str, str, Any]], kind: str) -> tuple[str, Any]:
    return next((number, data) for event, number, data in messages if event == kind)


def test_changes_come_once_for_a_burst_and_resume_where_they_were_left() -> None:
    made = world()
    events = golden("0.1-first-plan", "r1", AT)
    with made.served() as address, client(address) as me:
        with stream(me) as messages:
            made.feed(events[:4])
            made.feed(events[4:9])
            number, row = wanted(messages, "run")
            assert (row["run_id"], row["version"]) == ("r1", 9)
            made.ask()
            _, told = wanted(messages, "approval")
            assert told == {"approval_id": "r1/a1", "run_id": "r1", "open": True}
        made.feed(events[9:])
        with stream(me, number) as messages:
            seen = []
            for event, _, data in messages:
                seen.append(event)
                if event == "run" and data["version"] == len(events):
                    break
            assert "reset" not in seen
            assert "approval" in seen  # missed while away
        with stream(me, "other-3") as messages:
            assert next(messages)[0] == "reset"


def test_a_stream_ends_with_the_server() -> None:
    made = world()
    with client("http://127.0.0.1") as me:
        with made.served() as address:
            me.base_url = httpx.URL(address)
            opened = stream(me)
            messages = opened.__enter__()
        with pytest.raises((httpx.HTTPError, StopIteration)):
            next(messages)
        opened.__exit__(None, None, None)


@contextmanager
def two() -> Iterator[tuple[World, World, httpx.Client]]:
    """Two processes that know each other; the client calls the first."""
    one, other = world(), world()
    with one.served() as first, other.served() as second:
        one.histories.peers, other.histories.peers = [second], [first]
        with client(first) as me:
            yield one, other, me


def test_lists_and_figures_are_merged_from_all_processes() -> None:
    with two() as (one, other, me):
        for n in range(10):
            (one if n % 2 else other).feed(golden("0.1-first-plan", f"r{n}", AT + n * 1000))
        seen: list[str] = []
        cursor = ""
        while True:
            page = me.get("/api/runs", params={"limit": 3, "cursor": cursor}).json()
            assert page["total"] == 10
            seen += [row["run_id"] for row in page["runs"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == [f"r{n}" for n in range(9, -1, -1)]
        assert me.get("/api/stats").json()["totals"]["done"] == 10


def test_a_run_of_another_process_is_asked_there_and_its_changes_are_heard() -> None:
    with two() as (one, other, me):
        events = golden("0.1-first-plan", "r1", AT)
        other.feed(events[:5])
        one.histories.elsewhere["r1"] = one.histories.peers[0]
        assert me.get("/api/runs/r1").json()["run"]["version"] == 5
        assert len(me.get("/api/runs/r1/timeline?limit=2").json()["entries"]) == 2
        assert me.get("/api/runs/r1/events/99").status_code == 404
        with stream(me) as messages:
            while True:  # until the first process listens to the second one
                other.feed(events[:6])
                other.changes.runs(["r1"])  # type: ignore[union-attr]
                event, _, row = next(messages)
                if event == "run":
                    break
            assert row["version"] == 6


def test_a_list_with_a_hole_is_no_list() -> None:
    with two() as (one, _, me):
        one.histories.peers = ["http://127.0.0.1:1"]
        assert me.get("/api/runs").status_code == 503
        assert me.get("/api/stats").status_code == 503
        assert me.get("/api/me").status_code == 200
