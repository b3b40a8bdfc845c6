"""What would end a loop or a task, raised by a tool, its query or a model: it ends that call alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors import tool
from perdure.connectors.executor import ThreadedExecutor

from .world import World, command

Make = Callable[..., World]
EXITS = (asyncio.CancelledError, SystemExit, KeyboardInterrupt)


def _raising(kind: type[BaseException]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An ``async def`` and a ``def``."""

    async def raises(*_: Any) -> Any:
        raise kind

    def raises_in_a_thread(*_: Any) -> Any:
        raise kind

    return raises, raises_in_a_thread


ALL = pytest.mark.parametrize(
    ("kind", "raises"),
    [(kind, function) for kind in EXITS for function in _raising(kind)],
    ids=lambda each: each.__name__,
)


@tool("ok", effect="read_only")
async def ok() -> str:
    """Works."""
    return "fine"


def goes_on(w: World) -> None:
    """The next call is made, and nothing is left of those before."""
    count = len(w.results())
    w.take(command("ok", action_id="r/9"))
    w.until(lambda: len(w.results()) == count + 1 and w.worker.running == 0)
    assert w.results()[-1]["result"] == "fine"
    assert all(hold.finished for hold in w.holds)


def _asked_by(query: Callable[..., Any]) -> Any:
    @tool("t", effect="external", approval="never")
    async def act() -> str:
        return "done"

    async def awaits() -> Any:
        return await query()

    def calls() -> Any:
        return query()

    act.query(awaits if asyncio.iscoroutinefunction(query) else calls)
    return act


@ALL
def test_a_query_that_raises_it_is_answered(
    world: Make, kind: type[BaseException], raises: Callable[..., Any]
) -> None:
    """Or the run waits for ever, and after a thousand such commands the partition stands still."""
    w = world(_asked_by(raises), ok)
    w.take(command(effect="external", verb="query"))
    w.until(lambda: len(w.results()) == 1)
    goes_on(w)


@ALL
def test_a_settlement_whose_query_raises_it_is_made(
    world: Make, kind: type[BaseException], raises: Callable[..., Any]
) -> None:
    act = _asked_by(raises)
    former = world(act)
    former.commit(former.process(command(effect="external")))
    assert "started" in former.ledger().values()
    w = world(act, ok, store=former.store)
    w.live()
    w.until(lambda: w.statuses() == ["unknown"])
    goes_on(w)


@ALL
def test_a_model_that_raises_it_is_answered(
    world: Make,
    kind: type[BaseException],
    raises: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perdure.connectors.models.function._load", lambda name: raises)
    w = world(ok, models=True)
    request = {"model": {"provider": "python", "function": "a:b"}, "messages": []}
    error = w.answer(command("python a:b", request=request))["error"]
    cancelled = kind is asyncio.CancelledError
    expected = (
        ("transient", "call_cancelled") if cancelled else ("model_unavailable", "function_raised")
    )
    assert (error["kind"], error["code"]) == expected
    w.until(lambda: w.worker.running == 0)
    goes_on(w)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_tools_own_task_that_raises_it_ends_no_other_call(
    world: Make, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    @tool("t", effect="external", approval="never")
    async def act() -> str:
        task = asyncio.create_task(_raising(kind)[0]())
        await asyncio.wait([task])
        task.exception()
        return "done"

    w = world(act, ok)
    assert w.answer(command(effect="external"))["result"] == "done"
    w.until(lambda: w.worker.running == 0)
    goes_on(w)
    assert f"has raised {kind.__name__}" in caplog.text


def test_a_loop_that_a_tool_stops_goes_on(world: Make) -> None:
    @tool("t", effect="read_only")
    async def act() -> str:
        asyncio.get_running_loop().stop()
        return "done"

    w = world(act, ok)
    assert w.answer(command())["result"] == "done"
    w.until(lambda: w.worker.running == 0)
    goes_on(w)


def test_an_exit_while_the_loop_ends_does_not_keep_it() -> None:
    executor = ThreadedExecutor()

    async def exits() -> None:
        executor._closing = True  # as `close` does
        executor._loop.stop()
        raise SystemExit

    executor.spawn(exits)
    executor._thread.join(5)
    assert not executor._thread.is_alive()
    assert executor._loop.is_closed()
