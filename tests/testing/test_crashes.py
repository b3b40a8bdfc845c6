"""Users' tools, killed at every point: the good ones hold, the liars are found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors.tool import Tool, tool

from perdure.testing import Crashes, Network, Report, TestingError

from . import service
from .service import Shop

pytestmark = pytest.mark.simulation
Make = Callable[[Shop], Tool[..., Any]]


def made(make: Make, *, only: str | None = None, **more: Any) -> Report:
    crashes = Crashes(only=only, repeat=lambda point, seed: f"again {point} {seed}")
    shop = Shop(crashes.network)
    given = make(shop)
    names = given.signature.names
    arguments = {"item": "tea"} if "item" in names else {}
    return crashes(given, arguments, effects=shop.count, reset=shop.clear, **more)


def points(report: Report) -> set[str]:
    return {cell.point.partition(" (")[0] for cell in report.cells}


PROMISES = {
    service.look: (None, {0}, {"completed"}),
    service.put: (1, {1}, {"completed"}),
    service.put_now: (1, {1}, {"completed"}),
    service.put_in_pages_now: (1, {1}, {"completed"}),
    service.pay: (1, {1}, {"completed"}),
    service.pay_now: (1, {1}, {"completed"}),
    service.send: (1, {0, 1}, {"completed", "in_doubt"}),
    service.undeclared: (1, {0, 1}, {"completed", "in_doubt"}),
}


WAITING = (service.put, service.pay, service.send)
SENDING = (service.put, service.put_now, service.pay, service.pay_now, service.send)


@pytest.mark.parametrize("make", PROMISES, ids=lambda make: make.__name__)
def test_a_tool_that_keeps_its_word(make: Make) -> None:
    most, counts, says = PROMISES[make]
    both = make is service.put_now
    report = made(make, then=["restart", "takeover"] if both else ["restart"])
    report.assert_effects()
    if most is not None:
        report.assert_effects(at_most=most)
    assert {cell.effects for cell in report.cells} == counts
    assert {cell.status for cell in report.cells} == says
    if make in WAITING:
        assert points(report) >= {"before await 1", "after await 1"}
    if make in SENDING:
        assert "request 1 sent" in points(report) or make in WAITING
        cases = {str(cell.case) for cell in report.cells}
        assert cases >= {"worker/restart", "worker/restart/late"}
        assert cases >= {"worker/takeover", "worker/takeover/late"} or not both
    assert points(report) >= {f"before tool.{report.effect}", f"after tool.{report.effect}"}


LIARS = {
    service.not_idempotent: "2  completed",
    service.not_idempotent_now: "2  completed",
    service.always_absent: "2  completed",
    service.always_found: "the run says that it happened",
    service.says_no_after_all: "the run says that it did not happen",
    service.tries_again_after_all: "3  not_completed",
}


@pytest.mark.parametrize("make", LIARS, ids=lambda make: make.__name__)
def test_a_tool_that_does_not_keep_its_word(make: Make) -> None:
    wrong_at_once = make in (service.says_no_after_all, service.tries_again_after_all)
    report = made(make, then=["restart"], only="worker/restart/0" if wrong_at_once else None)
    with pytest.raises(AssertionError) as failed:
        report.assert_effects()
    text = str(failed.value)
    assert LIARS[make] in text
    assert f"{report.tool} ({report.effect}" in text
    assert "courses are wrong (seed 0)" in text
    assert text.splitlines()[-1].startswith("again: again worker/restart/")
    if wrong_at_once:
        assert "It is wrong even if nobody is killed." in text


def test_a_query_that_never_knows_leaves_a_doubt() -> None:
    report = made(service.never_clear, then=["restart"])
    report.assert_effects(at_most=1)
    assert "in_doubt" in {cell.status for cell in report.cells}
    with pytest.raises(AssertionError, match="expected exactly 1"):
        report.assert_effects()  # a query was promised: it should tell


def test_a_service_slower_than_the_settle_time_is_found_out() -> None:
    with pytest.raises(AssertionError, match="2  completed     worker/restart/late"):
        made(service.pay, late_seconds=60.0, only="worker/restart/late/1").assert_effects()


def test_a_call_that_is_refused_happens_never() -> None:
    report = made(service.refused, only="worker/restart/1")
    report.assert_effects(exactly=0)
    assert {cell.status for cell in report.cells} == {"not_completed"}
    with pytest.raises(AssertionError, match="expected exactly 1"):
        report.assert_effects(exactly=1)


def test_what_was_saved_is_handed_to_the_call_after_the_crash() -> None:
    crashes = Crashes(repeat=lambda point, seed: "")
    shop = Shop(crashes.network)
    report = crashes(
        service.put_in_pages(shop),
        {"item": "tea"},
        effects=shop.count,
        reset=shop.clear,
        then=["restart"],
    )
    report.assert_effects(exactly=1)
    assert shop.handed == {None, 1, 2}


def test_a_killed_process_runs_no_finally() -> None:
    crashes = Crashes(only="worker/takeover/27", repeat=lambda point, seed: "")
    shop = Shop(crashes.network)
    tidied: list[int] = []

    def count() -> int:
        tidied.append(shop.tidied)
        return shop.count()

    report = crashes(service.tidies_up(shop), {"item": "tea"}, effects=count, reset=shop.clear)
    assert report.cells[1].point.startswith("after await 1")
    assert tidied == [1, 0]


def test_a_point_is_repeated_alone() -> None:
    whole = made(service.put_now, then=["restart"])
    chosen = [cell for cell in whole.cells if cell.case.late][-1]
    alone = made(service.put_now, only=chosen.id).cells[1]
    assert (alone, alone.trace) == (chosen, chosen.trace)
    assert chosen.trace


def test_the_engine_can_be_the_victim() -> None:
    report = made(service.look, victims=["engine"], then=["takeover"])
    report.assert_effects()
    assert {str(cell.case) for cell in report.cells if cell.number} == {"engine/takeover"}
    assert points(report) >= {"before producer.commit", "after producer.commit"}


def test_a_tool_may_name_others_that_are_not_there() -> None:
    crashes = Crashes(only="worker/restart/0", repeat=lambda point, seed: "")

    @tool("made", effect="idempotent", compensate="made.undo", fallback="other", queue="own")
    def make(item: str) -> str:
        return item

    report = crashes(make, {"item": "tea"}, effects=lambda: 1, reset=lambda: None)
    assert report.undisturbed.status == "completed"


def test_what_the_run_says_is_told() -> None:
    crashes = Crashes(only="worker/restart/0", repeat=lambda point, seed: "")
    shop = Shop(crashes.network)
    report = crashes(service.pay(shop), {"item": 7}, effects=shop.count, reset=shop.clear)
    with pytest.raises(AssertionError, match=r"the call was never made: .*7 is not of type"):
        report.assert_effects()


# --- tests that are wrong themselves ---------------------------------------------------------------


@pytest.mark.parametrize("point", ["", "12", "worker/restart", "worker/dance/3/4/5", "a/b/late/x"])
def test_a_point_nobody_named_is_refused(point: str) -> None:
    with pytest.raises(TestingError, match="is no point; one is worker/restart/12"):
        made(service.look, only=point)


def test_a_point_that_is_not_reached_is_named() -> None:
    with pytest.raises(TestingError, match="worker/restart/4000 is not reached"):
        made(service.look, only="worker/restart/4000")


def test_a_plain_function_is_no_tool() -> None:
    with pytest.raises(TestingError, match="decorate the function with @tool"):
        Crashes(repeat=lambda point, seed: "")(print, effects=int, reset=list)  # type: ignore[arg-type]


def test_nobody_else_can_be_a_victim() -> None:
    with pytest.raises(TestingError, match="victims takes a list of worker and engine"):
        made(service.look, victims=["broker"])
    with pytest.raises(TestingError, match="then takes a list of restart and takeover"):
        made(service.look, then="restart")


def test_a_request_lands_at_once_outside_of_a_crash_test() -> None:
    network = Network()
    assert asyncio.run(network.send(lambda: 7)) == 7
    assert network.call(lambda: 8) == 8
    assert not network.used


async def in_a_thread() -> None:
    await asyncio.to_thread(str, 1)


async def over_a_socket() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def at_a_host() -> None:
    await asyncio.open_connection("localhost", 9)


@pytest.mark.parametrize("wait", [in_a_thread, over_a_socket, at_a_host])
def test_a_tool_that_waits_for_what_is_real_is_told_so(wait: Callable[[], Any]) -> None:
    crashes = Crashes(only="worker/restart/0", repeat=lambda point, seed: "")

    @tool("waits", effect="read_only", timeout_seconds=5)
    async def waits(item: str) -> None:
        await wait()

    report = crashes(waits, {"item": "tea"}, effects=int, reset=list)
    with pytest.raises(AssertionError, match="it broke: the tool waits for a thread or for a sock"):
        report.assert_effects()
