"""A run followed event by event, and each event as it may be shown."""

from __future__ import annotations

from perdure.reading import covered_event
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory, follow
from perdure.streams.core.state import Run

from .terminal import safe


class Folded:
    """Owns the run's state: what is sensitive in an event is known from those before it."""

    def __init__(self, uncover: bool = False) -> None:
        self.uncover = uncover
        self.run: Run | None = None

    @property
    def version(self) -> int:
        return 0 if self.run is None else self.run.header.version

    def take(self, event: RunEvent) -> RunEvent:
        """The event as it may be shown. Raises `BrokenHistory` where it can't be the next one."""
        try:
            self.run = follow(self.run, event)
        except BrokenHistory:
            raise
        except Exception as error:  # a forged event may hold anything
            what = f"{type(error).__name__}: {error}"
            raise BrokenHistory(
                f"event {event.version} ({safe(event.type, 40)}) does not fit: {safe(what, 200)}"
            ) from error
        return event if self.uncover else covered_event(event, self.run)
