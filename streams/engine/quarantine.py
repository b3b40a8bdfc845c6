"""Sick runs (contract section 10): a flag, records parked, other runs unharmed, a way back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec
from perdure.schemas import codec, records, topics
from perdure.streams.core.state import Header
from perdure.streams.runtime.processor import Context, Message, Record

from . import layout
from .intake import Intake, position

log = logging.getLogger(__name__)

MAX_PARKED: Final = 1_000
MAX_PARKED_BYTES: Final = 10_000_000


class Quarantines:
    """The only owner of the quarantine flags. ``dispatch`` processes a record as if it came now."""

    def __init__(self, dispatch: Callable[[Context, Message], None], intake: Intake) -> None:
        self._dispatch = dispatch
        self._intake = intake

    def begin(self, ctx: Context, run_id: str, message: Message | None, error: Exception) -> None:
        """Flag the run and keep the record that broke it."""
        log.error("run %s is quarantined: its processing raised", run_id, exc_info=error)
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        if flag is None:
            reason = f"{type(error).__name__}: {error}"[:2000]
            flag = layout.Quarantine(reason=reason, since=ctx.now)
        self._keep(ctx, run_id, flag, message)

    def park(self, ctx: Context, message: Message) -> bool:
        """True: the run is quarantined and the record was kept for later (or released it)."""
        run_id = message.owner
        assert run_id is not None
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        if flag is None:
            return False
        body = message.body
        if isinstance(body, records.ControlRequest) and body.command == "release":
            self._release(ctx, run_id, body, message.record)
        else:
            self._keep(ctx, run_id, flag, message)
        return True

    def _keep(
        self, ctx: Context, run_id: str, flag: layout.Quarantine, message: Message | None
    ) -> None:
        if message is not None:
            record = message.record
            value = record.value or b""
            if flag.parked >= MAX_PARKED or flag.parked_bytes + len(value) > MAX_PARKED_BYTES:
                ctx.dead_letter(
                    record, "quarantined", f"run {run_id} is quarantined and holds all it may"
                )
                return
            kept = layout.Waiting(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp=record.timestamp,
                value=value,
            )
            ctx.put(layout.parked(run_id, flag.next), kept)
            flag = msgspec.structs.replace(
                flag,
                parked=flag.parked + 1,
                parked_bytes=flag.parked_bytes + len(value),
                next=flag.next + 1,
            )
        ctx.put(layout.quarantine(run_id), flag)

    def _release(
        self, ctx: Context, run_id: str, request: records.ControlRequest, record: Record
    ) -> None:
        """Take the run up again: its timers are set anew, then what was parked is processed in order."""
        ctx.delete(layout.quarantine(run_id))
        header: Header | None = ctx.get(layout.header(run_id))
        if header is not None:
            for name, due in header.timers.items():
                ctx.set_timer(max(due, ctx.now), f"{run_id}/{name}".encode())
        for key, kept in list(ctx.scan(layout.parked(run_id))):
            ctx.delete(key)
            self._dispatch(
                ctx,
                self._intake.read(
                    Record(
                        kept.topic, kept.partition, kept.offset, kept.timestamp, None, kept.value
                    )
                ),
            )
        verdict = records.Verdict(
            run_id=run_id,
            request_id=request.request_id or position(record),
            accepted=True,
            reason="release",
            at=ctx.now,
        )
        ctx.send(
            topics.VERDICTS,
            run_id.encode(),
            codec.encode(verdict),
            [("perdure-type", b"Verdict")],
            ctx.partition,
        )
