"""Commands on runs: submit, look, verify, control."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import console
from .options import Bootstrap, DataDir, Follow, Json, Prefix, Reason, Timeout, Uncover, flags

app = typer.Typer()

RunId = Annotated[str, typer.Argument(metavar="RUN", help="the run's id")]
By = Annotated[str | None, typer.Option("--as", "--by", metavar="NAME", help="who asks ($USER)")]
Version = Annotated[
    int | None,
    typer.Option("--expected-version", min=0, help="refused if the run has another version"),
]
Steps = Annotated[int | None, typer.Option("--steps", min=0, help="steps to add")]
Tokens = Annotated[int | None, typer.Option("--tokens", min=0, help="tokens to add")]
Seconds = Annotated[float | None, typer.Option("--seconds", min=0, help="seconds to add")]
Cost = Annotated[float | None, typer.Option("--cost", min=0, help="money to add")]


@app.command()
def submit(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE.jsonl|-]", help="a task a line; - reads stdin")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="one task for this agent")] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="TEXT|JSON", help="its input")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="its plan: a file with a JSON or YAML list")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="whose task it is")] = None,
    session: Annotated[str | None, typer.Option("--session", help="its conversation")] = None,
    task_id: Annotated[
        str | None, typer.Option("--id", help="its id; the same task again is ignored")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until every run has ended")] = False,
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
    """Submit tasks: from a file, or one from the flags. Prints what Kafka has acknowledged.

    Example: perdure submit tasks.jsonl --wait
    """
    from . import submit as body

    def work() -> None:
        if file is not None and agent is not None:
            console.leave(console.USAGE, "give a file or --agent, not both")
        if file is not None:
            body.no_other_flags(input=input_, plan=plan, user=user, session=session, id=task_id)
            tasks = body.read_file(file)
        else:
            tasks = [body.one_task(agent, input_, plan, user, session, task_id)]
        made = console.connected(
            **flags(
                bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir
            )
        )
        body.submit(made, tasks, wait=wait, timeout=timeout, no_input=no_input, as_json=as_json)

    console.guarded(work)


@app.command()
def runs(
    status: Annotated[
        str | None, typer.Option("--status", help="only these, e.g. running or waiting_approval")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="only this agent's")] = None,
    user: Annotated[str | None, typer.Option("--user", help="only this user's")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="the newest so many")] = 50,
    follow: Follow = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List the runs, newest first.

    --follow goes on with what happens in them, in the words of `perdure show`;
    as --json with each run that changes.

    Example: perdure runs --status waiting_approval --follow
    """
    from . import runs as body

    wanted = body.Wanted(status, agent, user, limit)
    made = console.connected(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(lambda: body.runs(made, wanted, follow=follow, as_json=as_json))


@app.command()
def show(
    run: RunId,
    follow: Follow = False,
    events: Annotated[bool, typer.Option("--events", help="every event, with its data")] = False,
    uncover: Uncover = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show a run: its state and what happened.

    Example: perdure show refund-7 --follow
    """
    from . import show as body

    made = console.connected(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(
        lambda: body.show(made, run, follow=follow, events=events, uncover=uncover, as_json=as_json)
    )


@app.command()
def verify(
    run: RunId,
    at_version: Annotated[
        int | None, typer.Option("--at-version", min=1, help="only up to this version")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Fold a run's events, check their chain, compare with the outcome and the live state.

    Example: perdure verify refund-7
    """
    from . import verify as body

    made = console.connected(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(lambda: body.verify(made, run, at_version, as_json))


def control(
    run: str, command: str, by: str | None, connection: dict[str, Any], as_json: bool,
    timeout: float, **content: Any,
) -> None:  # fmt: skip
    from . import deciding

    def work() -> None:
        request = deciding.control_request(run, command, by, **content)
        deciding.ask_control(console.connected(**connection), request, timeout, as_json)

    console.guarded(work)


@app.command()
def cancel(
    run: RunId,
    reason: Reason = None,
    compensate: Annotated[bool, typer.Option("--compensate", help="undo what was done")] = False,
    by: By = None,
    expected_version: Version = None,
    timeout: Timeout = 40.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Cancel a run; what is in flight is settled first.

    Example: perdure cancel refund-7 --reason "asked for by mistake"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "cancel", by, where, as_json, timeout,
        reason=reason, expected_version=expected_version, compensate=compensate or None,
    )  # fmt: skip


@app.command()
def pause(
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
    """Pause a run: nothing new is begun.

    Example: perdure pause refund-7
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "pause", by, where, as_json, timeout, reason=reason, expected_version=expected_version
    )


@app.command()
def resume(
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
    """Let a paused run go on.

    Example: perdure resume refund-7
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "resume", by, where, as_json, timeout, reason=reason, expected_version=expected_version
    )


@app.command()
def message(
    run: RunId,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="what to tell the agent")],
    by: By = None,
    expected_version: Version = None,
    timeout: Timeout = 40.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell a running agent something; it reads it before its next decision.

    Example: perdure message refund-7 "the customer called: half the amount will do"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "message", by, where, as_json, timeout,
        content=content, expected_version=expected_version,
    )  # fmt: skip


@app.command()
def extend(
    run: RunId,
    steps: Steps = None,
    tokens: Tokens = None,
    seconds: Seconds = None,
    cost: Cost = None,
    reason: Reason = None,
    by: By = None,
    expected_version: Version = None,
    timeout: Timeout = 40.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Add to a run's budget.

    Example: perdure extend refund-7 --steps 10 --tokens 20000
    """
    budget = flags(steps=steps, tokens=tokens, seconds=seconds, cost=cost)
    if not budget:
        console.leave(console.USAGE, "say what to add: --steps, --tokens, --seconds or --cost")
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(
        run, "extend", by, where, as_json, timeout,
        budget=budget, reason=reason, expected_version=expected_version,
    )  # fmt: skip


@app.command()
def release(
    run: RunId,
    reason: Reason = None,
    by: By = None,
    timeout: Timeout = 40.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Take up a quarantined run again, with all that was parked for it.

    It is refused, and nothing has changed, where that would break it again; `perdure cancel` ends it.

    Example: perdure release refund-7
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    control(run, "release", by, where, as_json, timeout, reason=reason)
