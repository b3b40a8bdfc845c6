"""``python -m tests.chaos.failover``: how long the partitions of a killed process stand still.

Two engines and two workers under load; one of them is killed with -9 (and started again at once, as
a supervisor does). Measured, for each partition it had: from the kill to the first committed event
that was decided after it (engine), or to the first result of a call begun after it (worker), as a
read_committed client sees it. The slowest partition of a kill is that kill's figure.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from perdure.streams.cluster.broker import EmbeddedKafka

from tests.kafka.world import until

from .deployed import EVENTS, RESULTS, Seen, Site, Watch
from .fake_service import FakeService
from .load import Load
from .role import Role

KILLS = 20
RATE = 8.0
"""Runs a second, each of five calls."""
LONGEST_SECONDS = 10.0
REST_SECONDS = 4.0
"""Between a recovery and the next kill, so that the started process is a member again."""


def partitions_of(admin: AdminClient, site: Site, processor: str, instance: str) -> set[int]:
    """What the group says a process has."""
    group = f"{site.prefix}perdure.{processor}"
    described = admin.describe_consumer_groups([group], request_timeout=20)[group].result()
    return {
        spot.partition
        for member in described.members
        if member.client_id == f"{site.prefix}{processor}.{instance}" and member.assignment
        for spot in member.assignment.topic_partitions
    }


def progressed(seen: Seen, killed_at_ms: float) -> bool:
    """It was decided, or called, after the kill."""
    if seen.topic == EVENTS:
        return bool(seen.value["at"] > killed_at_ms)
    return bool((seen.value.get("started_at") or 0) > killed_at_ms)


class Measured:
    """Kills, and how long each took to be over."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.roles = {
            (name, instance): site.role(name, instance, data=site.directory / instance)
            for name in ("engine", "worker")
            for instance in ("one", "two")
        }
        for role in self.roles.values():
            role.start()
        site.ready()
        self.load = Load(site, RATE)
        self.results = Watch(site, "read_committed", [RESULTS])
        self.admin = AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})

    def step(self) -> None:
        for role in self.roles.values():
            if not role.running():
                role.start()
        self.load.step()
        self.results.pump(0.0)

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        until(lambda: time.monotonic() > end, "a rest", seconds + 20, self.step)

    def kill(self, name: str, instance: str) -> dict[str, Any]:
        processor = "engine" if name == "engine" else "worker.tools"
        role: Role = self.roles[name, instance]

        def owned() -> set[int]:
            return partitions_of(self.admin, self.site, processor, instance)

        until(owned, f"{name} {instance} has partitions", 60, lambda: self.rest(0.3))
        mine = owned()
        watch, topic = (self.site.watch, EVENTS) if name == "engine" else (self.results, RESULTS)
        known = len(watch.by_topic[topic])
        killed_at, began = time.time() * 1000, time.monotonic()
        role.kill()
        back: dict[int, float] = {}

        def all_back() -> bool:
            nonlocal known
            for seen in watch.by_topic[topic][known:]:
                if seen.partition in mine and progressed(seen, killed_at):
                    back.setdefault(seen.partition, time.monotonic() - began)
            known = len(watch.by_topic[topic])
            return mine <= set(back)

        self.site.until(all_back, f"{mine} of {name} {instance} work again", 60, self.step)
        return {
            "role": name, "instance": instance, "partitions": sorted(mine),
            "seconds": round(max(back.values()), 2),
        }  # fmt: skip


def measure(bootstrap: str, directory: Path, kills: int = KILLS) -> list[dict[str, Any]]:
    """One row a kill. Fails if an effect is doubled or missing at the end."""
    service = FakeService()
    site = Site(bootstrap, "failover.", directory, service)
    try:
        measured = Measured(site)
        measured.rest(8)
        rows = []
        for number in range(kills):
            name = ("engine", "worker")[number % 2]
            instance = ("one", "two")[number // 2 % 2]
            rows.append(measured.kill(name, instance))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            measured.rest(REST_SECONDS)
        measured.load.settle(90, measured.load.look)
        return rows
    finally:
        site.close()
        service.close()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """p50 and the largest, by role and in all."""
    found: dict[str, Any] = {"kills": len(rows)}
    for name in ("engine", "worker", None):
        seconds = [row["seconds"] for row in rows if name in (None, row["role"])]
        found[name or "all"] = {"p50": round(statistics.median(seconds), 2), "max": max(seconds)}
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-failover-") as scratch:
        directory = Path(scratch)
        with EmbeddedKafka(directory / "kafka", port=0) as kafka:
            found = summary(measure(kafka.bootstrap_servers, directory / "site"))
    print(json.dumps(found))
    sys.exit(0 if found["all"]["max"] < LONGEST_SECONDS else 1)


if __name__ == "__main__":
    main()
