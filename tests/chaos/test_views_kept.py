"""A view kept through kills, of the others and of its own, shows what others make of the log."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.chaos.deployed import EVENTS, Site, plan_of
from tests.chaos.load import Load
from tests.chaos.role import Role
from tests.kafka.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.timeout(240)]

KILLS = 4


class Asked:
    """What a view process answers."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def get(self, path: str) -> Any:
        """None while it can't say."""
        serving = re.findall(r"serving (http\S+)", self._role.said())
        if not serving:
            return None
        try:
            found = httpx.get(serving[-1] + path, trust_env=False, timeout=20)
        except httpx.TransportError:
            return None
        return found.json() if found.status_code == 200 else None

    def versions(self) -> dict[str, int]:
        """Of every run that has its outcome, or still waits."""
        return {
            run["run_id"]: run["version"]
            for run in self.runs()
            if run["complete"] is not None or run["waiting_for"]
        }

    def runs(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.get(f"/api/runs?limit=50&cursor={cursor}")
            if page is None:
                return []
            rows += page["runs"]
            if page["next"] is None:
                return rows
            cursor = page["next"]

    def whole(self) -> dict[str, Any]:
        """All that it shows of runs, agents and tools, and the minutes' figures."""
        stats = self.get("/api/stats")
        shown: dict[str, Any] = {"runs": self.runs(), "totals": stats["totals"]}
        shown["rates"] = [minute for minute in stats["rates"] if minute["steps"]]
        for path in ("/api/agents", "/api/tools"):
            shown[path] = self.get(path)
        for run in shown["runs"]:
            for part in ("", "/timeline?limit=2000", "/actions"):
                path = f"/api/runs/{run['run_id']}{part}"
                shown[path] = self.get(path)
        return shown


def test_a_view_kept_through_kills_equals_one_moved_and_one_made_anew(site: Site) -> None:
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"CHAOS_SEED={seed}")
    chance = random.Random(seed)
    serving = ["--dev", "--port", "0"]
    engine, worker = (site.role(name).start() for name in ("engine", "worker"))
    site.ready()
    view = site.role("views", "kept", flags=serving).start()
    load = Load(site, 5.0)

    def step() -> None:
        for role in (engine, worker, view):
            if not role.running():
                assert role.exit_code in (-9, 5), f"{role.exit_code}\n{role.tail()}"
                role.start()
        load.step()

    until(lambda: load.ended >= 5, "it works", 40, step)
    for number in range(KILLS):
        victim = view if number % 2 else chance.choice([engine, worker])
        victim.kill()
        _pass(chance.uniform(0.5, 3.5), step)
    load.settle(60, lambda: None if view.running() else view.start() and None)
    site.submit(plan_of("asks", "gift"), {**plan_of("ends", "put"), "budget": {"max_steps": 0}})
    site.question("asks")
    site.outcome("ends")

    every = [*load.submitted, "asks", "ends"]
    wanted = {run_id: len(site.watch.events(run_id)) for run_id in every}
    kept = Asked(view)
    until(lambda: kept.versions() == wanted, "the kept view has all of it", 40)
    before = kept.whole()
    assert None not in before.values()
    assert view.stop() == 0

    # Another directory: the tables come from the changelogs alone. Then from the events alone.
    for name, flags in (("moved", serving), ("anew", [*serving, "--rebuild"])):
        other = site.role("views", name, flags=flags).start()
        made = Asked(other)
        until(lambda made=made: made.versions() == wanted, f"{name} has all of it", 40)  # type: ignore[misc]
        after = made.whole()
        assert after.keys() == before.keys()
        for path, shown in before.items():
            assert after[path] == shown, f"{name}: {path}"
        assert other.stop() == 0
    told = [after[f"/api/runs/{run_id}/timeline?limit=2000"]["entries"] for run_id in every]
    assert sum(map(len, told)) == len(site.watch.by_topic[EVENTS])


def _pass(seconds: float, step: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, "time passes", seconds + 60, step)
