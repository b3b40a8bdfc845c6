"""Cases of the kind "operations": O01, stopped under load and a small local queue, and O02, idle
connections that are cut. Together about 30 s."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.chaos.brokers import Brokers

from . import inputs
from .cuts import Cuts
from .deployment import Deployment, perdure
from .model_server import ModelServer, model_server

pytestmark = pytest.mark.kafka

GIVEN = inputs.of("O01.1")
TASKS: int = GIVEN["steps"][0][1]
SMALL_QUEUE = json.dumps({name: str(value) for name, value in GIVEN["config"].items()})
FEW = 600
"""Of the 10,000 that the case says: so many are done within seconds; all of them, under `soak`, in a
minute."""


def submit(where: list[str], directory: Path, run_ids: list[str]) -> list[str]:
    """The command line with a queue of 50; what it says is on Kafka."""
    file = directory / f"{run_ids[0]}.jsonl"
    plan = [{"id": "a", "tool": "read_note", "arguments": {"id": 1}}]
    rows = ({"task_id": run_id, "agent": "planner", "plan": plan} for run_id in run_ids)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = perdure("submit", str(file), "--json", where=where, PERDURE_KAFKA=SMALL_QUEUE)
    assert told.returncode == 0, told.stderr
    return [json.loads(line)["run_id"] for line in told.stdout.splitlines()]


def keys_of(bootstrap: str, topic: str) -> list[str]:
    """The keys of all records there are, read to the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "count", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        found: list[str] = []
        parts = [TopicPartition(topic, number, 0) for number in (0, 1)]
        left = sum(consumer.get_watermark_offsets(part, 10)[1] for part in parts)
        consumer.assign(parts)
        while left:
            for message in consumer.consume(min(left, 10_000), 10):
                assert message.error() is None
                found.append((message.key() or b"").decode())
                left -= 1
        return found
    finally:
        consumer.close()


def test_o01_what_the_command_line_acknowledges_is_on_the_topic(
    broker: str, prefix: str, tmp_path: Path
) -> None:
    """All 10,000 of the case, through a queue of 50, and the process ends at once."""
    where = ["--bootstrap-servers", broker, "--topic-prefix", prefix]
    where += ["--data-dir", str(tmp_path / "data")]
    assert perdure("topics", "create", "--partitions", "2", where=where).returncode == 0
    run_ids = [f"o01-{n}" for n in range(TASKS)]
    assert submit(where, tmp_path, run_ids) == run_ids
    assert sorted(keys_of(broker, f"{prefix}agent.tasks")) == sorted(run_ids)


@pytest.mark.parametrize(
    "count",
    [FEW, pytest.param(TASKS, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_o01_stopped_under_load_nothing_is_lost_or_doubled(
    deployment: Deployment, tmp_path: Path, count: int
) -> None:
    run_ids = [f"o01-{count}-{n}" for n in range(count)]
    wanted = set(run_ids)
    assert submit(deployment.where, tmp_path, run_ids) == run_ids
    assert len(deployment.topics.on("agent.outcomes", lambda seen: seen.key in wanted)) < count
    engine, worker = deployment.pid("engine"), deployment.pid("worker")
    for pid in (engine, worker):
        os.kill(pid, signal.SIGTERM)
    within = GIVEN["steps"][3][1]

    def stopped() -> bool:
        told = deployment.log()
        return all(f"(pid {pid}) ended with exit code 0" in told for pid in (engine, worker))

    deployment.until(stopped, "they end, and the supervisor starts others", within)

    def ended() -> bool:
        found = deployment.topics.on("agent.outcomes", lambda seen: seen.key in wanted)
        return len({seen.key for seen in found}) == count

    deployment.until(ended, "all are done", 600 if count == TASKS else 40, every=0.2)
    outcomes = deployment.topics.on("agent.outcomes", lambda seen: seen.key in wanted)
    assert len(outcomes) == count  # each once
    assert {seen.value["status"] for seen in outcomes} == {"done"}
    started = deployment.topics.on(
        "agent.events", lambda seen: seen.key in wanted and b'"run_started"' in (seen.raw or b"")
    )
    assert len(started) == count
    read = {effect["run"] for effect in deployment.all_effects() if effect["tool"] == "read_note"}
    assert wanted <= read


def pids(deployment: Deployment) -> set[int]:
    """The engine and the worker that there are now."""
    found = set()
    for role in ("engine", "worker"):
        try:
            found.add(deployment.pid(role))
        except AssertionError:  # between two
            continue
    return found


@pytest.fixture
def through_cuts(tmp_path: Path) -> Iterator[tuple[Deployment, Cuts, ModelServer]]:
    """A deployment whose every connection to its broker goes through a proxy."""
    with Cuts() as cuts, model_server() as model:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{cuts.port}"}
        brokers = Brokers(tmp_path / "broker", 1, advertised)
        cuts.to = brokers.nodes[0].port
        with brokers:
            made = Deployment(tmp_path, f"127.0.0.1:{cuts.port}", "", model)
            provider = {"provider": "openai", "name": "m", "base_url": model.url("demo")}
            made.start({"demo": {"tools": ["pay"], "model": provider}})
            try:
                yield made, cuts, model
            finally:
                assert made.stop() == 0


def test_o02_connections_cut_while_a_person_thinks(
    through_cuts: tuple[Deployment, Cuts, ModelServer],
) -> None:
    deployment, cuts, model = through_cuts
    (task,) = inputs.produced("O02.1")
    call: dict[str, Any] = {"id": "c1", "name": "pay", "arguments": '{"to": "x", "amount": 5}'}
    model.play(
        "demo",
        [
            {"tool_calls": [call], "finish_reason": "tool_calls"},
            {"content": "done", "finish_reason": "stop"},
        ],
    )
    roles = pids(deployment)
    deployment.put("agent.tasks", **task)
    question = deployment.question(task["task_id"])
    assert cuts.cut() > 5  # producers, consumers, those of the commands and of this test
    deployment.decide(question["approval_id"])
    outcome = deployment.outcome(task["task_id"], 40)
    assert (outcome["status"], outcome["complete"]) == ("done", True)
    assert len(deployment.effects(task["task_id"], "pay")) == 1
    assert pids(deployment) == roles  # nobody died of it
