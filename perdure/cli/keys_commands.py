"""``perdure keys``: who may prove that a decision is theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import console
from .options import DataDir, Json, flags

app = typer.Typer()
keys_app = typer.Typer(no_args_is_help=True, help="Keys that approvers sign their decisions with.")
app.add_typer(keys_app, name="keys")


@keys_app.command()
def token(
    user: Annotated[str, typer.Argument(metavar="NAME", help="whose token it is")],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="viewer, operator or approver (repeatable; viewer)"),
    ] = None,
    tokens_file: Annotated[
        Path | None, typer.Option("--tokens-file", help="where the entry is added")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer token for the page and its API; the file keeps only its SHA-256.

    Example: perdure keys token ann --role approver --tokens-file tokens.jsonl
    """
    from .tokens import token as body

    made = console.settings(**flags(tokens_file=tokens_file))
    console.guarded(lambda: body(made, user, role or ["viewer"], as_json))


@keys_app.command()
def create(
    approver: Annotated[str, typer.Argument(metavar="NAME", help="the approver")],
    directory: Annotated[
        Path | None, typer.Option("--out", help="where the private key goes (<data_dir>/keys)")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="drop the keys they had")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Make an Ed25519 key for an approver: private half for them, public half for the engines.

    `perdure approve` and its kind sign with it from then on; engines verify against the public
    keys (approver_keys, <data_dir>/approvers.jwks), which they read anew when the file changes.

    Example: perdure keys create ann
    """
    from . import keys as body

    made = console.settings(**flags(data_dir=data_dir))
    console.guarded(lambda: body.create(made, approver, directory, replace, as_json))
