"""Processes that die, stop, come and go under load; all runs are judged at the end (T01, T02, T03, D03).

Every run calls each kind of tool. Effects are counted at the fake service.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from perdure.streams.cluster.broker import EmbeddedKafka

from tests.chaos.brokers import Brokers
from tests.chaos.deployed import EVENTS, Site, plan_of
from tests.chaos.judge import Person, check_runs, rolled_back
from tests.chaos.load import Load
from tests.chaos.points import TOOLS
from tests.chaos.role import Role
from tests.kafka.world import until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.chaos,
    pytest.mark.soak,
    pytest.mark.timeout(500),
]

PAST_SESSION = 6.5
"""Seconds: longer than a member of a group may be silent (5)."""
PAST_TIMEOUTS = 13.0
"""Longer than a transaction may be open (10), too."""


def pause(seconds: float, step: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, "time passes", seconds + 60, step)


class Fleet:
    """Engines and workers with a supervisor, each with a directory of its own."""

    def __init__(self, site: Site, engines: int, workers: int) -> None:
        self.site = site
        names = ("one", "two", "three")
        wanted = [("engine", n) for n in names[:engines]] + [("worker", n) for n in names[:workers]]
        self.roles = [site.role(role, n, data=site.directory / n) for role, n in wanted]
        self.away: set[Role] = set()
        self.expected_codes = {-9, 5}
        for role in self.roles:
            role.start()

    def look(self) -> None:
        for role in self.roles:
            if role not in self.away and not role.running():
                assert role.exit_code in self.expected_codes, f"{role.exit_code}\n{role.tail()}"
                role.start()

    def starts(self) -> int:
        return sum(role.starts for role in self.roles)


def test_t01_members_join_and_leave_in_a_loop(site: Site) -> None:
    """In good order: SIGTERM. Partitions change hands while calls run; none is made twice."""
    fleet = Fleet(site, 3, 3)
    fleet.expected_codes = set()
    site.ready()
    load = Load(site, 6.0, slow=0.3)

    def step() -> None:
        fleet.look()
        load.step()

    pause(8, step)
    for number in range(12):
        role = fleet.roles[(0, 3, 1, 4, 2, 5)[number % 6]]
        fleet.away.add(role)
        role.signal(signal.SIGTERM)
        until(lambda role=role: not role.running(), "it ends", 40, step)  # type: ignore[misc]
        assert role.exit_code == 0, role.tail()
        pause(1.0, step)
        role.start()
        fleet.away.discard(role)
        pause(3.0, step)
    load.settle(90, fleet.look)
    assert not load.person.answered, "a member that leaves in order leaves nobody in doubt"
    assert load.longest_silence < 10, f"{load.longest_silence:.1f} s without a run that ended"


def test_t02_killed_and_stopped_at_random(site: Site) -> None:
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"CHAOS_SEED={seed}")
    chance = random.Random(seed)
    fleet = Fleet(site, 2, 2)
    site.ready()
    load = Load(site, 5.0, slow=0.1)

    def step() -> None:
        fleet.look()
        load.step()

    pause(5, step)
    for _ in range(10):
        role = chance.choice(fleet.roles)
        if chance.random() < 0.6:
            print(f"kill {role.log.name}")
            role.kill()
            pause(chance.uniform(0.5, 6), step)
        else:
            seconds = chance.choice([1.0, 6.5, 8.0, PAST_TIMEOUTS])
            print(f"stop {role.log.name} for {seconds} s")
            role.signal(signal.SIGSTOP)
            pause(seconds, step)
            role.signal(signal.SIGCONT)
            pause(chance.uniform(0.5, 3), step)
    load.settle(150, fleet.look)
    assert fleet.starts() <= 4 + 10 * 2, "processes that end again and again"


@pytest.mark.parametrize("point", ["output.after", "commit.before"])
def test_t02_stopped_with_a_transaction_open(site: Site, point: str) -> None:
    """Engine and worker stop in mid-transaction for longer than all timeouts; others take over."""
    import json

    for name in ("engine", "worker"):
        site.role(name, crashing=True).start()
    first = list(site.roles)
    site.ready()
    for role in first:
        assert role.plan is not None
        role.live()
        # The worker's third: wire is noted as started, and not called.
        n = 3 if role.name == "worker" else 2
        role.plan.write_text(json.dumps({"point": point, "n": n, "action": "stop"}))
        role.signal(signal.SIGUSR1)
        until(role.plan.with_suffix(".armed").exists, "armed", 10)
    person = Person(site)
    site.submit(plan_of("stopped", *TOOLS))
    engine, worker = first
    assert engine.plan is not None
    assert worker.plan is not None
    site.until(engine.plan.with_suffix(".fired").exists, "the engine stops", 30)
    second = site.role("engine", "two", data=site.directory / "two").start()
    site.until(worker.plan.with_suffix(".fired").exists, "the worker stops", 60, person.look)
    site.role("worker", "two", data=site.directory / "two").start()
    pause(PAST_TIMEOUTS, lambda: (site.watch.pump(), person.look())[0])
    second.live(2)
    outcome = site.outcome("stopped", 60, person.look)
    assert outcome["complete"] is True
    for role in first:
        role.signal(signal.SIGCONT)
    # Back, each finds itself fenced and ends, or rejoins; then all of them work.
    site.submit(*(plan_of(f"after-{n}", *TOOLS) for n in range(10)))
    for n in range(10):
        assert site.outcome(f"after-{n}", 60, person.look)["complete"] is True
    for role in first:
        assert role.exit_code in (None, 5), role.tail()
    for run_id in ("stopped", *(f"after-{n}" for n in range(10))):
        for tool in TOOLS[1:]:
            assert site.service.count(tool, run_id) == 1, f"{tool} of {run_id}"
    assert rolled_back(site, EVENTS) > 0, "the open transaction had written something"
    check_runs(site, ["stopped", *(f"after-{n}" for n in range(10))])


def test_t03_broker_killed_and_stopped_under_load(
    tmp_path: Path, make_site: Callable[..., Site]
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", port=0) as kafka:
        site = make_site(kafka.bootstrap_servers)
        fleet = Fleet(site, 1, 1)
        fleet.expected_codes |= {1, 3}
        site.ready()
        load = Load(site, 5.0)

        def step() -> None:
            fleet.look()
            load.step()

        def look() -> None:
            fleet.look()
            load.look()

        def goes_on(after: str) -> None:
            mark = load.ended
            until(lambda: load.ended > mark + 5, f"goes on after {after}", 120, step)

        def kill() -> None:
            os.kill(kafka.pid, signal.SIGKILL)
            until(lambda: not kafka.alive(), "dead")

        until(lambda: load.ended >= 10, "it works", 60, step)
        for _ in range(2):
            kill()
            kafka.start()
            goes_on("a kill")
            os.kill(kafka.pid, signal.SIGSTOP)
            pause(PAST_SESSION, look)
            os.kill(kafka.pid, signal.SIGCONT)
            goes_on("a silence")
        kill()
        pause(PAST_TIMEOUTS, look)  # commits under way wait past the transaction's time
        kafka.start()
        goes_on("an absence")
        load.settle(120, fleet.look)


def test_t03_transactional_id_forgotten_while_idle(
    tmp_path: Path, make_site: Callable[..., Site]
) -> None:
    """The broker expires the ids after 15 seconds (longer than a failover); then a task comes."""
    soon = {
        "transactional.id.expiration.ms": "15000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        "producer.id.expiration.ms": "15000",
        "producer.id.expiration.check.interval.ms": "500",
    }
    with Brokers(tmp_path / "brokers", 1, soon) as brokers:
        site = make_site(brokers.bootstrap)
        fleet = Fleet(site, 1, 1)
        site.ready(90)
        person = Person(site)

        def look() -> None:
            fleet.look()
            person.look()

        for n in range(2):
            run_id = f"idle-{n}"
            site.submit(plan_of(run_id, *TOOLS))
            assert site.outcome(run_id, 60, look)["complete"] is True
            for tool in TOOLS[1:]:
                assert site.service.count(tool, run_id) == 1, f"{tool} of {run_id}"
            if n == 0:
                pause(18, lambda: (site.watch.pump(), fleet.look())[0])
        check_runs(site, ["idle-0", "idle-1"])
        assert fleet.starts() <= 4, "each may have had to end once"


def test_d03_partition_goes_back_and_forth_quickly(site: Site) -> None:
    """A second engine comes and goes at once, again and again: the store is never held twice."""
    engine = site.role("engine", data=site.directory / "one").start()
    site.role("worker").start()
    site.ready()
    other: Role = site.role("engine", "two", data=site.directory / "two")
    load = Load(site, 5.0)
    for _ in range(8):
        other.start()
        pause(2.0, load.step)
        other.signal(signal.SIGTERM)
        until(lambda: not other.running(), "it ends", 40, load.step)
        assert other.exit_code == 0, other.tail()
    load.settle(60)
    assert engine.running()
    assert "still held" not in engine.said()
