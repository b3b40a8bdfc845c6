"""`perdure views` as processes: two that share the runs, one that is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kafka.world import until

from .histories import golden
from .test_views_kafka import Log

NONE: dict[str, Any] = {"totals": {"done": -1}}
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


class Process:
    """One `perdure views --dev` process."""

    def __init__(self, log: Log, directory: Path, name: str, *flags: str) -> None:
        where = ["--bootstrap-servers", log.broker, "--topic-prefix", log.prefix]
        where += ["--data-dir", str(directory), "--instance-id", name, "--port", "0"]
        command = [sys.executable, "-m", "perdure", "views", "--dev", *where, *flags]
        self._said = directory / f"{name}.log"
        with self._said.open("w") as said:  # a pipe that nobody reads would stop it one day
            self._process = subprocess.Popen(command, stderr=said)
        serving = until(lambda: re.findall(r"serving (http\S+)", self.told), "it serves", 60)
        address = serving[-1]
        self.client = httpx.Client(base_url=address, trust_env=False, timeout=20)

    @property
    def told(self) -> str:
        return self._said.read_text()

    def get(self, path: str, **query: Any) -> Any:
        """What it answers, or None while it can't."""
        try:
            found = self.client.get(path, params=query)
        except httpx.TransportError:
            return None
        return found.json() if found.status_code == 200 else None

    def versions(self) -> dict[str, int]:
        page = self.get("/api/runs", limit=200) or {"runs": []}
        return {row["run_id"]: row["version"] for row in page["runs"]}

    def end(self, number: int) -> int:
        self.client.close()
        self._process.send_signal(number)
        return self._process.wait(30)


@pytest.fixture
def log(broker: str, prefix: str) -> Log:
    return Log(broker, prefix)


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for process in made:
        if process._process.poll() is None:
            process.end(signal.SIGKILL)


def test_either_of_two_processes_answers_for_all_runs_and_one_alone_too(
    log: Log, tmp_path: Path, processes: list[Process]
) -> None:
    wanted = {}
    for n in range(8):
        events = golden("0.1-first-plan", f"r{n}", 1_750_000_000_000 + n)
        wanted[f"r{n}"] = len(events)
        log.write(events, ended=True)
    processes += [Process(log, tmp_path, "one"), Process(log, tmp_path, "two")]
    one, two = processes

    def shared() -> bool:
        views = (one.get("/api/health") or {"views": []})["views"]
        return len(views) == 2 and all(view["partitions"] for view in views)

    until(shared, "each holds a partition", 60)
    until(lambda: one.versions() == two.versions() == wanted, "both list all", 60)
    for run_id, version in wanted.items():
        for process in processes:
            found = until(lambda p=process, r=run_id: p.get(f"/api/runs/{r}"), run_id)
            assert (found["run"]["version"], found["outcome"]["version"]) == (version, version)
            path = f"/api/runs/{run_id}/timeline"
            story = until(lambda p=process, r=path: p.get(r, limit=2000), path)
            assert len(story["entries"]) == version
    until(lambda: (one.get("/api/stats") or NONE)["totals"]["done"] == len(wanted), "counted once")
    two.end(signal.SIGKILL)
    listed: list[dict[str, int]] = []
    until(lambda: listed.append(one.versions()) or listed[-1] == wanted, "all of them again", 60)
    assert [each for each in listed if each not in ({}, wanted)] == []  # never some of them
    later = golden("0.1-first-plan", "later")
    log.write(later)
    until(lambda: one.versions().get("later") == len(later), "it goes on")
    assert one.end(signal.SIGTERM) == 0
