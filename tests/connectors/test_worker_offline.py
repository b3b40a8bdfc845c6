"""A worker that has lost its network takes nothing, charges nobody, and finds back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from perdure.connectors.breaker import BreakerSettings
from perdure.connectors.offline import OfflineSettings
from perdure.connectors.tool import tool
from perdure.schemas import topics

from .test_breakers import Service, call, say, told
from .world import FakeAssignment, World, command

Make = Callable[..., World]
BREAKER = BreakerSettings(failures=3)
OFFLINE = OfflineSettings(within_seconds=10, first_wait_seconds=0.02, longest_wait_seconds=0.08)


def lost(host: str) -> httpx.ConnectTimeout:
    return httpx.ConnectTimeout("no", request=httpx.Request("GET", f"http://{host}/x"))


class Two:
    """Two services on two hosts, in one worker."""

    def __init__(self, make: Make, effect: Any = "read_only", **more: Any) -> None:
        self.a, self.b, self.c = Service(lost("a")), Service(lost("b")), Service()
        tools = (self.a.tool("a", effect), self.b.tool("b", effect), self.c.tool("c", effect))
        fields = {"breaker": BREAKER, "offline": OFFLINE, **more}
        self.w = make(*tools, **fields)
        self.reach = self.w.worker._reach

    def lose(self) -> Two:
        """The network goes."""
        call(self.w, "lost-a", "a")
        call(self.w, "lost-b", "b")
        assert self.reach.snapshot().offline is not None
        return self

    @property
    def asked(self) -> int:
        return self.a.asked + self.b.asked + self.c.asked


def test_two_hosts_not_reached_and_it_takes_nothing(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    two = Two(world, stands=True)
    call(two.w, "x", "a")
    assert (two.w.worker.accepting, two.reach.snapshot().offline) == (True, None)
    call(two.w, "y", "b")
    assert not two.w.worker.accepting
    assert two.reach.snapshot().offline == "since 00:16:40 UTC: a and b can't be reached"
    assert "this worker is offline: a and b can't be reached" in caplog.text


def test_one_dead_host_is_a_breakers_matter_however_often_it_is_asked(world: Make) -> None:
    two = Two(world, stands=True)
    two.b.error = lost("a")  # another tool, the same host
    for n in range(2):
        call(two.w, f"a{n}", "a")
        call(two.w, f"b{n}", "b")
    call(two.w, "a2", "a")
    assert two.reach.snapshot().offline is None
    assert [each.target for each in told(two.w)] == ["a"]


@pytest.mark.parametrize("error", [None, say(503), say(404)])
def test_any_answer_between_says_that_there_is_a_network(
    world: Make, error: Exception | None
) -> None:
    two = Two(world, stands=True)
    two.c.error = error
    call(two.w, "x", "a")
    call(two.w, "y", "c")
    call(two.w, "z", "b")
    assert two.w.worker.accepting


def test_breakers_are_not_charged_and_charges_of_these_seconds_are_taken_back(world: Make) -> None:
    two = Two(world, stands=True)
    for n in range(2):
        call(two.w, f"{n}", "a")
    two.w.now += 11_000  # these two were its own
    call(two.w, "2", "a")
    assert [(each.target, each.state) for each in told(two.w)] == [("a", "open")]
    call(two.w, "3", "b")
    assert [(each.target, each.state) for each in told(two.w)] == [("a", "open"), ("a", "closed")]
    assert two.reach.snapshot().open == {}
    assert not two.w.worker.accepting


def test_a_breaker_that_was_open_before_stays_so(world: Make) -> None:
    two = Two(world, stands=True)
    for n in range(3):
        call(two.w, f"{n}", "a")
    two.w.now += 13_000
    call(two.w, "probe", "a")
    call(two.w, "b", "b")
    assert not two.w.worker.accepting
    assert [each.state for each in told(two.w)] == ["open", "open"]


@pytest.mark.parametrize("effect", ["read_only", "external"])
def test_what_comes_all_the_same_waits_unanswered_and_one_call_finds_back(
    world: Make, effect: Any
) -> None:
    two = Two(world, effect)
    two.lose()
    begun = two.asked
    for n in range(20):
        two.w.take(command("c", run_id=f"{n}", action_id=f"{n}/1", effect=effect))
    assert [r for r in two.w.results() if r["run_id"].isdigit()] == []
    assert [key for key in two.w.store if key.startswith(b"o/")] == []
    two.w.until(lambda: len([r for r in two.w.results() if r["status"] == "succeeded"]) == 20)
    assert two.asked == begun + 20
    assert two.w.worker.accepting
    assert two.reach.snapshot().offline is None


def test_as_long_as_nothing_answers_one_call_a_time_is_made_ever_more_rarely(world: Make) -> None:
    two = Two(world)
    two.lose()
    two.c.error = lost("c")
    began = time.monotonic()
    for n in range(20):
        two.w.take(command("c", run_id=f"{n}", action_id=f"{n}/1"))
    two.w.until(lambda: two.c.asked >= 4)  # after 0.02, 0.04, 0.08, 0.08
    seconds = time.monotonic() - began
    assert seconds >= 0.2
    assert two.c.asked <= 4 + (seconds - 0.22) / 0.08 + 1
    answered = [r["run_id"] for r in two.w.results() if r["run_id"].isdigit()]
    assert answered[:4] == ["0", "1", "2", "3"]
    assert told(two.w) == []  # nobody is charged
    two.c.error = None
    two.w.until(lambda: len(two.w.results()) == 22)
    assert two.w.worker.accepting


def test_an_answer_to_what_was_under_way_ends_it_at_once(world: Make) -> None:
    """A service's 503 comes over the network, too."""
    two = Two(world, offline=OfflineSettings(first_wait_seconds=600, longest_wait_seconds=600))
    begun, go = threading.Event(), threading.Event()

    @tool("slow", effect="read_only")
    def slow() -> None:
        begun.set()
        go.wait(10)
        raise say(503)

    two.w.worker.tools["slow"] = slow
    two.w.take(command("slow", run_id="s", action_id="s/1"))
    assert begun.wait(5)
    two.lose()
    assert not two.w.worker.accepting
    go.set()
    two.w.until(lambda: two.w.worker.accepting)


def test_two_services_that_stay_dead_stop_nobody_again(world: Make) -> None:
    two = Two(world)
    two.lose()
    two.w.until(lambda: two.w.worker.accepting)
    call(two.w, "good", "c")
    for n in range(3):
        call(two.w, f"a{n}", "a")
        call(two.w, f"b{n}", "b")
    assert two.reach.snapshot().offline is None
    assert [(each.target, each.state) for each in told(two.w)] == [("a", "open"), ("b", "open")]


def test_waiting_calls_of_a_partition_given_up_are_left_to_the_next_owner(world: Make) -> None:
    two = Two(world, "idempotent", offline=OfflineSettings(first_wait_seconds=60, longest_wait_seconds=60))  # fmt: skip
    two.lose()
    before = two.asked
    for n in range(3):
        two.w.take(command("c", run_id=f"{n}", action_id=f"{n}/1", effect="idempotent"))
    given_up = two.w.assignment
    given_up.alive = False
    two.w.worker.revoked(given_up)  # type: ignore[arg-type]
    two.w.assignment = FakeAssignment()
    assert (two.w.worker.running, given_up.in_flight, two.asked) == (0, 0, before)
    assert [(hold.finished, hold.left) for hold in two.w.holds[-3:]] == [(False, True)] * 3


def test_a_waiting_call_can_be_cancelled(world: Make) -> None:
    two = Two(world, offline=OfflineSettings(first_wait_seconds=60, longest_wait_seconds=60))
    two.lose()
    two.w.take(command("c", run_id="x", action_id="x/1"))
    two.w.take(command("c", run_id="x", action_id="x/1", verb="cancel"))
    assert [r["status"] for r in two.w.results() if r["run_id"] == "x"] == ["cancelled"]
    assert (two.w.worker.running, two.c.asked) == (0, 0)


def test_it_can_be_turned_off(world: Make) -> None:
    two = Two(world, stands=True, offline=OfflineSettings(within_seconds=0))
    for n in range(3):
        call(two.w, f"a{n}", "a")
        call(two.w, f"b{n}", "b")
    assert two.w.worker.accepting
    assert {each.target for each in told(two.w)} == {"a", "b"}


def test_tools_whose_host_is_not_known_count_by_their_names(world: Make) -> None:
    @tool("d", effect="read_only")
    def plain() -> None:
        raise ConnectionRefusedError("no")

    @tool("e", effect="read_only")
    def other() -> None:
        raise ConnectionRefusedError("no")

    w = world(plain, other, stands=True)
    call(w, "x", "d")
    call(w, "y", "e")
    assert not w.worker.accepting
    assert all(topic == topics.RESULTS for topic, *_ in w.producer.sent)
