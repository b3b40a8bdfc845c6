"""One `perdure up` for all end-to-end cases: its processes, its topics, a model, and effects counted.

Tests share it, each with run ids of its own; records go to it with a plain Kafka client.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from perdure.streams.runtime.partitioner import partition_of

from . import inputs
from .inputs import Sent
from .model_server import ModelServer
from .watcher import Seen, Watcher

HERE = Path(__file__).parent
OUT = ["events", "outcomes", "verdicts", "approvals.pending", "dead-letters", "commands.tools"]
WATCHED = [
    f"agent.{name}" for name in [*OUT, "commands.models", "results", "forwarded", "approvals"]
]
DEMO = [
    {"tool_calls": [{"name": "read_note", "arguments": {"id": 1}}]},
    {"tool_calls": [{"name": "put_note", "arguments": {"text": "demo"}}]},
    {"content": "done"},
]
TOOLS = [
    "read_note",
    "put_note",
    "pay",
    "pay_slowly",
    "pay_known",
    "slow",
    "big",
    "odd",
    "ping",
    "down",
    "http_get",
]
CALLS = ["http_read", "http_put", "http_post", "late", "slow"]
"""Tools of the agent `caller`, whose plans call what refuses, lies, falls silent or is late."""


def perdure(
    *arguments: str, where: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """One command of the command line."""
    command = [sys.executable, "-m", "perdure", *arguments, *where]
    known = {**os.environ, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=known
    )


class Deployment:
    """Topics under a prefix of their own on a broker that others use too."""

    def __init__(self, directory: Path, bootstrap: str, prefix: str, model: ModelServer) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.model = model
        self.where = ["--bootstrap-servers", bootstrap, "--topic-prefix", prefix]
        self.where += ["--data-dir", str(directory / "data")]
        self._effects = directory / "effects.jsonl"
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.max.bytes": 4_200_000,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    # --- its life -----------------------------------------------------------------------------

    def create_topics(self) -> None:
        made = perdure("topics", "create", "--partitions", "2", where=self.where)
        assert made.returncode == 0, made.stderr

    def start(
        self,
        agents: dict[str, Any],
        *,
        people: dict[str, Any] | None = None,
        tools: Sequence[Path] = (),
        watched: Sequence[str] = WATCHED,
        flags: Sequence[str] = ("--no-views", "--log-level", "INFO"),
        **environment: str,
    ) -> None:
        """``tools``: files beside those of the cases; ``environment``: what those need."""
        settings = self.directory / "agents.yaml"
        settings.write_text(yaml.safe_dump({"people": people or {}, "agents": agents}))
        command = [sys.executable, "-m", "perdure", "up", "--json", *flags]
        command += ["--tools", str(HERE / "tools.py"), "--agents", str(settings), *self.where]
        for file in tools:
            command += ["--tools", str(file)]
        # One tool stands for many services here: its breaker would answer for all of them.
        calm = {"PERDURE_BREAKER_FAILURES": "0", "PERDURE_OFFLINE_WITHIN_SECONDS": "0"}
        known = {**os.environ, "CASES_EFFECTS": str(self._effects), **calm, **environment}
        with (self.directory / "up.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=known
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log()[-3000:]
        self.ready = json.loads(line)
        assert self.ready["ready"] is True
        self.topics = Watcher(self.bootstrap, self.prefix, list(watched))

    def stop(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self.topics.close()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._process.stdout.close()
        return code

    def pid(self, role: str) -> int:
        """The process that plays a role now."""
        assert self._process is not None
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_text().split("\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == self._process.pid and role in words:
                return int(entry.name)
        raise AssertionError(f"no process of this deployment is a {role}")

    def kill(self, role: str) -> None:
        """kill -9; the supervisor starts it again."""
        os.kill(self.pid(role), signal.SIGKILL)

    def metric(self, role: str, line: str) -> float:
        """A value of the role's own /metrics."""
        for row in self.metrics(role).splitlines():
            if row.startswith(line + " "):
                return float(row.split()[-1])
        raise AssertionError(f"no metric {line}")

    def metrics(self, role: str) -> str:
        """The role's own /metrics."""
        words = Path(f"/proc/{self.pid(role)}/cmdline").read_text().split("\0")
        port = words[words.index("--metrics-port") + 1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def log(self) -> str:
        return (self.directory / "up.log").read_text()

    # --- what goes in -------------------------------------------------------------------------

    def send(self, topic: str, *records: Sent, partition: int = -1) -> None:
        for record in records:
            self._producer.produce(
                self.prefix + topic, record.value, record.key, partition, headers=record.headers
            )
        assert self._producer.flush(30) == 0

    def put(self, topic: str, partition: int = -1, **value: Any) -> None:
        self.send(topic, Sent(json.dumps(value).encode()), partition=partition)

    def task(self, agent: str, task_id: str, **more: Any) -> None:
        self.put("agent.tasks", **{"agent": agent, "task_id": task_id, "input": "do it", **more})

    def play(self, name: str, **changes: Any) -> str:
        """Start the task of an id with the model playing its replies; gives the run's id."""
        task = inputs.task(name, agent=agent_of(name), **changes)
        self.put("agent.tasks", **task)
        return str(task["task_id"])

    # --- what came out ------------------------------------------------------------------------

    def outcome(self, run_id: str, seconds: float = 30) -> dict[str, Any]:
        found = self.topics.wait(
            "agent.outcomes", lambda seen: seen.key == run_id and seen.raw, run_id, seconds
        )
        return found[-1].value  # type: ignore[no-any-return]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """The run's events; fails unless their versions are 1, 2, 3, ..."""
        found = [seen.value for seen in self.topics.on("agent.events", lambda s: s.key == run_id)]
        assert [event["version"] for event in found] == list(range(1, len(found) + 1))
        return found

    def question(self, run_id: str) -> dict[str, Any]:
        found = self.topics.wait(
            "agent.approvals.pending",
            lambda seen: (seen.key or "").startswith(run_id + "/") and seen.raw,
            run_id,
        )
        return found[-1].value  # type: ignore[no-any-return]

    def decide(self, approval_id: str, decision: str = "approve", **more: Any) -> None:
        word = {"approval_id": approval_id, "decision": decision, "approver": "ann", **more}
        self.put("agent.approvals", **word)

    def dead(self, raw: bytes | None, seconds: float = 30) -> Seen:
        """The dead letter that holds exactly these bytes."""
        return self.topics.wait(
            "agent.dead-letters", lambda seen: seen.raw == raw, repr(raw)[:80], seconds
        )[-1]

    def all_effects(self) -> list[dict[str, Any]]:
        """What the tools really did."""
        if not self._effects.exists():
            return []
        return [json.loads(line) for line in self._effects.read_text().splitlines()]

    def effects(self, run_id: str, tool: str) -> list[dict[str, Any]]:
        """What a tool really did for a run."""
        made = self.all_effects()
        return [effect for effect in made if (effect["run"], effect["tool"]) == (run_id, tool)]

    def until(
        self, done: Callable[[], Any], what: str, seconds: float = 20, every: float = 0.02
    ) -> Any:
        """Wait for what no topic shows; ``every``: seconds between looks."""
        end = time.monotonic() + seconds
        nap = threading.Event()
        while not (found := done()):
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            nap.wait(every)
        return found

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return perdure(*arguments, where=self.where)


def agent_of(name: str) -> str:
    """The agent whose model plays the replies of an id."""
    return name.lower()


def partition(run_id: str) -> int:
    """The partition that owns a run."""
    return partition_of(run_id, 2)
