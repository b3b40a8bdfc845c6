from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from perdure.connectors import ABSENT, UNCLEAR, Found, ToolContext, tool
from perdure.schemas import topics

from .world import FakeAssignment, World, command

Make = Callable[..., World]


@tool("t", effect="read_only")
async def double(n: int) -> int:
    """Doubles."""
    return 2 * n


def test_fast_call_is_held_until_its_result_is_acked(world: Make) -> None:
    w = world(double)
    w.producer.stalled = True
    w.take(command(arguments={"n": 4}))
    w.until(lambda: len(w.producer.sent) == 1)
    assert not w.holds[0].finished
    topic, key, _, headers = w.producer.sent[0]
    assert (topic, key, headers) == (topics.RESULTS, b"r", (("perdure-type", b"ActionResult"),))
    result = w.results()[0]
    assert (result["status"], result["result"], result["worker"]) == ("succeeded", 8, "w1")
    assert w.committed == []
    assert w.store == {}


def test_fast_call_is_finished_by_the_ack(world: Make) -> None:
    w = world(double)
    w.take(command(arguments={"n": 4}))
    w.until(lambda: w.holds[0].finished)
    assert w.worker.running == 0


def test_external_call_begins_after_its_ledger_is_committed(world: Make) -> None:
    called: list[str] = []

    @tool("t", effect="external")
    async def act(context: ToolContext) -> str:
        called.append(context.idempotency_key)
        return "sent"

    w = world(act)
    ctx = w.process(command(effect="external"))
    assert [v.state for v in ctx.staged.values()] == ["started"]
    assert called == []
    w.commit(ctx)
    assert w.ledger() == {"o/r/1/1": "started"}
    w.until(lambda: w.worker.running == 0)
    assert called == ["r/1/0a0a0a0a"]
    assert w.statuses() == ["started", "succeeded"]
    assert w.ledger() == {"l/r/1/1": "finished"}
    assert w.assignment.in_flight == 0
    assert w.holds == []


def test_external_command_again_gets_the_recorded_result(world: Make) -> None:
    calls = []

    @tool("t", effect="external")
    def act() -> int:
        calls.append(1)
        return len(calls)

    w = world(act)
    w.take(command(effect="external"))
    w.until(lambda: w.worker.running == 0)
    w.take(command(effect="external"))
    w.drain()
    assert [r.get("result") for r in w.results()] == [None, 1, 1]
    assert len(calls) == 1


def test_open_call_of_the_dead_former_process_is_unknown_at_once(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    w = world(act)
    ctx = w.process(command(effect="external"))
    ctx.actions.clear()  # killed between commit and call
    w.commit(ctx)
    after = world(act, store=w.store)
    after.live()
    assert after.results()[0]["status"] == "unknown"
    assert after.results()[0]["error"]["code"] == "worker_lost"
    assert after.ledger() == {"l/r/1/1": "finished"}
    after.take(command(effect="external"))  # the command again: not called
    assert after.statuses() == ["unknown", "unknown"]


def test_open_call_of_the_dead_former_process_is_asked_for_if_it_has_a_query(world: Make) -> None:
    @tool("t", effect="external")
    async def act(n: int) -> None: ...

    @act.query
    async def find(context: ToolContext, n: int) -> Any:
        return Found({"n": n, "key": context.idempotency_key})

    w = world(act)
    ctx = w.process(command(effect="external", arguments={"n": 3}))
    ctx.actions.clear()
    w.commit(ctx)
    after = world(act, store=w.store)
    after.live()
    after.until(lambda: after.statuses() == ["succeeded"])
    assert after.results()[0]["adopted"] is True
    assert after.results()[0]["result"] == {"n": 3, "key": "r/1/0a0a0a0a"}


def test_open_call_of_another_owner_waits_for_its_end(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    w = world(act)
    ctx = w.process(command(effect="external"))
    ctx.actions.clear()
    w.commit(ctx)
    other = world(act, store=w.store, instance_id="w2")
    other.live()
    assert other.results() == []
    other.fire(other.now + 9_999)  # timeout 5 s and 5 s of grace
    assert other.results() == []
    other.fire(other.now + 1)
    assert other.statuses() == ["unknown"]


def test_call_that_ends_after_its_partition_came_back_is_committed_there(world: Make) -> None:
    go = threading.Event()

    @tool("t", effect="external")
    def act() -> str:
        go.wait(5)
        return "done"

    w = world(act)
    w.take(command(effect="external"))
    w.worker.revoked(w.assignment)
    w.assignment.alive = False
    w.assignment = FakeAssignment()
    w.live()
    assert w.statuses() == ["started"]
    assert w.assignment.in_flight == 1
    go.set()
    w.until(lambda: w.statuses() == ["started", "succeeded"])
    assert w.assignment.in_flight == 0


def test_call_that_ended_while_nobody_owned_its_partition_is_committed_by_the_next_owner(
    world: Make,
) -> None:
    @tool("t", effect="external")
    async def act() -> str:
        return "done"

    w = world(act)
    old = w.assignment
    old.alive = False  # lost with the call under way
    w.take(command(effect="external"))
    call = next(iter(w.worker._work.calls.values()))
    w.until(lambda: call.payload != b"")
    w.assignment = FakeAssignment()
    w.live()
    w.until(lambda: w.statuses() == ["started", "succeeded"])
    assert w.worker.running == 0


def test_aborted_transaction_calls_once(world: Make) -> None:
    calls = []

    @tool("t", effect="external")
    async def act() -> None:
        calls.append(1)

    w = world(act)
    w.process(command(effect="external"))  # its transaction is aborted, the batch comes again
    w.take(command(effect="external"))
    w.until(lambda: w.worker.running == 0)
    assert calls == [1]
    assert w.statuses() == ["started", "succeeded"]


def test_fast_command_delivered_twice_while_running_is_called_once(world: Make) -> None:
    calls = []
    go = asyncio.Event()

    @tool("t", effect="idempotent")
    async def act() -> None:
        calls.append(1)
        await go.wait()

    w = world(act)
    w.take(command(effect="idempotent"))
    w.until(lambda: calls == [1])
    w.take(command(effect="idempotent"))

    async def release() -> None:
        go.set()

    w.executor.spawn(release)
    w.until(lambda: len(w.holds) == 2 and all(h.finished for h in w.holds))
    assert calls == [1]
    assert w.statuses() == ["succeeded"]
    assert w.assignment.in_flight == 0


def test_query_of_an_attempt_that_never_came_bars_it(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None:
        raise AssertionError("called")

    w = world(act)
    w.take(command(effect="external", verb="query"))
    assert w.statuses() == ["absent"]
    assert w.ledger() == {"l/r/1/1": "barred"}
    w.take(command(effect="external"))  # turns up late: dropped
    w.drain()
    assert w.statuses() == ["absent"]
    assert w.worker.running == 0


def test_query_of_a_finished_attempt_gets_its_result(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> str:
        return "x"

    w = world(act)
    w.take(command(effect="external"))
    w.until(lambda: w.worker.running == 0)
    w.take(command(effect="external", verb="query"))
    assert [(r["status"], r.get("result")) for r in w.results()][-1] == ("succeeded", "x")


def _asks(said: Any) -> Any:
    @tool("t", effect="external", timeout_seconds=1)
    async def act() -> None:
        raise RuntimeError("who knows")

    @act.query
    def find() -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    return act


def test_query_finds_what_an_unknown_call_did(world: Make) -> None:
    w = world(_asks(Found("it")))
    assert w.answer(command(effect="external"))["status"] == "unknown"
    w.take(command(effect="external", verb="query"))
    w.until(lambda: w.statuses()[-1] == "succeeded")
    assert w.results()[-1]["result"] == "it"
    assert w.holds[-1].finished
    assert w.ledger() == {"l/r/1/1": "finished"}


def test_query_that_says_absent_bars_the_attempt_first(world: Make) -> None:
    w = world(_asks(ABSENT))
    w.answer(command(effect="external"))
    w.take(command(effect="external", verb="query"))
    w.until(lambda: w.statuses()[-1] == "absent")
    assert w.ledger() == {"l/r/1/1": "absent"}


def test_absent_is_not_the_last_word_while_it_may_still_land(world: Make) -> None:
    answers: list[Any] = [ABSENT, UNCLEAR, Found("landed")]

    @tool("t", effect="external")
    async def act() -> None:
        raise RuntimeError("who knows")

    @act.query
    async def find() -> Any:
        return answers.pop(0)

    w = world(act)
    w.answer(command(effect="external"))
    for n, status in ((3, "absent"), (4, "unknown"), (5, "succeeded")):
        w.take(command(effect="external", verb="query"))
        w.until(lambda n=n: len(w.results()) == n)
        assert w.statuses()[-1] == status
    w.take(command(effect="external"))  # the attempt itself never begins again
    assert w.statuses()[-1] == "succeeded"
    assert w.worker.running == 0


def test_query_that_is_unclear_or_raises_stays_unknown(world: Make) -> None:
    for said in (UNCLEAR, RuntimeError("down"), "nonsense"):
        w = world(_asks(said))
        w.answer(command(effect="external"))
        w.take(command(effect="external", verb="query"))
        w.until(lambda w=w: len(w.results()) == 3)
        assert w.statuses()[-1] == "unknown", said


def test_query_while_the_call_runs_says_running(world: Make) -> None:
    go = threading.Event()

    @tool("t", effect="external")
    def act() -> None:
        go.wait(5)

    w = world(act)
    w.take(command(effect="external"))
    w.take(command(effect="external", verb="query"))
    assert w.statuses() == ["started", "running"]
    go.set()


def test_thread_that_is_over_time_is_unknown_and_still_running_until_it_ends(world: Make) -> None:
    go = threading.Event()

    @tool("t", effect="external")
    def act(context: ToolContext) -> None:
        go.wait(5)
        assert context.cancelled

    w = world(act)
    assert (
        w.answer(command(effect="external", timeout_seconds=0.02))["error"]["code"]
        == "read_timeout"
    )
    w.until(lambda: w.worker.running == 0)
    assert w.assignment.in_flight >= 1  # the revoke waits for the thread
    w.take(command(effect="external", verb="query"))
    assert w.statuses()[-1] == "running"
    go.set()
    w.until(lambda: w.assignment.in_flight == 0)


def test_cancel_before_the_call_bars_it(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    w = world(act)
    w.take(command(effect="external", verb="cancel"))
    assert w.statuses() == ["cancelled"]
    w.take(command(effect="external"))
    w.drain()
    assert w.statuses() == ["cancelled"]


def test_cancel_of_a_running_writing_call_tells_it_and_waits_for_its_result(world: Make) -> None:
    go = threading.Event()
    seen = []

    @tool("t", effect="external")
    def act(context: ToolContext) -> str:
        go.wait(5)
        seen.append(context.cancelled)
        return "done"

    w = world(act)
    w.take(command(effect="external"))
    w.until(lambda: next(iter(w.worker._work.calls.values())).context is not None)
    w.take(command(effect="external", verb="cancel"))
    assert w.statuses() == ["started"]
    go.set()
    w.until(lambda: w.worker.running == 0)
    assert seen == [True]
    assert w.statuses() == ["started", "succeeded"]


def test_cancel_of_a_reading_call_ends_it(world: Make) -> None:
    begun = []

    @tool("t", effect="read_only")
    async def act() -> None:
        begun.append(1)
        await asyncio.sleep(60)

    w = world(act)
    w.take(command())
    w.until(lambda: begun == [1])
    w.take(command(verb="cancel"))
    w.until(lambda: w.statuses() == ["cancelled"])
    assert w.holds[0].finished


def test_expired_command_is_not_called(world: Make) -> None:
    w = world(double)
    error = w.answer(command(arguments={"n": 1}, expires_at=w.now))["error"]
    assert (error["kind"], error["code"]) == ("transient", "EXPIRED")


def test_unknown_tool(world: Make) -> None:
    error = world(double).answer(command("other"))["error"]
    assert (error["kind"], error["code"]) == ("unavailable", "NO_SUCH_TOOL")


def test_arguments_that_do_not_fit_are_not_called(world: Make) -> None:
    error = world(double).answer(command(arguments={"n": "4"}))["error"]
    assert error["kind"] == "invalid_arguments"
    assert "arguments.n" in error["message"]


def test_the_stricter_effect_of_command_and_tool_counts(world: Make) -> None:
    for own, told in (("external", "read_only"), ("read_only", "external")):

        @tool("t", effect=own)  # type: ignore[arg-type]
        async def act() -> None: ...

        w = world(act)
        w.take(command(effect=told))
        assert w.statuses() == ["started"]
        w.until(lambda w=w: w.worker.running == 0)
        assert w.ledger() == {"l/r/1/1": "finished"}


def test_async_call_over_time(world: Make) -> None:
    @tool("t", effect="idempotent")
    async def act() -> None:
        await asyncio.sleep(60)

    error = world(act).answer(command(effect="idempotent", timeout_seconds=0.01))["error"]
    assert (error["kind"], error["code"]) == ("transient", "read_timeout")


def test_refused_result_is_sent_again(world: Make, monkeypatch: Any) -> None:
    w = world(double)
    w.producer.broken = 1
    waits = []

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", no_wait)
    w.take(command(arguments={"n": 1}))
    w.until(lambda: w.holds[0].finished)
    assert waits == [1.0]
    assert w.statuses() == ["succeeded"]


def test_slow_tool_does_not_block_another(world: Make) -> None:
    go = threading.Event()

    @tool("slow", effect="read_only")
    def slow() -> None:
        go.wait(5)

    w = world(slow, double, threads_per_tool=2)
    for n in range(1, 6):
        w.take(command("slow", action_id=f"r/{n}"))
    w.take(command("t", action_id="r/9", arguments={"n": 1}))
    w.until(lambda: w.statuses() == ["succeeded"])
    go.set()
    w.until(lambda: len(w.results()) == 6)
    w.until(lambda: all(h.finished for h in w.holds))


def test_external_call_that_waits_for_a_place_is_not_in_the_ledger(world: Make) -> None:
    go = threading.Event()
    order = []

    @tool("t", effect="external")
    def act(n: int) -> None:
        order.append(n)
        go.wait(5)

    w = world(act, threads_per_tool=1)
    for n in (1, 2, 3):
        w.take(command(effect="external", action_id=f"r/{n}", arguments={"n": n}))
    assert list(w.ledger()) == ["o/r/1/1"]
    assert [h.finished for h in w.holds] == [False, False]
    go.set()
    w.until(lambda: len(w.results()) == 6)
    assert order == [1, 2, 3]
    assert all(h.finished for h in w.holds)
    w.until(lambda: w.assignment.in_flight == 0)


def test_a_command_that_waited_too_long_for_a_place_is_not_called(world: Make) -> None:
    go = threading.Event()
    ran = []

    @tool("t", effect="read_only")
    def act(n: int) -> None:
        ran.append(n)
        go.wait(5)

    w = world(act, threads_per_tool=1)
    for n in (1, 2):
        w.take(command(action_id=f"r/{n}", arguments={"n": n}, expires_at=w.now + 10))
    w.until(lambda: ran == [1])
    w.now += 10
    go.set()
    w.until(lambda: len(w.results()) == 2)
    codes = {r["status"]: r.get("error", {}).get("code") for r in w.results()}
    assert codes == {"succeeded": None, "failed": "EXPIRED"}
    assert ran == [1]


def test_external_attempt_waits_for_nothing_while_an_earlier_one_has_not_ended(world: Make) -> None:
    """An engine whose clock ran ahead asked a person, who said that it had not been called: both
    attempts then lay on the topic. The second is not called, also when it is delivered again."""
    calls = []

    @tool("t", effect="external")
    async def act(context: ToolContext) -> int:
        calls.append(context.attempt)
        await asyncio.sleep(0.05)
        return 1

    w = world(act)
    w.take(command(effect="external"))
    w.take(command(effect="external", attempt=2))
    w.until(lambda: w.worker.running == 0)
    w.take(command(effect="external", attempt=2))
    w.drain()
    assert calls == [1]
    second = [r for r in w.results() if r["attempt"] == 2]
    assert [(r["status"], r["error"]["code"]) for r in second] == [
        ("unknown", "earlier_attempt")
    ] * 2
    assert [r["status"] for r in w.results() if r["attempt"] == 1] == ["started", "succeeded"]
    w.take(command(effect="external", attempt=3))  # now that it has ended, another may be made
    w.until(lambda: w.worker.running == 0)
    assert calls == [1, 3]
