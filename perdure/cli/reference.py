"""Writes docs/*.md from the commands, the settings, the topic table and the tables of the lifecycle.

``python -m perdure.cli.reference`` writes them; a test compares them with what is committed.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer
from pydantic_core import PydanticUndefined

from perdure.schemas import topics as table
from perdure.settings import Settings
from perdure.streams.core.lifecycle import ACTION_TRANSITIONS, RUN_TRANSITIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
_EXITS = """| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the thing asked for failed |
| 2 | wrong usage |
| 3 | Kafka can't be reached |
| 4 | waits for a person (with `--no-input`) |
| 5 | another process has this identity |
"""


def cli() -> str:
    """The reference of all commands as Markdown."""
    from .app import app

    parts = [
        "# Commands\n\nWritten by `python -m perdure.cli.reference`; not edited by hand.\n",
        "Results go to stdout; words about them, progress and logs to stderr. With `--json` stdout "
        "holds one JSON document a line and nothing else.\n",
        _EXITS,
    ]
    root: Any = typer.main.get_command(app)
    for path, command in _commands(root, "perdure"):
        parts.append(_command(path, command))
    return "\n".join(parts)


def _commands(group: Any, path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        here = f"{path} {name}"
        if hasattr(command, "commands"):
            found += _commands(command, here)
        else:
            found.append((here, command))
    return found


def _command(path: str, command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    about, *examples = text.split("Example:")
    words = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([path, *words, "[OPTIONS]"])
    parts = [f"## {path}\n", about.strip() + "\n", f"    {usage}\n"]
    parts += [f"Example: `{example.strip()}`\n" for example in examples]
    rows = [_option(each) for each in command.params if each.param_type_name == "option"]
    if rows:
        parts += ["| option | meaning |\n|---|---|", *rows, ""]
    return "\n".join(parts)


def _argument(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = option.default
    shown = ""
    if isinstance(default, int | float) and not isinstance(default, bool):
        shown = f" (default {default:g})"
    required = " (required)" if option.required else ""
    text = (option.help or "").replace("|", "\\|")
    return f"| {names} | {text}{shown}{required} |"


def settings() -> str:
    """The settings as Markdown."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default is PydanticUndefined else field.default
        shown = (
            "host name"
            if name == "instance_id"
            else "none"
            if default is None
            else f"`{default}`"
            if default != ""
            else "empty"
        )
        if name == "kafka":
            shown = "empty"
        text = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | `PERDURE_{name.upper()}` | {shown} | {text} |")
    return "\n".join(
        [
            "# Settings\n",
            "Written by `python -m perdure.cli.reference`; not edited by hand.\n",
            "From `perdure.toml` in the working directory, over it the environment, over that the "
            "flags.\n",
            "| setting | environment | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def topics() -> str:
    """The topic table as Markdown."""
    rows = []
    for topic in table.all_topics():
        count = "the deployment's" if topic.partitions is None else str(topic.partitions)
        kept = ""
        if topic.cleanup == "delete":
            kept = (
                ", unlimited"
                if topic.retention_ms is None
                else f", {topic.retention_ms // table.DAY_MS} d"
            )
        rows.append(
            f"| `{topic.name}` | {topic.key} | {topic.value} | {topic.cleanup}{kept} | {count} "
            f"| {topic.written_by} | {topic.read_by} |"
        )
    return "\n".join(
        [
            "# Topics\n",
            "Written by `python -m perdure.cli.reference`; not edited by hand.\n",
            "| topic | key | value | cleanup | partitions | written by | read by |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def lifecycle() -> str:
    """The two tables of a run's life as diagrams."""
    parts = [
        "# The life of a run and of an action\n",
        "Drawn from `streams/core/lifecycle.py` by `python -m perdure.cli.reference`; what is not here is refused.\n",
    ]
    for title, transitions in (("Run", RUN_TRANSITIONS), ("Action", ACTION_TRANSITIONS)):
        arrows = [
            f"    {before} --> {after}"
            for before, afters in transitions.items()
            for after in sorted(afters)
        ]
        ends = [f"    {name} --> [*]" for name, afters in transitions.items() if not afters]
        first = next(iter(transitions))
        parts.append(f"## {title}\n\n```mermaid\nstateDiagram-v2\n    [*] --> {first}")
        parts.append("\n".join([*arrows, *ends]) + "\n```\n")
    return "\n".join(parts)


PAGES = {"cli.md": cli, "settings.md": settings, "topics.md": topics, "lifecycle.md": lifecycle}


def main() -> None:
    """Write all pages."""
    DOCS.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
