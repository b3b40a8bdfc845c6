"""A run as a timeline that a person reads in ten seconds, in the words of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown
from perdure.streams.views.projections.wording import TITLES, title


def lines(events: Iterable[RunEvent]) -> list[tuple[int, int, str, str]]:
    """(version, ms since the start, who, what) of every event that says something."""
    found: list[tuple[int, int, str, str]] = []
    names: dict[int, str] = {}
    start: int | None = None
    for event in events:
        start = event.at if start is None else start
        if event.type == "action_proposed":
            names[event.data["n"]] = event.data["target"]
        if event.type in TITLES and not _says_nothing(event, names):
            text = title(event, lambda n: f"{shown(names[n], 60)} ({n})" if n in names else None)
            found.append((event.version, event.at - start, event.actor, text))
    return found


def print_timeline(console: Console, events: list[RunEvent]) -> None:
    """The timeline as a table."""
    if not events:
        return
    first = events[0]
    table = Table(title=escape(f"Run {first.run_id} (agent {first.agent}, user {first.user_id})"))
    table.add_column("v", justify="right")
    table.add_column("after", justify="right")
    table.add_column("who")
    table.add_column("what", overflow="fold")
    for version, after, actor, text in lines(events):
        table.add_row(str(version), f"{after / 1000:.3f} s", escape(shown(actor, 40)), escape(text))
    console.print(table)


_SELF_TOLD: Final = frozenset({"pin", "update_plan"})
"""Built-in calls that an event of their own tells of."""


def _says_nothing(event: RunEvent, names: dict[int, str]) -> bool:
    """What the events around it tell as well: left out, so that ten seconds are enough."""
    data = event.data
    if event.type == "action_proposed":
        return data["kind"] == "model" or data["target"] in _SELF_TOLD
    if event.type == "action_requested":
        return bool(data["attempt"] == 1)
    if event.type == "action_succeeded":
        own = data.get("attempt") is None and names.get(data["n"]) in _SELF_TOLD
        return own or "result" not in data  # a model's: its reply is told by itself
    return event.type in _QUIET


_QUIET: Final = frozenset(
    {
        "step_started", "branch_taken", "action_started", "action_progressed", "approver_notified",
        "status_changed", "compensation_finished",
    }
)  # fmt: skip
