"""Commands on a deployment: a new project, agents, topics, schemas, health."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import console
from .options import Bootstrap, DataDir, Json, Partitions, Prefix, flags

app = typer.Typer()
topics_app = typer.Typer(help="Create, check and guard the topics.", no_args_is_help=True)
schemas_app = typer.Typer(help="The records' schemas: Avro and JSON Schema.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(schemas_app, name="schemas")


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="where (made if it is not there)")
    ] = Path("."),
) -> None:
    """Write tools, agents and tasks that run with no key, to start from.

    Example: perdure init my-agents
    """
    from .init import init as body

    console.guarded(lambda: body(directory))


@app.command()
def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="agents.yaml")],
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Check agents against the announced tools and put them into force for new runs.

    Example: perdure apply -f agents.yaml
    """
    from .apply import apply as body

    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    console.guarded(lambda: body(file, lambda: console.connected(**where), as_json))


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="agent/NAME", help="what to take away")],
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
) -> None:
    """Take an agent away; running runs keep the definition they started with.

    Example: perdure delete agent/refunds
    """
    from .apply import delete as body

    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    console.guarded(lambda: body(name, lambda: console.connected(**where)))


@app.command()
def doctor(
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Look at everything a deployment needs and say what to do about what is wrong.

    Example: perdure doctor --bootstrap-servers kafka:9092
    """
    from .doctor import doctor as body

    made = console.settings(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(lambda: body(made, as_json))


@topics_app.command()
def create(
    partitions: Partitions = None,
    replication: Annotated[
        int | None,
        typer.Option("--replication", min=1, help="copies (3 where there are 3 brokers)"),
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
) -> None:
    """Create the topics that are missing.

    Example: perdure topics create --partitions 12
    """
    from .topics import create as body

    made = console.connected(
        **flags(
            bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir,
            partitions=partitions,
        )
    )  # fmt: skip
    console.guarded(lambda: body(made, replication))


@topics_app.command()
def check(
    fix: Annotated[
        bool, typer.Option("--fix", help="create what is missing, correct settings")
    ] = False,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="TOPIC-PARTITION",
            help="go on after this loss, as the stopped partition named it (repeatable)",
        ),
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Compare the topics with what Perdure needs; exit code 1 on errors.

    Example: perdure topics check --fix

    Example: perdure topics check --accept-loss agent.tasks-0
    """
    from .topics import check as body

    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)

    def work() -> None:
        with console.with_kafka(**where) as made:
            body(made, fix, as_json, accept_loss or ())

    console.guarded(work)


@topics_app.command()
def acls(
    queues: Annotated[
        list[str] | None, typer.Option("--queues", help="further queues (repeatable)")
    ] = None,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Print the rights each role needs, as commands of Kafka's own tool.

    Example: perdure topics acls > acls.sh
    """
    from .topics import acls as body

    made = console.settings(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(lambda: body(made, queues or [], as_json))


@schemas_app.command()
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="where (made if it is not there)")
    ] = Path("schemas"),
) -> None:
    """Write an .avsc and a JSON Schema of every record.

    Example: perdure schemas export schemas/
    """
    from .schemas import export as body

    console.guarded(lambda: body(directory))


@schemas_app.command("check")
def check_schemas(as_json: Json = False) -> None:
    """Compare the shipped Avro schemas with the records of this version.

    Example: perdure schemas check
    """
    from .schemas import check as body

    console.guarded(lambda: body(as_json))
