"""What waits is counted anew when a partition is taken over: beside the work, a few runs at a time.

Questions are found by their timers, which are keys alone, so a partition with none pays for one
scan. Backoffs last minutes and are counted as they come.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from perdure.streams.core.apply import BrokenHistory
from perdure.streams.runtime.processor import Context

from . import layout
from .checkpoints import Checkpoints
from .measures import EngineMeasures, waits

AT_ONCE: Final = 50
"""Runs loaded in one go: about 10 ms."""
MOST_TIMERS: Final = 100_000
"""Timers looked at. Those of purges, a week ahead, come last and may be left out."""


class Uncounted(Struct):
    """Posted: runs whose waits are still to be counted."""

    run_ids: list[str]


class Recount:
    """Finds what `EngineMeasures` can't know of a partition it was not told of."""

    def __init__(self, checkpoints: Checkpoints, measures: EngineMeasures) -> None:
        self._checkpoints = checkpoints
        self._measures = measures

    def begin(self, ctx: Context) -> None:
        asking: dict[str, None] = {}
        for looked_at, (_, key) in enumerate(ctx.timers()):
            run_id, _, name = key.decode().partition("/")
            if name.startswith("ask/"):
                asking[run_id] = None
            if looked_at >= MOST_TIMERS:
                break
        self._post(ctx, list(asking))
        for key, value in ctx.scan(layout.quarantines()):
            if isinstance(value, layout.Quarantine):
                run_id = key.removeprefix(layout.quarantines()).decode()
                self._measures.sick(ctx.partition, run_id, value.parked)

    def go_on(self, ctx: Context, event: Uncounted) -> None:
        """As the state is now: what a decision told meanwhile is the same or newer."""
        for run_id in event.run_ids[:AT_ONCE]:
            try:
                run = self._checkpoints.load(ctx, run_id)
            except BrokenHistory:  # its own next record finds that, and quarantines it
                continue
            if run is not None:
                self._measures.waiting(ctx.partition, run_id, waits(run))
        self._post(ctx, event.run_ids[AT_ONCE:])

    def _post(self, ctx: Context, run_ids: list[str]) -> None:
        if run_ids:
            ctx.assignment.post(Uncounted(run_ids))
