"""Three brokers, three copies, two in step: one may die, two stop the work, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.chaos.brokers import Brokers
from tests.chaos.deployed import EVENTS, Site
from tests.chaos.load import Load
from tests.chaos.role import Role
from tests.kafka.world import until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.chaos,
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

QUIET_SECONDS = 8.0


def keep_alive(roles: list[Role]) -> None:
    """A supervisor: what ended because Kafka was away is started again."""
    for role in roles:
        if not role.running():
            assert role.exit_code in (1, 3, 5), f"{role.exit_code}\n{role.tail()}"
            role.start()


def test_one_of_three_may_die_two_stop_the_work(
    tmp_path: Path, make_site: Callable[..., Site]
) -> None:
    with Brokers(tmp_path / "brokers") as brokers:
        site = make_site(brokers.bootstrap)
        roles = [site.role("engine"), site.role("worker")]
        for role in roles:
            role.start()
        site.ready(90)
        topic = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(timeout=20).topics
        assert all(len(p.replicas) == 3 for p in topic[site.prefix + EVENTS].partitions.values())
        load = Load(site, 4.0)

        def working() -> None:
            keep_alive(roles)
            load.step()

        def watching() -> None:
            keep_alive(roles)
            load.look()

        until(lambda: load.ended >= 8, "three stand", 60, working)
        first, second, _third = brokers.nodes
        first.kill()
        mark = load.ended
        until(lambda: load.ended >= mark + 20, "work goes on with two of three", 90, working)
        second.kill()
        # What was committed before the kill may still be on its way to the reader.
        calm = time.monotonic() + 3
        until(lambda: time.monotonic() > calm, "calm", 30, watching)
        mark, end = load.ended, time.monotonic() + QUIET_SECONDS
        until(lambda: time.monotonic() > end, "time passes", 60, watching)
        assert load.ended == mark, "runs ended with one broker of three"
        brokers.start(second)
        until(
            lambda: load.ended > mark or load.ended == len(load.submitted),
            "on again",
            120,
            watching,
        )
        mark = len(load.submitted)
        until(lambda: load.ended >= mark, "new ones too", 120, working)
        brokers.start(first)
        brokers.wait(3)
        load.settle(150, lambda: keep_alive(roles))
