"""Forks on their way: a task that waits until the history it begins with has been read.

The waiting record is durable; the reading is not, and begins again when the partition goes live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from perdure.schemas.records import RunEvent
from perdure.streams.runtime.processor import Assignment, Context, Message, Record

from . import layout
from .histories import Histories
from .intake import Intake, NewTask
from .kept import Kept

UNTIL_READ: Final = 0
"""``Waiting.until`` of a fork: it waits for no time but for its history."""


class HistoryRead(Struct):
    """Posted: the history a fork waits for."""

    run_id: str
    events: list[RunEvent]


class Forks:
    """The only owner of waiting forks. ``start`` makes the run of them."""

    def __init__(
        self,
        histories: Histories | None,
        intake: Intake,
        kept: Kept,
        start: Callable[[Context, Record, NewTask, list[RunEvent]], None],
    ) -> None:
        self._histories = histories
        self._intake = intake
        self._kept = kept
        self._start = start
        self.doing = ""
        """The fork under way: whose it is when its making raises."""

    @property
    def possible(self) -> bool:
        return self._histories is not None

    def take(self, ctx: Context, message: Message, new: NewTask) -> None:
        """Keep the task and read what it begins with."""
        waiting = self._kept.store(message.record, UNTIL_READ, new.digest)
        ctx.put(layout.waiting(new.run_id), waiting)
        self.read(ctx, new)

    def read(self, ctx: Context, new: NewTask) -> None:
        assignment, run_id, fork_of = ctx.assignment, new.run_id, new.task.fork_of
        assert fork_of is not None
        ctx.after_commit(lambda: self._read(assignment, run_id, fork_of.run_id))

    def _read(self, assignment: Assignment, run_id: str, source: str) -> None:
        assert self._histories is not None
        self._histories.read(
            source,
            lambda: assignment.alive,
            lambda events: assignment.post(HistoryRead(run_id, events)),
        )

    def live(self, ctx: Context) -> None:
        """Whoever had this partition before may have read, but not made, these."""
        for key, waiting in list(ctx.scan(layout.waiting(""))):
            if waiting.until == UNTIL_READ:
                new = self._intake.read(self._kept.record(waiting)).body
                if key == layout.waiting(new.run_id):
                    self.read(ctx, new)

    def completed(self, ctx: Context, event: HistoryRead) -> None:
        """The history is there: the fork begins."""
        waiting: layout.Waiting | None = ctx.get(layout.waiting(event.run_id))
        if waiting is None or ctx.get(layout.quarantine(event.run_id)) is not None:
            return
        self.doing = event.run_id
        record = self._kept.record(waiting)
        ctx.delete(layout.waiting(event.run_id))
        self._start(ctx, record, self._intake.read(record).body, event.events)
        self.doing = ""
