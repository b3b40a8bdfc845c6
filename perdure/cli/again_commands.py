"""Commands that take runs up again: retry, fork, rebuild."""

from __future__ import annotations

from typing import Annotated

import typer

from . import console
from .options import Bootstrap, DataDir, Json, Prefix, Reason, Timeout, flags
from .run_commands import By, RunId, Version, control

app = typer.Typer()


@app.command()
def retry(
    run: RunId,
    reason: Reason = None,
    by: By = None,
    expected_version: Version = None,
    timeout: Timeout = 40.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Take a failed run up again at what failed; what succeeded is not called again.

    Example: perdure retry refund-7 --reason "the service is back"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "retry", by, where, as_json, timeout, reason=reason, expected_version=expected_version
    )


@app.command()
def fork(
    run: RunId,
    at_version: Annotated[
        int | None,
        typer.Option("--at-version", min=1, help="state as of this version (its last one)"),
    ] = None,
    task_id: Annotated[str | None, typer.Option("--id", help="the new run's id")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until the new run has ended")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="seconds to wait at most")
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="leave with exit code 4 when only people can go on")
    ] = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Begin a new run that goes on from an earlier version of another one.

    Finished actions keep their results and are not called again. `perdure show RUN --events` has
    the versions; one at which a writing call was open can't be forked.

    Example: perdure fork refund-7 --at-version 12 --id refund-7b
    """
    from . import fork as body
    from .submit import submit

    def work() -> None:
        made = console.connected(
            **flags(
                bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir
            )
        )
        task = body.fork_task(made, run, at_version, task_id)
        submit(made, [task], wait=wait, timeout=timeout, no_input=no_input, as_json=as_json)

    console.guarded(work)


@app.command()
def rebuild(
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Make the engine's state anew from agent.events, with all engines stopped.

    For when store and changelog are lost (the engine says so). Runs go on where their events end.

    Example: perdure rebuild --yes
    """
    from .rebuild import rebuild as body

    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)

    def work() -> None:
        with console.with_kafka(**where) as made:
            body(made, yes, as_json)

    console.guarded(work)
