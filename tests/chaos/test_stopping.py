"""Stops in good order under load, and runs that are cancelled while they wait (O01, R05)."""

from __future__ import annotations

import time

import pytest

from tests.chaos.deployed import COMMANDS, CONTROL, Site, plan_of
from tests.chaos.judge import check_history
from tests.chaos.load import Load
from tests.kafka.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.soak]

CANCELLED = 200


def test_o01_stopped_under_load_nothing_is_lost_or_in_doubt(site: Site) -> None:
    """SIGTERM to engine and worker with 500 tasks in the topics and slow calls under way."""
    engine, worker = site.role("engine").start(), site.role("worker").start()
    site.ready()
    load = Load(site, 100.0, slow=0.2)
    until(lambda: len(load.submitted) >= 500, "500 tasks", 30, load.step)
    for round_ in range(3):
        for role in (engine, worker):
            role.live()
        mark = load.ended
        until(lambda mark=mark: load.ended > mark + 10, f"it works, round {round_}", 60, load.look)  # type: ignore[misc]
        began = time.monotonic()
        for role in (engine, worker) if round_ % 2 else (worker, engine):
            assert role.stop(site.drain_seconds + 5) == 0, role.tail()
        assert time.monotonic() - began < site.drain_seconds + 5
        engine.start()
        worker.start()
    load.settle(150)
    assert not load.person.answered, "a stop in good order leaves nobody in doubt"


def test_r05_runs_cancelled_in_backoff_are_never_called_again(site: Site) -> None:
    """200 runs wait for their next try; the engine is killed as well; all of them are cancelled."""
    engine = site.role("engine").start()
    site.role("worker").start()
    site.ready()
    runs = [f"down-{n}" for n in range(CANCELLED)]
    site.submit(*(plan_of(run_id, "down") for run_id in runs))
    site.until(
        lambda: all(
            any(e["type"] == "retry_scheduled" for e in site.watch.events(run)) for run in runs
        ),
        "all are in backoff",
        60,
    )
    engine.kill()
    site.produce(CONTROL, *({"run_id": run, "command": "cancel", "by": "ann"} for run in runs))
    engine.start()
    site.until(lambda: all(site.watch.outcome(run) for run in runs), "all are cancelled", 60)
    assert {site.watch.outcome(run)["status"] for run in runs} == {"cancelled"}  # type: ignore[index]
    # Every timer that was set is over by then; a run that was still alive would call again.
    due = max(
        e["data"]["due"]
        for run in runs
        for e in site.watch.events(run)
        if e["type"] == "retry_scheduled"
    )
    site.until(lambda: time.time() * 1000 > due + 3_000, "the last timer's time", 60)
    site.watch.read_up()
    for run in runs:
        events = site.watch.events(run)
        assert events[-1]["type"] == "run_finished", f"{run} went on: {events[-1]['type']}"
        calls = [s for s in site.watch.by_key[COMMANDS, run] if s.value["verb"] == "call"]
        requested = sum(e["type"] == "action_requested" for e in events)
        assert len(calls) == requested
        assert site.service.requests["down", run] <= requested
        check_history(site.watch, run)
