"""The commands and their flags; each command's body is imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import (
    again_commands,
    approval_commands,
    audit_commands,
    console,
    export_commands,
    keys_commands,
    run_commands,
    setup_commands,
)
from .options import (
    Bootstrap,
    DataDir,
    Instance,
    Json,
    LogFormat,
    LogLevel,
    Metrics,
    Partitions,
    Prefix,
    Tools,
    flags,
)

app = typer.Typer(
    name="perdure",
    help="Durable agents on Kafka. Start with `perdure demo`, or `perdure init` and `perdure up`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def up(
    tools: Tools = None,
    agents: Annotated[
        Path | None, typer.Option("--agents", help="agents.yaml to apply at the start")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    instance_id: Instance = None,
    partitions: Partitions = None,
    kafka_port: Annotated[
        int | None,
        typer.Option("--kafka-port", help="port of the embedded Kafka (9092 or the next free one)"),
    ] = None,
    engines: Annotated[int, typer.Option("--engines", min=1, help="engine processes")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=1, help="worker processes")] = 1,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="port of the page (8600 or the next free; 0: any)"
        ),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views/--no-views", help="serve the page and its API")
    ] = True,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            "--tokens-file", help="who may call the page; left out: whoever is on this machine"
        ),
    ] = None,
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync", help="survive a power cut: every record is on disk before it counts"
        ),
    ] = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    as_json: Json = False,
) -> None:
    """Start everything and stay until Ctrl-C.

    Example: perdure up --tools tools.py --agents agents.yaml
    """
    from .up import Deployment
    from .up import up as body

    made = console.settings(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, log_level=log_level,
            tokens_file=tokens_file,
            log_format=log_format,
        )
    )  # fmt: skip
    deployment = Deployment(
        made,
        tools=tools or [],
        agents=agents,
        fsync=fsync,
        kafka_port=kafka_port,
        engines=engines,
        workers=workers,
        views=views,
        port=port,
    )
    console.guarded(lambda: body(deployment, as_json))


@app.command()
def engine(
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    instance_id: Instance = None,
    partitions: Partitions = None,
    metrics_port: Metrics = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run an engine: it owns runs and decides what happens next.

    Example: perdure engine --bootstrap-servers kafka:9092 --data-dir /var/lib/perdure
    """
    from .roles import run_engine

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, metrics_port=metrics_port, log_level=log_level,
            log_format=log_format,
        )
    )  # fmt: skip
    console.guarded(lambda: run_engine(made, url=made.page_url))


@app.command()
def worker(
    tools: Tools = None,
    queues: Annotated[
        list[str] | None, typer.Option("--queues", help="serve only these queues (repeatable)")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    instance_id: Instance = None,
    partitions: Partitions = None,
    metrics_port: Metrics = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run a worker: it calls tools and models.

    Example: perdure worker --tools my_tools.py --bootstrap-servers kafka:9092
    """
    from .roles import run_worker, tool_paths

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, metrics_port=metrics_port, log_level=log_level,
            log_format=log_format,
        )
    )  # fmt: skip
    console.guarded(lambda: run_worker(made, tool_paths(list(tools or [])), queues))


@app.command()
def views(
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="port of the page and its API (0: any free)"),
    ] = 8600,
    host: Annotated[str, typer.Option("--host", help="address to serve on")] = "127.0.0.1",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="where the other view processes reach this one"),
    ] = None,
    tokens_file: Annotated[
        Path | None, typer.Option("--tokens-file", help="who may call: see `perdure keys token`")
    ] = None,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="no tokens: whoever is on this machine has every role; no key of theirs signs",
        ),
    ] = False,
    person: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="with --dev: who decides here (else your login)"),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="make the tables anew from agent.events first")
    ] = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    instance_id: Instance = None,
    partitions: Partitions = None,
    metrics_port: Metrics = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Serve the page and the HTTP API: what runs do, what waits for people.

    Only reads the log; it can be stopped, deleted and made anew at any time.

    Example: perdure views --tokens-file tokens.jsonl --bootstrap-servers kafka:9092

    Example: perdure views --dev --rebuild
    """
    from .views import run_views

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, metrics_port=metrics_port,
            log_level=log_level, log_format=log_format, tokens_file=tokens_file,
        )
    )  # fmt: skip
    console.guarded(
        lambda: run_views(
            made, host=host, port=port, dev=dev, rebuild=rebuild, url=url, person=person
        )
    )


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="how many seeds")] = 300,
    first: Annotated[int, typer.Option("--from", min=0, help="the first of them")] = 0,
    one: Annotated[
        int | None, typer.Option("--seed", min=0, help="this one alone: repeats it exactly")
    ] = None,
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix",
            help="instead: kill at each point around one call of each kind of tool, and count effects",
        ),
    ] = False,
    sagas: Annotated[
        bool,
        typer.Option(
            "--sagas",
            help="instead: undo six writes with a death at every point meanwhile (some minutes)",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the real engine and workers in a simulated world that breaks at every point.

    No Kafka is needed. Each seed chooses tasks, schedules, crashes and delays, and the invariants
    are checked after each step; the first seed that breaks one is printed with what happened.

    Example: perdure simulate --seeds 1000

    Example: perdure simulate --matrix

    Example: perdure simulate --sagas
    """
    if sagas:
        from .sagas import sagas as every_saga

        console.guarded(lambda: every_saga(as_json))
        return
    if matrix:
        from .matrix import matrix as all_of_it

        console.guarded(lambda: all_of_it(as_json))
        return
    from .simulate import simulate as body

    console.guarded(lambda: body(seeds, first, one, as_json))


@app.command()
def bench(
    runs: Annotated[int, typer.Option("--runs", min=1, help="runs in all")] = 600,
    steps: Annotated[int, typer.Option("--steps", min=1, help="steps of each run")] = 10,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="runs at once")] = 50,
    history_bytes: Annotated[
        int, typer.Option("--history-bytes", min=0, help="bytes of each tool result")
    ] = 0,
    effect: Annotated[
        str, typer.Option("--effect", help="read_only, or external: the path through the ledger")
    ] = "read_only",
    alone: Annotated[
        int, typer.Option("--alone", min=0, help="runs taken one at a time, for latency (0: none)")
    ] = 10,
    long_steps: Annotated[
        int,
        typer.Option(
            "--long-steps",
            min=0,
            help="also compare the ends of a run of so many steps (0, or 120 or more)",
        ),
    ] = 0,
    warm_seconds: Annotated[
        float,
        typer.Option(
            "--warm-seconds", min=0, help="load before measuring: the broker's JIT compiler settles"
        ),
    ] = 12.0,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            "--checkpoint-every",
            help="compare cadences of snapshots: steps, or never, several as 1,3,10,never",
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="partitions of the deployment")
    ] = 2,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure the whole path on a deployment of its own (embedded Kafka, engine, worker).

    Example: perdure bench --runs 600 --steps 10 --concurrency 50 --json

    Example: perdure bench --checkpoint-every 1,3,10,never
    """
    from .bench import LONG_STEPS, Load
    from .bench import bench as body

    if effect not in ("read_only", "external"):
        console.leave(console.USAGE, "--effect takes read_only or external")
    if 0 < long_steps < LONG_STEPS:
        console.leave(console.USAGE, f"--long-steps takes 0, or {LONG_STEPS} or more")
    load = Load(
        runs,
        steps,
        concurrency,
        history_bytes,
        effect,
        alone,
        long_steps,
        warm_seconds=warm_seconds,
    )
    if checkpoint_every is None:
        console.guarded(lambda: body(load, data_dir, partitions, as_json))
        return
    from .bench_checkpoints import bench_checkpoints, cadences

    try:
        chosen = cadences(checkpoint_every)
    except ValueError:
        console.leave(
            console.USAGE, "--checkpoint-every takes numbers of steps or never: 1,3,10,never"
        )
    console.guarded(lambda: bench_checkpoints(load, chosen, data_dir, partitions, as_json))


@app.command()
def demo(
    kills: Annotated[
        bool, typer.Option("--kills/--no-kills", help="kill -9 engine and worker three times each")
    ] = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="then leave one approval open and everything running")
    ] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Refund requests under fire: kills, flaky services, approvals; judged from outside.

    Example: perdure demo --keep
    """
    from .demo import demo as body

    console.guarded(lambda: body(kills=kills, keep=keep, as_json=as_json, data_dir=data_dir))


for group in (
    run_commands.app,
    again_commands.app,
    approval_commands.app,
    audit_commands.app,
    export_commands.app,
    keys_commands.app,
    setup_commands.app,
):
    app.add_typer(group)


def run() -> None:
    """The entry point."""
    sys.exit(app(standalone_mode=True))
