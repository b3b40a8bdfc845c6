"""The command that makes an evaluation set of what has run."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from . import console
from .options import Bootstrap, DataDir, Prefix, Uncover, flags

app = typer.Typer()


@app.command()
def export(
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="runs that began then or later")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="runs that began before")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="only this agent's")] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", help="only these (repeatable), e.g. done or failed"),
    ] = None,
    format_: Annotated[
        Literal["jsonl"], typer.Option("--format", help="one JSON document a line")
    ] = "jsonl",
    uncover: Uncover = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
) -> None:
    """Write every run as one JSON document a line: an evaluation set.

    A line is the run's state (`perdure show --json`) with input, messages, actions, decisions, outcome and
    the agent's version. An action that a person changed or declined has a `label`: what was proposed, what
    it should have been, and why. Sensitive values are covered. TIME is a date, a date and time (local, or
    with a zone), or ms.

    Example: perdure export --since 2026-01-01 --agent refunds --status done > runs.jsonl
    """
    from . import export as body
    from .moments import moment
    from .runs import STATUSES

    def work() -> None:
        for each in status or ():
            if each not in STATUSES:
                console.leave(
                    console.USAGE, f"--status takes {', '.join(STATUSES)}, not {each[:40]}"
                )
        begin = None if since is None else moment(since)
        end = None if until is None else moment(until)
        if begin is not None and end is not None and begin >= end:
            raise ValueError("--since must be before --until")
        made = console.connected(
            **flags(
                bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir
            )
        )
        wanted = body.Wanted(begin, end, agent, tuple(status or ()))
        body.export(made, wanted, uncover=uncover)

    console.guarded(work)
