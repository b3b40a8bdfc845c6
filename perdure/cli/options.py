"""The flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
LogFormat = Annotated[
    str | None, typer.Option("--log-format", help="text, or json: one object a line")
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document a line on stdout")]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tools", help="file or module with @tool functions (repeatable)"),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="stay and show what comes")]
Uncover = Annotated[
    bool, typer.Option("--uncover", help="show values that a tool marks as sensitive")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0, help="seconds to wait for the verdict")]
Person = Annotated[
    str | None, typer.Option("--as", "--approver", metavar="NAME", help="who decides ($USER)")
]
Reason = Annotated[str | None, typer.Option("--reason", help="why; the agent may read it")]


def flags(**given: Any) -> dict[str, Any]:
    """Only the flags that were given."""
    return {name: value for name, value in given.items() if value is not None}
