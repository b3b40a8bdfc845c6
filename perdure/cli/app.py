"""The commands and their flags; each command's body is imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import console

app = typer.Typer(
    name="perdure",
    help="Durable agents on Kafka. Start with `perdure demo`, or `perdure init` and `perdure up`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="an existing Kafka (or PERDURE_BOOTSTRAP_SERVERS)",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--topic-prefix", help="before every topic, group and transactional id"),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="stores, locks, blobs, the embedded Kafka (.perdure)"),
]
Instance = Annotated[
    str | None,
    typer.Option("--instance-id", help="who this process is, also after a restart (host name)"),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions", help="partitions of a new deployment (2; 12 advised on a cluster)"
    ),
]
Metrics = Annotated[
    int | None,
    typer.Option("--metrics-port", help="serve /live, /ready and /metrics (0: any free port)"),
]
LogLevel = Annotated[str | None, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document a line on stdout")]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tools", help="file or module with @tool functions (repeatable)"),
]


def flags(**given: Any) -> dict[str, Any]:
    """Only the flags that were given."""
    return {name: value for name, value in given.items() if value is not None}


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
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync", help="survive a power cut: every record is on disk before it counts"
        ),
    ] = False,
    log_level: LogLevel = None,
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
) -> None:
    """Run an engine: it owns runs and decides what happens next.

    Example: perdure engine --bootstrap-servers kafka:9092 --data-dir /var/lib/perdure
    """
    from .roles import run_engine

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, metrics_port=metrics_port, log_level=log_level,
        )
    )  # fmt: skip
    console.guarded(lambda: run_engine(made))


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
) -> None:
    """Run a worker: it calls tools and models.

    Example: perdure worker --tools my_tools.py --bootstrap-servers kafka:9092
    """
    from .roles import run_worker, tool_paths

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            instance_id=instance_id, partitions=partitions, metrics_port=metrics_port, log_level=log_level,
        )
    )  # fmt: skip
    console.guarded(lambda: run_worker(made, tool_paths(list(tools or [])), queues))


def run() -> None:
    """The entry point."""
    sys.exit(app(standalone_mode=True))
