"""Commands for those who look back: what a run did and why, where an order number went."""

from __future__ import annotations

from typing import Annotated

import typer

from . import console
from .options import Bootstrap, DataDir, Json, Prefix, Uncover, flags

app = typer.Typer()


@app.command()
def audit(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="the run's id; with --decisions it may be left out"),
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option("--decisions", help="instead: every decision, one JSON document a line"),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="with --decisions: decided then or later"),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="with --decisions: decided before"),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="with --decisions: of this agent's runs")
    ] = None,
    approver: Annotated[
        str | None,
        typer.Option(
            "--approver",
            metavar="NAME",
            help="with --decisions: by this person, or policy:timeout",
        ),
    ] = None,
    uncover: Uncover = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Answer an auditor's questions about a run from its events, in nine sections.

    What was asked and by whom; what the model was shown and answered; agent and tool versions;
    which rules were evaluated and why a person was asked or not; who decided, how that was proved
    and whether what ran is what was shown; every call with key, attempts and result; notices; how
    it ended; whether the chain of events holds. Ends with 1 where something does not hold. With
    --json one document a section, in this order: `section` is asked, model, versions, rules,
    decisions, attempts, notices, end, chain.

    TIME is a date, a date and time (local, or with a zone), or ms.

    Example: perdure audit refund-7

    Example: perdure audit --decisions --since 2026-11-01 --until 2026-12-01 --approver ann
    """
    from .audit import audit as body
    from .audit_decisions import Range, export
    from .moments import moment

    def work() -> None:
        begin = None if since is None else moment(since)
        end = None if until is None else moment(until)
        if begin is not None and end is not None and begin >= end:
            raise ValueError("--since must be before --until")
        if not decisions and any(each is not None for each in (begin, end, agent, approver)):
            raise ValueError("--since, --until, --agent and --approver go with --decisions")
        if run is None and not decisions:
            raise ValueError("name the run: perdure audit RUN (`perdure runs` lists them)")
        made = console.connected(
            **flags(
                bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir
            )
        )
        if decisions:
            export(made, Range(begin, end, agent, approver), run, uncover=uncover)
        elif run is not None:
            body(made, run, uncover=uncover, as_json=as_json)

    console.guarded(work)


@app.command()
def find(
    tool: Annotated[str | None, typer.Option("--tool", help="calls of this tool")] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--argument",
            metavar="NAME=VALUE",
            help="calls with this argument (repeatable: all of them; a.b for one inside another)",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="calls whose idempotency key begins so, or its request id"),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="runs of this user")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="runs, the latest first")] = 100,
    uncover: Uncover = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find runs and calls by what is known outside: an order number, a key, a user.

    What is given must all hold. It reads the whole of agent.events. Ends with 1 where nothing is
    found.

    Example: perdure find --tool payments.refund --argument order_id=A-1001
    """
    from . import find as body

    def work() -> None:
        wanted = body.wanted(tool, argument or [], key, user)
        made = console.connected(
            **flags(
                bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir
            )
        )
        body.find(made, wanted, limit, uncover=uncover, as_json=as_json)

    console.guarded(work)
