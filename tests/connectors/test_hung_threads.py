"""Threads that hang and are no tool's: a model that is a function, a blob store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.connectors import Found, tool
from perdure.connectors.executor import ThreadedExecutor
from perdure.streams.runtime.blobs import Blobs

from .world import World, command

Make = Callable[..., World]


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What hangs goes on at the end."""
    event = threading.Event()
    yield event
    event.set()


def _of(w: World, action_id: str) -> dict[str, Any] | None:
    """The answer to a call, once it is there."""
    ended = (r for r in w.results() if r["status"] != "started" and r["action_id"] == action_id)
    return next(ended, None)


def _model(function: str) -> dict[str, Any]:
    model = {"provider": "python", "name": function, "function": function}
    return {"model": model, "messages": []}


def test_a_model_function_that_hangs_takes_threads_from_no_other_and_from_no_blob(
    world: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: threading.Event
) -> None:
    """Results above the claim check were never answered after eight hung calls of a model."""

    @tool("big", effect="read_only")
    async def big() -> str:
        return "x" * 300_000

    def hangs(messages: Any, tools: Any) -> str:
        go.wait(5)
        return "late"

    functions = {"m:hangs": hangs, "m:works": lambda messages, tools: "fine"}
    monkeypatch.setattr("perdure.connectors.models.function._load", functions.__getitem__)
    w = world(big, models=True, blobs=Blobs(str(tmp_path)))
    for n in range(1, 9):
        of = {"action_id": f"r/{n}", "request": _model("m:hangs"), "timeout_seconds": 0.02}
        w.take(command("python m:hangs", **of))
    w.until(lambda: [r["error"]["code"] for r in w.results()] == ["read_timeout"] * 8)
    w.take(command("python m:works", action_id="r/20", request=_model("m:works")))
    w.until(lambda: len(w.results()) == 9)
    assert w.results()[-1]["result"]["content"] == "fine"
    w.take(command("big", action_id="r/21"))
    w.until(lambda: len(w.results()) == 10 and w.worker.running == 0)
    assert w.results()[-1]["result"]["size"] == 300_002


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: threading.Event) -> Blobs:
    """A store that takes and gives nothing."""
    monkeypatch.setattr("perdure.connectors.call.BLOB_SECONDS", 0.02)
    blobs = Blobs(str(tmp_path))

    def waits(_: Any) -> Any:
        go.wait(5)
        raise OSError("gone")

    monkeypatch.setattr(blobs, "put", waits)
    monkeypatch.setattr(blobs, "get", waits)
    return blobs


@pytest.mark.parametrize(("effect", "kind"), [("read_only", "internal"), ("external", "unknown")])
def test_a_result_whose_store_hangs_is_answered(
    world: Make, stuck: Blobs, effect: Any, kind: str
) -> None:
    @tool("t", effect=effect, approval="never")
    async def act() -> str:
        return "x" * 300_000

    w = world(act, blobs=stuck)
    error = w.answer(command(effect=effect))["error"]
    assert (error["kind"], error["code"]) == (kind, "blob_failed")
    assert "the blob store did not answer within 0.02 s" in error["message"]
    w.until(lambda: w.worker.running == 0)
    assert all(hold.finished for hold in w.holds)


def test_arguments_whose_store_hangs_are_answered(
    world: Make, stuck: Blobs, tmp_path: Path
) -> None:
    ran = []

    @tool("t", effect="external", approval="never")
    async def act() -> None:
        ran.append(1)

    @act.query
    async def query() -> Found:
        return Found("seen")

    away = Blobs(str(tmp_path)).put(msgspec.json.encode({}))
    w = world(act, models=True, blobs=stuck)
    error = w.answer(command(effect="external", arguments=away))["error"]
    assert (error["kind"], error["code"]) == ("transient", "blob_unreadable")
    w.take(command("m", action_id="r/2", request={"model": away}))
    w.until(lambda: _of(w, "r/2") is not None)
    assert (_of(w, "r/2") or {})["error"]["code"] == "blob_unreadable"
    w.take(command(action_id="r/3", effect="external", verb="query", arguments=away))
    w.until(lambda: _of(w, "r/3") is not None)
    assert (_of(w, "r/3") or {})["status"] == "absent"  # it never began: barred
    w.until(lambda: w.worker.running == 0)
    assert all(hold.finished for hold in w.holds)
    assert ran == []


def test_what_is_given_up_before_there_is_a_thread_for_it_is_not_run() -> None:
    """A model would be paid for an answer that nobody waits for."""
    executor = ThreadedExecutor()
    first, done, ran = threading.Event(), threading.Event(), []

    async def work() -> None:
        executor.in_thread("p", 1, lambda: first.wait(5), lambda: None)
        executor.in_thread("p", 1, lambda: ran.append(1), lambda: None).cancel()
        first.set()
        executor.in_thread("p", 1, lambda: ran.append(2), done.set)

    executor.spawn(work)
    assert done.wait(5)
    executor.close()
    assert ran == [2]
