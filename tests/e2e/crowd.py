"""Many runs that wait for people: what a process holds, how long a record takes, who decides."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.cases.deployment import Deployment

PING = [{"id": "p", "tool": "ping"}]


@dataclass(frozen=True)
class Wave:
    """Batches of questions, opened one after the other, that all expire at one time.

    Each batch has an agent of its own, whose questions are open for as much less as the batch
    is later.
    """

    name: str
    batches: int
    size: int
    step_seconds: float
    longest_seconds: float

    def agent(self, batch: int) -> str:
        return f"{self.name}-{batch}"

    def within_seconds(self, batch: int) -> float:
        return round(self.longest_seconds - batch * self.step_seconds, 3)


SHORT = Wave("short", batches=4, size=50, step_seconds=0.3, longest_seconds=5)
LONG = Wave("long", batches=40, size=50, step_seconds=0.6, longest_seconds=40)


@dataclass(frozen=True)
class Held:
    """What a process holds now."""

    rss_mb: float
    threads: int
    files: int

    def __str__(self) -> str:
        return f"{self.rss_mb:.1f} MB, {self.threads} threads, {self.files} files"


def held(pid: int) -> Held:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return Held(int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files)


def quantiles(times: list[float]) -> str:
    """p50 and p99 of times in ms."""
    ordered = sorted(times)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99)]
    return f"p50 {at[0]:.0f} ms, p99 {at[1]:.0f} ms (n={len(ordered)})"


class Commands:
    """When a reader of committed records sees the first command of a run (ms)."""

    def __init__(self, deployment: Deployment) -> None:
        self.first: dict[str, float] = {}
        self.count: dict[str, int] = {}
        self._stop = False
        topic = deployment.prefix + "agent.commands.tools"
        self._consumer = Consumer(
            {
                "bootstrap.servers": deployment.bootstrap,
                "group.id": "commands-clock",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        places = [TopicPartition(topic, number) for number in (0, 1)]
        for place in places:  # asked now: "the end", looked up later, would be a later end
            place.offset = self._consumer.get_watermark_offsets(place, timeout=10)[1]
        self._consumer.assign(places)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Commands:
        self._thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self._stop = True
        self._thread.join(10)
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            run_id = (message.key() or b"").decode()
            self.first.setdefault(run_id, time.time() * 1000)
            self.count[run_id] = self.count.get(run_id, 0) + 1


class Sender:
    """A producer that knows when the broker (or, for tasks, it itself) has stamped its records."""

    def __init__(self, deployment: Deployment) -> None:
        self._prefix = deployment.prefix
        self.stamped: dict[str, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": deployment.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def send(self, topic: str, run_id: str, value: dict[str, Any], *, key: bool = False) -> None:
        def acknowledged(error: object, message: Message) -> None:
            assert error is None
            self.stamped.setdefault(run_id, message.timestamp()[1])

        raw = json.dumps(value).encode()
        self._producer.produce(
            self._prefix + topic, raw, run_id if key else None, on_delivery=acknowledged
        )
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


def pays(run_id: str, agent: str = "payer") -> dict[str, Any]:
    plan = [{"id": "a", "tool": "pay", "arguments": {"to": "x", "amount": 5}}]
    return {"task_id": run_id, "agent": agent, "plan": plan}


def submit(deployment: Deployment, runs: list[str], agent: str = "payer") -> None:
    sender = Sender(deployment)
    for run_id in runs:
        sender.send("agent.tasks", run_id, pays(run_id, agent))
    sender.flush()


def questions(deployment: Deployment, prefix: str) -> set[str]:
    """Runs whose question stands on the pending topic and was not closed."""
    last: dict[str, bool] = {}
    for seen in deployment.topics.on("agent.approvals.pending"):
        if (seen.key or "").startswith(prefix):
            last[str(seen.key)] = seen.raw is not None
    return {approval_id.rpartition("/")[0] for approval_id, is_open in last.items() if is_open}


def decide(deployment: Deployment, runs: list[str], chance: random.Random) -> dict[str, int]:
    """Each run's approval twice, shuffled, from three producers, with and without a key.

    Gives the broker's time of the first copy.
    """
    words = runs * 2
    chance.shuffle(words)
    keyed = [chance.random() < 0.5 for _ in words]
    senders = [Sender(deployment) for _ in range(3)]

    def play(number: int) -> None:
        for run_id, key in list(zip(words, keyed, strict=True))[number::3]:
            word = {"approval_id": f"{run_id}/a1", "decision": "approve", "approver": "ann"}
            senders[number].send("agent.approvals", run_id, word, key=key)
        senders[number].flush()

    threads = [threading.Thread(target=play, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    first: dict[str, int] = {}
    for sender in senders:
        for run_id, at in sender.stamped.items():
            first[run_id] = min(at, first.get(run_id, at))
    assert set(first) == set(runs)
    return first


class NewTasks:
    """Small tasks that come in all the time, so many a second, until it is told to stop."""

    def __init__(self, deployment: Deployment, prefix: str, per_second: float) -> None:
        self.prefix = prefix
        self.sender = Sender(deployment)
        self._wait = 1 / per_second
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> NewTasks:
        self._thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(10)
        self.sender.flush()

    def _send(self) -> None:
        number = 0
        while not self._end.wait(self._wait):
            run_id = f"{self.prefix}{number}"
            task = {"task_id": run_id, "agent": "payer", "plan": PING}
            self.sender.send("agent.tasks", run_id, task)
            number += 1

    def latencies(self, commands: Commands, since: float, until: float) -> list[float]:
        """ms from a task to its first command, of the tasks sent in between."""
        return [
            commands.first[run_id] - at
            for run_id, at in self.sender.stamped.items()
            if since <= at < until
        ]
