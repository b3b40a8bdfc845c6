"""``perdure bench``: how fast the whole path is, on a deployment of its own.

A step is a model action (scripted, in the worker) and a tool action that does nothing, each a
command and a result through the topics. Times are the engine's own (`step_started` to the next
one), CPU is the kernel's count per process, bytes are those of the logs and the stores.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.client import Client
from perdure.schemas import codec, topics
from perdure.schemas.records import (
    AgentSpec,
    BudgetPolicy,
    Checkpoint,
    ModelSpec,
    RunEvent,
    Task,
    Window,
)
from perdure.settings import Settings

from .console import FAILED, leave, line, say
from .up import Deployment, Stopped, on_stop_signals, raise_stopped

WINDOW = 50
"""Steps compared at the start and the end of a long run."""
LONG_STEPS = 120
"""A long run has at least so many, so that its two windows lie apart."""


@dataclass(frozen=True)
class Load:
    """What is asked for."""

    runs: int
    steps: int
    concurrency: int
    history_bytes: int
    effect: str
    alone_runs: int = 10
    long_steps: int = 0
    long_runs: int = 3
    warm_seconds: float = 12.0
    checkpoint: Checkpoint = field(default_factory=Checkpoint)


def bench(load: Load, data_dir: Path | None, partitions: int, as_json: bool) -> None:
    """Measure and print; the deployment is removed afterwards unless ``data_dir`` is given."""
    result = on_a_deployment(data_dir, partitions, lambda deployment: _measure(deployment, load))
    if as_json:
        line(result)
    else:
        _print(result)


def on_a_deployment(
    data_dir: Path | None, partitions: int, measure: Callable[[Deployment], dict[str, Any]]
) -> dict[str, Any]:
    """What ``measure`` finds on a deployment made for it (embedded Kafka, engine, worker)."""
    on_stop_signals(raise_stopped)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        settings = Settings(
            data_dir=data_dir or Path(scratch),
            partitions=partitions,
            bootstrap_servers=None,
            instance_id="bench",
        )
        deployment = Deployment(
            settings, tools=["perdure.cli.bench_tools"], agents=None, kafka_port=0, views=False
        )
        try:
            deployment.start()
            return measure(deployment)
        except Stopped:
            raise KeyboardInterrupt from None
        finally:
            deployment.stop()


def agent(name: str, steps: int, load: Load) -> AgentSpec:
    """A scripted agent that takes ``steps`` steps and then answers."""
    tool = "bench.write" if load.effect == "external" else "bench.read"
    call = {"tool_calls": [{"name": tool, "arguments": {"size": load.history_bytes}}]}
    return AgentSpec(
        name=name,
        instructions="Take the steps of the script.",
        model=ModelSpec(
            provider="scripted", name="script", replies=[call] * steps + [{"content": "done"}]
        ),
        tools=[tool],
        budget=BudgetPolicy(steps=steps + 10),
        handover_after=1_000,  # the script repeats one call
        window=Window(max_tokens=2_000, keep_rounds=5),
        checkpoint=load.checkpoint,
    )


def _measure(deployment: Deployment, load: Load) -> dict[str, Any]:
    client = deployment.client()
    stamp = uuid.uuid4().hex[:8]  # a data directory may hold the runs of an earlier bench
    name = f"bench-{stamp}"
    apply(client, agent(name, load.steps, load))
    warm_up(client, name, load, stamp)
    say(f"bench: {load.runs} runs of {load.steps} steps, {load.concurrency} at once")
    before = _used(deployment)
    before_bytes = written(deployment)
    seconds = drive(client, name, f"b-{stamp}", load.runs, load.concurrency)
    cpu = {role: round(used - before.get(role, 0.0), 2) for role, used in _used(deployment).items()}
    more = written(deployment) - before_bytes
    steps = load.runs * load.steps
    times = _step_times(client, f"b-{stamp}-")
    result: dict[str, Any] = {
        "runs": load.runs,
        "steps": load.steps,
        "concurrency": load.concurrency,
        "effect": load.effect,
        "history_bytes": load.history_bytes,
        "seconds": round(seconds, 3),
        "steps_per_second": round(steps / seconds, 1),
        "actions_per_second": round(2 * steps / seconds, 1),
        **_quantiles(times),
        "bytes_per_step": round(more / steps, 1),
        "cpu_seconds": cpu,
        "cpu_ms_per_step": {role: round(1000 * used / steps, 3) for role, used in cpu.items()},
    }
    if load.alone_runs:
        say("bench: one run at a time")
        drive(client, name, f"alone-{stamp}", load.alone_runs, 1)
        result["alone"] = _quantiles(_step_times(client, f"alone-{stamp}-"))
    if load.long_steps:
        result["long"] = _long(deployment, client, load, stamp)
    return result


def warm_up(client: Client, name: str, load: Load, stamp: str) -> None:
    """Load until the broker's JIT compiler has settled."""
    say("bench: warming up")
    warm_until = time.monotonic() + load.warm_seconds
    rounds = 0
    while rounds == 0 or time.monotonic() < warm_until:
        warm = f"warm{rounds}-{stamp}"
        drive(client, name, warm, min(100, load.runs), min(load.concurrency, 50))
        rounds += 1


def apply(client: Client, spec: AgentSpec) -> None:
    client.catalog(f"agent/{spec.name}", spec)


def drive(client: Client, name: str, prefix: str, runs: int, concurrency: int) -> float:
    """Seconds from the first task to the last outcome, ``concurrency`` runs under way at once."""
    ids = [f"{prefix}-{number}" for number in range(runs)]
    waiting = iter(ids)
    missing = set(ids)
    outcomes = client.reader.read([topics.OUTCOMES], follow=True, timeout=600)
    first = [
        Task(agent=name, task_id=run_id)
        for _, run_id in zip(range(concurrency), waiting, strict=False)
    ]
    began = time.perf_counter()
    client.submit(first)
    for seen in outcomes:
        if seen.key not in missing:
            continue
        missing.discard(seen.key)
        if not missing:
            return time.perf_counter() - began
        following = next(waiting, None)
        if following is not None:
            client.submit_soon(Task(agent=name, task_id=following))
    return leave(FAILED, f"{len(missing)} of {runs} runs have not ended within 600 s")


def _events(client: Client) -> Iterator[tuple[int, RunEvent]]:
    for seen in client.reader.read([topics.EVENTS]):
        if seen.value is not None:
            yield seen.timestamp, codec.decode(seen.value, RunEvent)


def _step_times(client: Client, prefix: str) -> list[float]:
    """ms between the starts of a run's steps, over all runs whose id begins with ``prefix``."""
    last: dict[str, int] = {}
    times = []
    for _, event in _events(client):
        if event.run_id.startswith(prefix) and event.type == "step_started":
            if event.run_id in last:
                times.append(float(event.at - last[event.run_id]))
            last[event.run_id] = event.at
    return times


def _quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    if not ordered:
        return {"step_ms_p50": 0.0, "step_ms_p99": 0.0}
    return {
        "step_ms_p50": ordered[len(ordered) // 2],
        "step_ms_p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
    }


def _long(deployment: Deployment, client: Client, load: Load, stamp: str) -> dict[str, Any]:
    """Long runs: their first and last `WINDOW` steps compared by time, CPU and bytes."""
    name = f"long-{stamp}"
    apply(client, agent(name, load.long_steps, load))
    made = []
    for number in range(load.long_runs):
        run_id = f"{name}-{number}"
        say(f"bench: a run of {load.long_steps} steps ({number + 1} of {load.long_runs})")
        marks = _follow_long(deployment, client, name, run_id, load.long_steps)
        sizes = _sizes(client, run_id, marks)
        first, last = marks["first"], marks["last"]
        made.append(
            {
                "first_ms": (first[1][0] - first[0][0]) * 1000 / WINDOW,
                "last_ms": (last[1][0] - last[0][0]) * 1000 / WINDOW,
                "first_cpu_ms": (first[1][1] - first[0][1]) * 1000 / WINDOW,
                "last_cpu_ms": (last[1][1] - last[0][1]) * 1000 / WINDOW,
                "first_bytes": sizes["first"] / WINDOW,
                "last_bytes": sizes["last"] / WINDOW,
            }
        )
    median = {key: round(statistics.median(run[key] for run in made), 2) for key in made[0]}
    return {
        "steps": load.long_steps,
        "window": WINDOW,
        "runs": [{name: round(value, 2) for name, value in run.items()} for run in made],
        **median,
        "ratio_ms": round(median["last_ms"] / median["first_ms"], 3),
        "ratio_cpu": round(median["last_cpu_ms"] / median["first_cpu_ms"], 3),
        "ratio_bytes": round(median["last_bytes"] / median["first_bytes"], 3),
    }


def _follow_long(
    deployment: Deployment, client: Client, name: str, run_id: str, steps: int
) -> dict[str, Any]:
    """(time, CPU seconds, ms since the epoch) at the edges of both windows."""
    edges = {
        11: ("first", 0),
        11 + WINDOW: ("first", 1),
        steps - WINDOW: ("last", 0),
        steps: ("last", 1),
    }
    marks: dict[str, list[Any]] = {"first": [None, None], "last": [None, None]}
    reader = client.reader.read([topics.EVENTS], run_id=run_id, follow=True, timeout=600)
    client.submit_soon(Task(agent=name, task_id=run_id))
    for seen in reader:
        if seen.key != run_id or seen.value is None or b'"type":"step_started"' not in seen.value:
            continue
        event = codec.decode(seen.value, RunEvent)
        edge = edges.get(event.data["step"])
        if edge is not None:
            part, position = edge
            ours = {role: used for role, used in _used(deployment).items() if role != "kafka"}
            marks[part][position] = (time.perf_counter(), sum(ours.values()), event.at)
        if marks["last"][1] is not None:
            next(iter(client.outcomes([run_id], timeout=60)), None)
            return marks
    return leave(FAILED, f"the long run {run_id} has not ended within 600 s")


def _sizes(client: Client, run_id: str, marks: dict[str, Any]) -> dict[str, int]:
    """Bytes of all records (key and value) written in each window, on every topic and changelog."""
    names = [
        topics.EVENTS,
        topics.RESULTS,
        topics.commands("tools"),
        topics.commands("models"),
        topics.changelog("engine"),
    ]
    sizes = {"first": 0, "last": 0}
    spans = {name: (marks[name][0][2], marks[name][1][2]) for name in sizes}
    for seen in client.reader.read(names):
        for name, (start, end) in spans.items():
            if start <= seen.timestamp < end:
                sizes[name] += len(seen.key or "") + len(seen.value or b"")
    return sizes


def _used(deployment: Deployment) -> dict[str, float]:
    """CPU seconds of every role so far, all threads."""
    assert deployment.supervisor is not None
    pids = deployment.supervisor.pids()
    if deployment.broker is not None:
        pids["kafka"] = [deployment.broker.pid]
    return {role: sum(_cpu_seconds(pid) for pid in each) for role, each in pids.items()}


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process's threads, to the nanosecond (0.0 where the system does not tell)."""
    total = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    except OSError:
        return 0.0
    return total / 1e9


def written(deployment: Deployment) -> int:
    """Bytes written so far: the logs of all topics, and what engine and worker wrote to their stores.

    A store's size would not do: RocksDB folds its write-ahead log into smaller files as it goes.
    """
    logs = (deployment.settings.data_dir / "kafka").rglob("*.log")
    assert deployment.supervisor is not None
    pids = [pid for each in deployment.supervisor.pids().values() for pid in each]
    return sum(map(_size, logs)) + sum(map(_written, pids))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a segment that was just deleted
        return 0


def _written(pid: int) -> int:
    """Bytes a process has sent towards the disk (0 where the system does not tell)."""
    try:
        fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return 0
    return int(fields["write_bytes"])


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="perdure bench", show_header=False)
    for name, value in result.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        table.add_row(name, str(value))
    Console().print(table)
