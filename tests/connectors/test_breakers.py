"""Breakers in a worker: what is refused, what counts, and what the other workers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from perdure.connectors import ABSENT, BusinessError, Found, ToolContext, TransientError, tool
from perdure.connectors.breaker import BreakerSettings
from perdure.connectors.models.provider import ModelError, Reply
from perdure.connectors.models.providers import Providers
from perdure.schemas import codec, topics
from perdure.schemas.records import BreakerState
from perdure.streams.runtime.processor import Record

from .world import World, command

Make = Callable[..., World]
FAST = BreakerSettings(failures=3, within_seconds=30, open_seconds=10, longest_seconds=300)


class Service:
    """Fails as it is told, and counts."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.asked = 0

    def ask(self) -> int:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.asked

    def tool(self, name: str = "t", effect: Any = "read_only") -> Any:
        @tool(name, effect=effect, approval="never")
        async def call() -> int:
            return self.ask()

        return call


def refused() -> httpx.ConnectError:
    return httpx.ConnectError("no", request=httpx.Request("GET", "http://shop.example/x"))


def say(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://shop.example/x")
    answer = httpx.Response(status, request=request, headers=headers)
    return httpx.HTTPStatusError("no", request=request, response=answer)


def call(w: World, run: str, target: str = "t", **more: Any) -> dict[str, Any]:
    """Make one call, and its answer."""
    more = {"effect": "read_only", **more}
    w.take(command(target, run_id=run, action_id=f"{run}/1", **more))
    w.until(lambda: any(r["run_id"] == run and r["status"] != "started" for r in w.results()))
    return [r for r in w.results() if r["run_id"] == run][-1]


def broken(make: Make, service: Service, effect: Any = "read_only", **more: Any) -> World:
    """A world whose breaker has just been opened by three calls."""
    w = make(service.tool(effect=effect), breaker=FAST, stands=True, **more)
    for n in range(3):
        call(w, f"before-{n}", effect=effect)
    assert service.asked == 3
    return w


def told(w: World) -> list[BreakerState]:
    sent = [value for topic, _, value, _ in w.producer.sent if topic == topics.BREAKERS]
    return [codec.decode(value, BreakerState) for value in sent]


def tell(w: World, value: BreakerState | bytes | None, offset: int = 0, **more: Any) -> None:
    raw = codec.encode(value) if isinstance(value, BreakerState) else value
    fields = {"timestamp": w.now, "key": b"t", **more}
    w.worker.global_record(Record(topics.BREAKERS, 0, offset, value=raw, **fields))


# --- what is refused ------------------------------------------------------------------------------


def test_a_refused_call_is_answered_at_once_and_nothing_is_called(world: Make) -> None:
    service = Service(refused())
    w = broken(world, service)
    w.now += 4_000
    answer = call(w, "after")
    error = answer["error"]
    assert service.asked == 3
    assert (answer["status"], error["kind"]) == ("failed", "unavailable")
    assert error["code"] == "BREAKER_OPEN"
    assert 6.0 <= error["retry_after_seconds"] <= 8.0
    assert "t is not called since 00:16:40 UTC: 3 failures in a row" in error["message"]
    assert "connect_refused" in error["message"]
    assert w.committed[-1][0] == topics.RESULTS  # with the offset, in one transaction


@pytest.mark.parametrize(("before", "status"), [(False, "failed"), (True, "unknown")])
def test_a_writing_attempt_a_dead_process_may_have_made_is_unknown(
    world: Make, before: bool, status: str
) -> None:
    w = broken(world, Service(refused()), "idempotent")
    w.taken_before = before
    answer = call(w, "after", effect="idempotent")
    assert (answer["status"], answer["error"]["code"]) == (status, "BREAKER_OPEN")
    assert ("may have been made before" in answer["error"]["message"]) is before


def test_a_refused_external_call_leaves_nothing_in_the_ledger(world: Make) -> None:
    service = Service(refused())
    w = broken(world, service, "external")
    w.store.clear()
    assert call(w, "after", effect="external")["status"] == "failed"
    assert (w.ledger(), service.asked) == ({}, 3)


def test_an_external_call_that_began_too_late_is_failed_in_the_ledger(world: Make) -> None:
    """The breaker opens between its note in the ledger and the call."""
    service = Service(refused())
    w = world(service.tool(effect="external"), breaker=FAST, stands=True)
    last = w.process(command(effect="external", run_id="x", action_id="x/1"))
    for n in range(3):
        call(w, f"{n}", effect="external")
    w.commit(last)
    w.until(lambda: w.worker.running == 0)
    assert [r["status"] for r in w.results() if r["run_id"] == "x"] == ["started", "failed"]
    assert (w.ledger()["l/x/1/1"], service.asked) == ("finished", 3)


@pytest.mark.parametrize("effect", ["idempotent", "external"])
def test_queries_and_cancels_are_never_refused(world: Make, effect: Any) -> None:
    asked: list[str] = []

    @tool("t", effect=effect, approval="never")
    async def act() -> None:
        raise refused()

    @act.query
    async def find(context: ToolContext) -> Any:
        asked.append(context.action_id)
        return Found(7) if context.action_id == "q/1" else ABSENT

    w = world(act, breaker=FAST, stands=True)
    for n in range(3):
        call(w, f"{n}", effect=effect)
    assert call(w, "after", effect=effect)["error"]["code"] == "BREAKER_OPEN"
    found = call(w, "q", effect=effect, verb="query")
    assert (found["status"], found["result"], asked) == ("succeeded", 7, ["q/1"])
    if effect == "external":
        assert call(w, "c", effect=effect, verb="cancel")["status"] == "cancelled"


def test_who_waited_for_a_place_is_refused_when_it_opens(world: Make) -> None:
    go = asyncio.Event()
    asked = []

    @tool("t", effect="read_only")
    async def slow() -> None:
        asked.append(1)
        await go.wait()
        raise refused()

    w = world(slow, breaker=FAST, stands=True, calls_per_target=3)
    for n in range(50):
        w.take(command(run_id=f"{n}", action_id=f"{n}/1"))
    w.until(lambda: len(asked) == 3)
    w.executor.spawn(_set(go))
    w.until(lambda: len(w.results()) == 50)
    codes = [r["error"]["code"] for r in w.results()]
    assert (len(asked), codes.count("BREAKER_OPEN")) == (3, 47)


def _set(event: asyncio.Event) -> Callable[[], Any]:
    async def act() -> None:
        event.set()

    return act


def test_external_calls_that_waited_are_refused_before_their_ledger(world: Make) -> None:
    service = Service(refused())
    w = world(service.tool(effect="external"), breaker=FAST, stands=True, calls_in_all=1)
    w.worker._work._gate.enter("t", lambda: False)
    for n in range(2):
        w.take(command(run_id=f"{n}", action_id=f"{n}/1", effect="external"))
    tell(w, BreakerState(target="t", state="open", open_until=w.now + 9_000, worker="w2"))
    w.worker._work._gate.leave("t")
    w.until(lambda: len(w.results()) == 2)
    assert {r["error"]["code"] for r in w.results()} == {"BREAKER_OPEN"}
    assert (service.asked, w.store) == (0, {})
    w.until(lambda: w.worker.running == 0)


# --- what counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [BusinessError("no"), say(404), say(401), KeyError("bug"), TransientError("later"), say(429)],
)
def test_what_is_not_the_services_failure_opens_nothing(world: Make, error: Exception) -> None:
    service = Service(error)
    w = world(service.tool(), breaker=FAST, stands=True)
    for n in range(6):
        call(w, f"{n}")
    assert (service.asked, told(w)) == (6, [])


def test_calls_that_were_never_made_open_nothing(world: Make) -> None:
    service = Service()
    w = world(service.tool(), breaker=FAST, stands=True)
    for n in range(4):
        call(w, f"late-{n}", expires_at=w.now)
        call(w, f"wrong-{n}", arguments={"none": 1})
        call(w, f"over-{n}", timeout_seconds=0.0)
    assert (service.asked, told(w)) == (0, [])


def test_a_success_begins_the_count_anew(world: Make) -> None:
    service = Service()
    w = world(service.tool(), breaker=FAST, stands=True)
    for n in range(9):
        service.error = None if n % 3 == 2 else say(503)
        call(w, f"{n}")
    assert (service.asked, told(w)) == (9, [])


def test_time_outs_open_it_and_their_late_siblings_change_nothing(world: Make) -> None:
    """Twelve calls began before; the third to end opened it."""
    done: list[asyncio.Future[int]] = []

    @tool("t", effect="read_only")
    async def hung() -> int:
        done.append(asyncio.get_running_loop().create_future())
        return await done[-1]

    w = world(hung, breaker=FAST, stands=True)
    for n in range(12):
        w.take(command(run_id=f"{n}", action_id=f"{n}/1"))
    w.until(lambda: len(done) == 12)

    def end(number: int, error: Exception | None) -> None:
        async def act() -> None:
            if error is None:
                done[number].set_result(1)
            else:
                done[number].set_exception(error)

        already = len(w.results())
        w.executor.spawn(act)
        w.until(lambda: len(w.results()) > already)

    for number in range(3):
        end(number, httpx.ReadTimeout("no"))
    opened = told(w)
    for number in range(3, 12):
        w.now += 500
        end(number, None if number % 2 else httpx.ReadTimeout("no"))
    assert [each.state for each in opened] == ["open"]
    assert told(w) == opened
    assert call(w, "after")["error"]["code"] == "BREAKER_OPEN"


def test_a_storm_of_429_slows_down_until_the_time_that_is_asked_for(world: Make) -> None:
    service = Service(say(429, **{"Retry-After": "60"}))
    w = broken(world, service)
    w.now += 59_000
    assert call(w, "early")["error"]["code"] == "BREAKER_OPEN"
    w.now += 3_100
    assert call(w, "probe")["error"]["code"] == "rate_limited"
    assert service.asked == 4


def test_a_retry_after_is_waited_for_five_minutes_at_most(world: Make) -> None:
    w = broken(world, Service(say(503, **{"Retry-After": "86400"})))
    assert told(w)[0].open_until == w.now + 300_000


# --- probes ---------------------------------------------------------------------------------------


def test_one_probe_and_all_others_are_answered_at_once(world: Make) -> None:
    service = Service(refused())
    w = broken(world, service)
    w.now += 12_001
    assert call(w, "probe")["error"]["code"] == "connect_refused"
    assert [call(w, f"{n}")["error"]["code"] for n in range(5)] == ["BREAKER_OPEN"] * 5
    w.now += 20_000 + 4_001  # twice as long, and our jitter
    service.error = None
    assert call(w, "good")["status"] == "succeeded"
    assert call(w, "next")["status"] == "succeeded"
    assert service.asked == 6
    assert [each.state for each in told(w)] == ["open", "open", "closed"]


def test_a_probe_that_was_cancelled_leaves_the_next_one_its_turn(world: Make) -> None:
    begun: list[int] = []

    @tool("t", effect="read_only")
    async def hangs() -> None:
        begun.append(1)
        if len(begun) <= 3:
            raise refused()
        await asyncio.Event().wait()

    w = world(hangs, breaker=FAST, stands=True)
    for n in range(3):
        call(w, f"{n}")
    w.now += 12_001
    w.take(command(run_id="p", action_id="p/1"))
    w.until(lambda: len(begun) == 4)
    w.take(command(run_id="p", action_id="p/1", verb="cancel"))
    w.until(lambda: any(r["status"] == "cancelled" for r in w.results()))
    assert call(w, "soon")["error"]["code"] == "BREAKER_OPEN"
    w.now += 10_001
    w.take(command(run_id="q", action_id="q/1"))
    w.until(lambda: len(begun) == 5)


# --- models ---------------------------------------------------------------------------------------


class Endpoint:
    """A provider; those under ``down`` refuse."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, request: dict[str, Any], context: Any) -> Reply:
        url = request["model"]["base_url"]
        self.asked.append(url)
        if "down" in url:
            raise ModelError("transient", "http_503", "no")
        return Reply("hello")


def test_two_endpoints_of_one_model_have_a_breaker_each(world: Make) -> None:
    w = world(breaker=FAST, stands=True, models=True)
    endpoint = Endpoint()
    w.worker._work._caller._models = Providers({"openai": lambda: endpoint})

    def ask(run: str, url: str) -> dict[str, Any]:
        request = {"model": {"provider": "openai", "name": "m", "base_url": url}}
        return call(w, run, "m", request=request)

    for n in range(5):
        ask(f"d{n}", "http://down.example:9/v1")
    refusal = ask("d5", "http://down.example:9/v1")["error"]
    assert (refusal["kind"], refusal["code"]) == ("unavailable", "BREAKER_OPEN")
    assert refusal["message"].startswith("openai m down.example:9 is not called since")
    assert ask("up", "http://up.example:9/v1")["status"] == "succeeded"
    assert endpoint.asked.count("http://down.example:9/v1") == 3
    assert [each.target for each in told(w)] == ["openai m down.example:9"]


# --- told to the others ---------------------------------------------------------------------------


class Topic:
    """`agent.breakers` between two worlds: what one sends, all read."""

    def __init__(self, *worlds: World) -> None:
        self.worlds = worlds
        self.end = 0
        self._read = dict.fromkeys(range(len(worlds)), 0)

    def pass_on(self) -> None:
        for index, each in enumerate(self.worlds):
            sent = [s for s in each.producer.sent if s[0] == topics.BREAKERS]
            for topic, key, value, headers in sent[self._read[index] :]:
                record = Record(topic, 0, self.end, each.now, key, value, headers)
                self.end += 1
                for reader in self.worlds:
                    reader.worker.global_record(record)
            self._read[index] = len(sent)


def test_what_one_worker_opens_no_other_calls_until_a_probe_closes_it_for_all(world: Make) -> None:
    service = Service(say(503))
    first = world(service.tool(), breaker=FAST, stands=True)
    second = world(service.tool(), breaker=FAST, stands=True, instance_id="w2")
    topic = Topic(first, second)
    for n in range(3):
        call(first, f"{n}")
    topic.pass_on()
    assert [call(w, "x")["error"]["code"] for w in (first, second)] == ["BREAKER_OPEN"] * 2
    assert service.asked == 3
    first.now = second.now = second.now + 12_001
    assert call(second, "probe")["error"]["code"] == "http_503"
    topic.pass_on()
    assert call(first, "y")["error"]["code"] == "BREAKER_OPEN"  # its own time went on, too
    first.now = second.now = second.now + 24_001
    service.error = None
    assert call(first, "probe-2")["status"] == "succeeded"
    assert call(second, "z")["status"] == "succeeded"  # its own probe
    topic.pass_on()
    assert call(second, "zz")["status"] == "succeeded"
    assert [each.state for each in told(first)] == ["open", "closed"]
    assert service.asked == 7


def test_the_record_says_who_why_and_until_when(world: Make) -> None:
    w = broken(world, Service(say(503)))
    sent = next(s for s in w.producer.sent if s[0] == topics.BREAKERS)
    assert (sent[1], sent[3]) == (b"t", (("perdure-type", b"BreakerState"),))
    assert told(w) == [
        BreakerState(
            target="t", state="open", open_until=w.now + 10_000, worker="w1",
            reason="3 failures in a row, the last: http_503",
        )
    ]  # fmt: skip


def opened_by(w: World, seconds: float = 9.0, **more: Any) -> BreakerState:
    fields = {"target": "t", "state": "open", "worker": "w2", "reason": "it is down"}
    return BreakerState(**{**fields, "open_until": w.now + int(seconds * 1000), **more})


def test_a_state_past_its_time_is_none_and_one_too_far_is_cut(world: Make) -> None:
    service = Service()
    w = world(service.tool(), breaker=FAST, stands=True)
    tell(w, opened_by(w, -1.0))
    assert call(w, "a")["status"] == "succeeded"
    tell(w, opened_by(w, open_until=10**400), 1)
    assert call(w, "b")["error"]["retry_after_seconds"] <= 360.0
    w.now += 360_001
    assert call(w, "c")["status"] == "succeeded"


def test_records_that_cant_be_read_are_skipped_and_counted(world: Make) -> None:
    service = Service()
    w = world(service.tool(), breaker=FAST, stands=True)
    bad = [b"\xff", b"{", b"[]", b'{"target": "t"}', b'{"target": "t", "state": "ajar"}', b""]
    bad.append(b'{"target": "t", "state": "open", "open_until": "soon"}')
    for offset, raw in enumerate(bad):
        tell(w, raw, offset)
    tell(w, None, len(bad), key=b"\xff")
    assert w.worker._reach.snapshot().bad_records == len(bad) + 1
    assert call(w, "a")["status"] == "succeeded"


def test_a_record_taken_off_the_topic_closes(world: Make) -> None:
    w = broken(world, Service(say(503)))
    tell(w, None)
    assert call(w, "a")["error"]["code"] == "http_503"


def test_each_queue_of_a_process_reads_the_topic_and_it_counts_once(world: Make) -> None:
    w = world(Service().tool(), breaker=FAST, stands=True)
    opened, closed = opened_by(w), opened_by(w, state="closed")
    for offset, state in ((0, opened), (1, closed), (0, opened), (1, closed), (0, opened)):
        tell(w, state, offset)
    assert call(w, "a")["status"] == "succeeded"


def test_our_own_words_come_back_and_those_of_our_former_life_count(world: Make) -> None:
    w = world(Service().tool(), breaker=FAST, stands=True)
    tell(w, opened_by(w, worker="w1"))  # said in this life
    assert call(w, "a")["status"] == "succeeded"
    tell(w, opened_by(w, worker="w1"), 1, timestamp=w.now - 1)
    assert call(w, "b")["error"]["code"] == "BREAKER_OPEN"


def test_nobody_can_be_told_and_the_call_ends_all_the_same(world: Make) -> None:
    service = Service(say(503))
    w = world(service.tool(), breaker=FAST, stands=True)
    for n in range(2):
        call(w, f"{n}")
    w.producer.broken = 1  # the breaker's record, which goes before the answer
    assert call(w, "2")["error"]["code"] == "http_503"
    assert call(w, "3")["error"]["code"] == "BREAKER_OPEN"
    assert told(w) == []


def test_what_is_open_can_be_seen(world: Make) -> None:
    service = Service(say(503))
    w = broken(world, service)
    reach = w.worker._reach
    assert reach.snapshot().open == {
        "t": "since 00:16:40 UTC: 3 failures in a row, the last: http_503"
    }
    service.error = None
    w.now += 12_001
    call(w, "probe")
    assert (reach.snapshot().open, reach.snapshot().closed) == ({}, ("t",))


def test_the_topic_is_read_before_anything_is_live(world: Make) -> None:
    assert world(Service().tool()).worker.global_topics == (topics.CATALOG, topics.BREAKERS)
    assert world(models=True).worker.global_topics == (topics.BREAKERS,)


def test_results_are_what_they_were(world: Make) -> None:
    """The wire form of a refusal is that of any other failure."""
    w = broken(world, Service(say(503)))
    call(w, "after")
    raw = next(v for _, k, v, _ in reversed(w.committed) if v)
    assert msgspec.json.decode(raw)["error"].keys() == {
        "kind",
        "code",
        "message",
        "retry_after_seconds",
    }
