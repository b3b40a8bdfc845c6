"""The bodies of ``perdure schemas export|check``."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from perdure.schemas import avro, records
from perdure.schemas.generate import stored

from .console import FAILED, USAGE, leave, line, say


def export(directory: Path) -> None:
    """Write ``<Name>.avsc`` and ``<Name>.schema.json`` of every public record."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for kind in records.PUBLIC:
            name = kind.__name__
            (directory / f"{name}.avsc").write_text(avro.render(avro.schema_of(kind)))
            schema = {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **msgspec.json.schema(kind),
            }
            text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
            (directory / f"{name}.schema.json").write_text(text)
    except OSError as error:
        leave(USAGE, f"{directory} can't be written: {error.strerror}")
    say(f"{2 * len(records.PUBLIC)} schemas written to {directory}")


def check(as_json: bool) -> None:
    """Compare what is shipped with what this version's records say."""
    problems = []
    for kind in records.PUBLIC:
        path = avro.DIRECTORY / f"{kind.__name__}.avsc"
        if not path.exists() or path.read_text() != avro.render(avro.schema_of(kind)):
            problems.append(f"{path.name} is not that of {kind.__name__}")
    for kind in stored():
        mark = avro.fingerprint(avro.schema_of(kind, nested=False)).hex()
        path = avro.DIRECTORY / "state" / f"{kind.__name__}.{mark}.avsc"
        if not path.exists():
            problems.append(f"state/{path.name} is missing: a later version could not read it")
    if as_json:
        line({"ok": not problems, "problems": problems})
    for problem in problems:
        if not as_json:
            print(problem)
    if problems:
        leave(FAILED, "run `python -m perdure.schemas.generate`")
    if not as_json:
        say(f"{len(records.PUBLIC)} schemas are as they should be")
