"""The body of ``perdure init``."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

from .console import USAGE, leave, say


def init(directory: Path) -> None:
    """Copy the templates; nothing that is there already is touched."""
    sources = sorted(
        (each for each in (files("perdure.cli") / "templates").iterdir() if each.is_file()),
        key=lambda each: each.name,
    )
    taken = [each.name for each in sources if (directory / each.name).exists()]
    if taken:
        leave(
            USAGE,
            f"{directory} already has {', '.join(taken)}; nothing was written. "
            "Give another directory: perdure init DIR",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for each in sources:
            (directory / each.name).write_bytes(each.read_bytes())
    except OSError as error:
        leave(USAGE, f"{directory} can't be written: {error.strerror}")
    say(f"written to {directory}: {', '.join(each.name for each in sources)}")
    say("next:")
    if directory != Path("."):
        say(f"  cd {shlex.quote(str(directory))}")
    say("  perdure up --tools tools.py --agents agents.yaml     (stays; then in another terminal)")
    say("  perdure submit tasks.jsonl --wait")
    say("  perdure pending")
