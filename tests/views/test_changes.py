"""The live stream, and several processes behind one address."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from perdure.streams.views.access import Access
from perdure.streams.views.api import live
from perdure.streams.views.api.routing import Routing
from perdure.streams.views.changes import AT_ONCE, WAITING, Changes

from .histories import golden
from .world import DictTables, FakeHistories, World, access, client, local

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


def until(true: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


def test_a_process_that_comes_later_is_heard_and_one_that_goes_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.02)
    with two() as (one, other, me):
        peers, one.histories.peers = one.histories.peers, []
        with stream(me) as messages:
            one.ask()
            wanted(messages, "approval")
            one.histories.peers = peers
            wanted(messages, "reset")  # what it told before it was heard
            other.feed(golden("0.1-first-plan", "r1", AT))
            assert wanted(messages, "run")[1]["run_id"] == "r1"
            other.changes.runs(f"many-{n}" for n in range(AT_ONCE + 1))  # type: ignore[union-attr]
            wanted(messages, "reset")
            one.histories.peers = []
            number, _ = wanted(messages, "reset")
        one.histories.peers = peers
        with stream(me, number) as messages:  # what the others told meanwhile is kept nowhere
            assert next(messages)[0] == "reset"
        until(lambda: one.changes.listeners() == other.changes.listeners() == 0)  # type: ignore[union-attr]


def test_a_flood_is_told_once_and_drops_nobody() -> None:
    now = [100.0]

    async def flood() -> list[bytes | None]:
        changes = Changes("e", lambda run_id: {"run_id": run_id}, dict, lambda: now[0])
        telling = asyncio.ensure_future(changes.tell())
        await asyncio.sleep(0)
        queue, _ = await changes.join(None)
        for _ in range(3):
            changes.runs(f"r{n}" for n in range(AT_ONCE + 1))
            await asyncio.sleep(0)
            await changes.flush()
        changes.runs(["last"])
        await asyncio.sleep(0)
        await changes.flush()
        now[0] += 1
        await changes.flush()
        telling.cancel()
        assert changes.listeners() == 1
        return [queue.get_nowait() for _ in range(queue.qsize())]

    told = [(made or b"").split(b"\n")[1] for made in asyncio.run(flood())]
    assert told == [b"event: reset", b"event: run", b"event: reset"]


def test_rows_are_made_beside_the_loop_and_for_nobody_not_at_all() -> None:
    made_in: list[str] = []

    def row(run_id: str) -> dict[str, Any]:
        made_in.append(threading.current_thread().name)
        return {"run_id": run_id}

    async def tell() -> list[bytes]:
        changes = Changes("e", row, dict)
        telling = asyncio.ensure_future(changes.tell())
        await asyncio.sleep(0)
        for ids in (["r1", "r2"], ["r1"]):
            changes.runs(ids)
            await asyncio.sleep(0)
            await changes.flush()
        assert made_in == []
        _, missed = await changes.join("e-0")
        telling.cancel()
        return missed

    numbers = [made.split(b"\n")[0] for made in asyncio.run(tell())]
    assert numbers == [b"id: e-2", b"id: e-3"]  # r1 once, where it stood last
    assert len(made_in) == 2
    assert threading.current_thread().name not in made_in


def test_a_stream_ends_when_its_token_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    tokens = tmp_path / "tokens"
    made = World(access(tokens))
    with made.served() as address, client(address) as ann:
        with ann.stream("GET", "/api/changes") as found:
            lines = found.iter_lines()
            assert next(lines) == "retry: 2000"
            held = tokens.read_text().splitlines()
            tokens.write_text("\n".join(held[1:]))
            assert len(list(lines)) < 20  # it ends; one that does not is a ReadTimeout
        assert ann.get("/api/me").status_code == 401


def test_whoever_tells_a_reader_that_does_not_read_is_bounded() -> None:
    async def told() -> list[bytes | None]:
        changes = Changes("e", lambda run_id: None, dict)
        queue, _ = await changes.join(None)
        nobody = FakeHistories(DictTables())
        of_others = live.Live(nobody, changes, Routing(nobody), Access(None, local()))
        for _ in range(WAITING // 2 + 100):
            changes.offer(queue, b"x")
            of_others._heard([b"event: run\n", b"data: {}\n"], queue)
        assert changes.listeners() == 0
        return [queue.get_nowait() for _ in range(queue.qsize())]

    made = asyncio.run(told())
    assert len(made) == WAITING + 1
    assert made[:2] == [b"x", b"event: run\ndata: {}\n\n"]
    assert made[-1] is None


def test_a_reader_that_takes_nothing_is_cut_off_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = world()
    made.parts = replace(made.parts, write_seconds=0.1)
    with made.served() as address, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = address.removeprefix("http://").split(":")
        reader.connect((host, int(port)))
        reader.sendall(f"GET /api/changes HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        changes = made.changes
        assert changes is not None
        until(lambda: changes.listeners() == 1)
        large = "x" * 1_000_000
        until(lambda: changes.approval(f"r1/{large}", True) or changes.listeners() == 0)
        with client(address) as me:
            assert me.get("/live").status_code == 200
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_caller_has_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS", 2)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.02)
    made = world()
    with made.served() as address, client(address) as me:
        with stream(me), stream(me):
            found = me.get("/api/changes")
            assert found.status_code == 429
            assert "close some" in found.json()["error"]["message"]
        until(lambda: made.changes.listeners() == 0)  # type: ignore[union-attr]
        with stream(me):
            pass


def test_a_reader_that_is_gone_is_no_error_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(*given: Any) -> None:
        raise ConnectionError("Connection lost")  # what a drain raises, no subclass of it

    monkeypatch.setattr(live.Live, "_write", write)
    statuses: list[int] = []
    made = world()
    made.parts = replace(
        made.parts, answered=lambda method, route, status, seconds: statuses.append(status)
    )
    with made.served() as address, client(address) as me:
        with pytest.raises(httpx.HTTPError):
            me.get("/api/changes")
        until(lambda: made.changes.listeners() == 0)  # type: ignore[union-attr]
    assert 500 not in statuses
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
