"""A run as a timeline that a person reads in ten seconds, in the words of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perdure.schemas.records import RunEvent
from perdure.streams.core.policies.approval import shown
from perdure.streams.views.projections.wording import TITLES, title


class Teller:
    """Tells a run's events in their order, one at a time."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._start: int | None = None

    def tell(self, event: RunEvent) -> tuple[int, int, str, str] | None:
        """(version, ms since the start, who, what), or None where it says nothing of its own."""
        self._start = event.at if self._start is None else self._start
        if event.type == "action_proposed":
            self._names[event.data["n"]] = event.data["target"]
        if event.type not in TITLES or _says_nothing(event, self._names):
            return None
        return event.version, event.at - self._start, event.actor, title(event, self._name)

    def _name(self, n: Any) -> str | None:
        return f"{shown(self._names[n], 60)} ({n})" if n in self._names else None


def lines(events: Iterable[RunEvent]) -> list[tuple[int, int, str, str]]:
    """(version, ms since the start, who, what) of every event that says something."""
    teller = Teller()
    return [told for event in events if (told := teller.tell(event)) is not None]


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
