"""Sick runs (contract section 10): a flag, records parked, other runs unharmed, a way back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from perdure.schemas import records
from perdure.streams.core.state import Header
from perdure.streams.runtime.processor import Context, Message

from . import layout
from .intake import Intake, position
from .kept import Kept
from .measures import EngineMeasures

log = logging.getLogger(__name__)

MAX_PARKED: Final = 1_000
MAX_PARKED_BYTES: Final = 10_000_000


class Quarantines:
    """The only owner of the quarantine flags. ``dispatch`` processes a record as if it came now,
    ``verdict`` answers a request, ``header`` gives a run's; all are the engine's own."""

    def __init__(
        self,
        dispatch: Callable[[Context, Message], None],
        verdict: Callable[..., None],
        header: Callable[[Context, str], Header | None],
        intake: Intake,
        kept: Kept,
        measures: EngineMeasures,
    ) -> None:
        self._measures = measures
        self._dispatch = dispatch
        self._verdict = verdict
        self._header = header
        self._intake = intake
        self._kept = kept

    def begin(self, ctx: Context, run_id: str, message: Message | None, error: Exception) -> None:
        """Flag the run and keep the record that broke it; a release that broke again is refused."""
        named = {"run_id": run_id}
        kind = type(error).__name__  # and no more: the text may hold what a user sent
        log.error("run %s is quarantined: %s while processing it", run_id, kind, extra=named)
        log.debug("run %s", run_id, exc_info=error, extra=named)
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        reason = f"{type(error).__name__}: {error}"[:2000]
        if flag is None:
            flag = layout.Quarantine(reason=reason, since=ctx.now)
        elif message is not None and _is_release(message.body):
            self._answer(ctx, run_id, message, False, f"it is quarantined again: {reason}")
            return
        self._keep(ctx, run_id, flag, message)

    def park(self, ctx: Context, message: Message) -> bool:
        """True: the run is quarantined and the record was kept for later (or released it)."""
        run_id = message.owner
        assert run_id is not None
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        if flag is None:
            return False
        if _is_release(message.body):
            self._release(ctx, run_id, message)
        else:
            self._keep(ctx, run_id, flag, message)
        return True

    def _keep(
        self, ctx: Context, run_id: str, flag: layout.Quarantine, message: Message | None
    ) -> None:
        if message is not None:
            size = len(message.record.value or b"")
            if flag.parked >= MAX_PARKED or flag.parked_bytes + size > MAX_PARKED_BYTES:
                text = f"run {run_id} is quarantined and holds all it may"
                ctx.dead_letter(message.record, "quarantined", text)
            else:
                ctx.put(layout.parked(run_id, flag.next), self._kept.store(message.record))
                flag = msgspec.structs.replace(
                    flag,
                    parked=flag.parked + 1,
                    parked_bytes=flag.parked_bytes + size,
                    next=flag.next + 1,
                )
        ctx.put(layout.quarantine(run_id), flag)
        ctx.after_commit(partial(self._measures.sick, ctx.partition, run_id, flag.parked))

    def _release(self, ctx: Context, run_id: str, message: Message) -> None:
        """Take the run up again: its timers are set anew, then what was parked is processed in order."""
        ctx.delete(layout.quarantine(run_id))
        ctx.after_commit(partial(self._measures.sick, ctx.partition, run_id, None))
        header = self._header(ctx, run_id)
        if header is not None:
            for name, due in header.timers.items():
                ctx.set_timer(max(due, ctx.now), f"{run_id}/{name}".encode())
        if ctx.get(layout.waiting(run_id)) is not None:
            ctx.set_timer(ctx.now, f"{run_id}/wait".encode())
        for key, waiting in list(ctx.scan(layout.parked(run_id))):
            ctx.delete(key)
            self._dispatch(ctx, self._intake.read(self._kept.record(waiting)))
        self._answer(ctx, run_id, message, True, "release")

    def _answer(
        self, ctx: Context, run_id: str, message: Message, accepted: bool, reason: str
    ) -> None:
        request_id = message.body.request_id or position(message.record)
        self._verdict(ctx, run_id, request_id, accepted, reason)


def _is_release(body: object) -> bool:
    return isinstance(body, records.ControlRequest) and body.command == "release"
