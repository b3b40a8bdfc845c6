"""``perdure bench --checkpoint-every``: what a cadence of snapshots costs, and what it saves.

For each cadence the same load, then one run of 500 steps that stops at a question: its snapshot
and journal are read from the changelog and the run is made of them, as an engine does that takes
it over. ``recover_ms`` is that making alone; reading the changelog costs the same per byte.
"""

from __future__ import annotations

import statistics
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.client import Client
from perdure.reading import live
from perdure.schemas.records import ControlRequest, Task
from perdure.streams.engine import checkpoints, layout

from .bench import Load, agent, apply, drive, on_a_deployment, warm_up, written
from .console import FAILED, leave, line, say
from .up import Deployment

LONG_STEPS: Final = 500
NEVER: Final = 1_000_000
_TIMES: Final = 9


def cadences(text: str) -> list[int]:
    """``1,3,10,never`` (or with ``|``) as steps. Raises ValueError."""
    found = []
    for word in text.replace("|", ",").split(","):
        every = NEVER if word.strip() == "never" else int(word)
        if every < 1:
            raise ValueError(word)
        found.append(every)
    return found


def bench_checkpoints(
    load: Load, cadences: list[int], data_dir: Path | None, partitions: int, as_json: bool
) -> None:
    """Measure every cadence on one deployment and print one table."""

    def measure(deployment: Deployment) -> dict[str, Any]:
        client = deployment.client()
        stamp = uuid.uuid4().hex[:8]
        apply(client, agent(f"warm-{stamp}", load.steps, load))
        warm_up(client, f"warm-{stamp}", load, stamp)
        return {"rows": [_row(deployment, load, every, stamp) for every in cadences]}

    rows = on_a_deployment(data_dir, partitions, measure)["rows"]
    for row in rows if as_json else ():
        line(row)
    if not as_json:
        _print(rows)


def _row(deployment: Deployment, load: Load, every: int, stamp: str) -> dict[str, Any]:
    client = deployment.client()
    shown = "never" if every == NEVER else str(every)
    cadence = msgspec.structs.replace(load.checkpoint, every_steps=every, every_seconds=1e9)
    name = f"every-{shown}-{stamp}"
    apply(client, agent(name, load.steps, replace(load, checkpoint=cadence)))
    say(f"bench: a snapshot every {shown} steps: {load.runs} runs of {load.steps} steps")
    before = written(deployment)
    seconds = drive(client, name, f"r-{shown}-{stamp}", load.runs, load.concurrency)
    more = written(deployment) - before
    steps = load.runs * load.steps
    return {
        "checkpoint_every": shown,
        "steps_per_second": round(steps / seconds, 1),
        "bytes_per_step": round(more / steps, 1),
        **_recovery(deployment, client, f"long-{shown}-{stamp}", cadence, load),
    }


def _recovery(
    deployment: Deployment, client: Client, name: str, cadence: Any, load: Load
) -> dict[str, Any]:
    """A run of 500 steps, left at a question; then made of what is stored."""
    say(f"bench: a run of {LONG_STEPS} steps")
    spec = agent(name, LONG_STEPS, replace(load, checkpoint=cadence))
    assert spec.model is not None
    replies = [*(spec.model.replies or [])[:-1], {"tool_calls": [{"name": "bench.hold"}]}]
    spec.model = msgspec.structs.replace(spec.model, replies=replies)
    spec.tools = [*spec.tools, "bench.hold"]
    apply(client, spec)
    client.submit_soon(Task(agent=name, task_id=name))
    until = time.monotonic() + 120
    while not any(question.run_id == name for question in client.pending().values()):
        if time.monotonic() > until:
            return leave(FAILED, f"the run {name} has not come to its question within 120 s")
        time.sleep(0.5)
    stored = live(client.reader, name)
    times = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        found = checkpoints.load(checkpoints.Stored(stored), name)
        times.append((time.perf_counter() - began) * 1000)
    assert found is not None
    client.control(ControlRequest(run_id=name, command="cancel", by="bench"))
    return {
        "recover_ms": round(statistics.median(times), 2),
        "recover_events": found[0].header.version - found[1].snapshot.version,
        "journal_bytes": sum(
            len(value) for key, value in stored.items() if key.startswith(layout.journal(name))
        ),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="perdure bench --checkpoint-every")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)
