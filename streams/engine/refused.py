"""Tasks that never became runs: dead-lettered, with an outcome that says why.

Their ids stay free, so the same task may be sent again when what it lacked is there. That one was
refused is remembered as long as a taken id: its outcome must not stand as that of a run.
"""

from __future__ import annotations

from perdure.schemas import records
from perdure.streams.core.state import Header
from perdure.streams.runtime.processor import Context, Record

from . import layout
from .outputs import Outputs


class Refusals:
    """The only writer of outcomes that no run has."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def refuse(
        self, ctx: Context, record: Record, run_id: str, task: records.Task | None, reason: str
    ) -> None:
        """``task`` is None where it could not be read as one."""
        ctx.dead_letter(record, "refused", reason)
        self._outputs.refused_outcome(ctx, run_id, task, reason, ctx.now)
        self._forget(ctx, run_id)
        made = layout.Remembered(request_id="", accepted=False, at=ctx.now)
        ctx.put(layout.refused(run_id), made)
        ctx.set_timer(ctx.now + layout.IDS_KEPT_MS, _timer(run_id))

    def begun(self, ctx: Context, header: Header) -> None:
        """A run has the id now: an earlier refusal's outcome goes."""
        if self._forget(ctx, header.run_id):
            self._outputs.no_outcome(ctx, header.run_id.encode(), header)

    def timer(self, ctx: Context, run_id: str) -> None:
        """Its time is over."""
        ctx.delete(layout.refused(run_id))

    def _forget(self, ctx: Context, run_id: str) -> bool:
        known: layout.Remembered | None = ctx.get(layout.refused(run_id))
        if known is None:
            return False
        ctx.delete(layout.refused(run_id))
        ctx.cancel_timer(known.at + layout.IDS_KEPT_MS, _timer(run_id))
        return True


def _timer(run_id: str) -> bytes:
    return f"{run_id}/refused".encode()
