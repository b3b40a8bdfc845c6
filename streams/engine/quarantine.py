"""Sick runs (contract section 10): a flag, records parked, other runs unharmed, two ways out.

Theory of operation. A run whose own processing raised is left as it was before; what comes for it
is parked, and its timers wait. What raised was most likely a bug, so the way back is a *release*,
once it is mended: all that was parked is processed in its order. A record that raises again is set
aside only where nothing is lost by that: a person's request (its sender is told), the result of a
call that only reads or of a model (it is called again). For anything else the release is refused
and nothing has changed. The other way is a *cancel*: it is taken ahead of what is parked, and then
every record that raises is set aside, so that a run can be ended whatever is wrong. A result set
aside is as one that never came: its call's timer settles it by its effect, or says that it is in
doubt. What is set aside is in the dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from perdure.schemas import records
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.state import Header
from perdure.streams.runtime.errors import NOT_THE_INPUTS
from perdure.streams.runtime.processor import Context, Message, Record, Undecodable

from . import layout
from .checkpoints import Checkpoints
from .draft import Draft
from .intake import Intake, NewTask, RefusedRequest, position, request_id_of
from .kept import Kept
from .measures import EngineMeasures

log = logging.getLogger(__name__)

MAX_PARKED: Final = 1_000
MAX_PARKED_BYTES: Final = 10_000_000
_WHAT_TO_DO: Final = (
    "mend the cause and release it again, or end it with `perdure cancel`, without what raises"
)
_REQUESTS: Final = (records.ApprovalDecision, records.ControlRequest, RefusedRequest)


class Quarantines:
    """The only owner of the quarantine flags. ``dispatch`` processes a record as if it came now,
    ``verdict`` answers a request, ``refuse`` a task; all are the engine's own."""

    def __init__(
        self,
        dispatch: Callable[[Context, Message], None],
        verdict: Callable[..., None],
        refuse: Callable[[Context, Record, str, records.Task, str], None],
        encode: Callable[[bytes, Any], bytes],
        checkpoints: Checkpoints,
        intake: Intake,
        kept: Kept,
        measures: EngineMeasures,
    ) -> None:
        self._dispatch = dispatch
        self._verdict = verdict
        self._refuse = refuse
        self._encode = encode
        self._checkpoints = checkpoints
        self._intake = intake
        self._kept = kept
        self._measures = measures

    def begin(self, ctx: Context, run_id: str, message: Message | None, error: Exception) -> None:
        """Flag the run and keep the record that broke it; a way out that broke again is refused."""
        named = {"run_id": run_id}
        kind = type(error).__name__  # and no more: the text may hold what a user sent
        log.error("run %s is quarantined: %s while processing it", run_id, kind, extra=named)
        log.debug("run %s", run_id, exc_info=error, extra=named)
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        reason = _told(error)
        if flag is None:
            flag = layout.Quarantine(reason=reason, since=ctx.now)
        elif message is not None and _is(message.body, "release"):
            at = "".join(f" at {note}" for note in getattr(error, "__notes__", ()))
            text = f"it is quarantined again{at}: {reason}: {_WHAT_TO_DO}"
            self._answer(ctx, run_id, message, False, text)
            return
        elif message is not None and _is(message.body, "cancel"):
            text = f"it is quarantined, and to cancel it raises too: {reason}"
            if message.body.compensate:
                text += ": cancel it without undoing what was done"
            self._answer(ctx, run_id, message, False, text)
            return
        self._keep(ctx, run_id, flag, message)

    def park(self, ctx: Context, message: Message) -> bool:
        """True: the run is quarantined and the record was kept for later, or was a way out."""
        run_id = message.owner
        assert run_id is not None
        flag: layout.Quarantine | None = ctx.get(layout.quarantine(run_id))
        if flag is None:
            return False
        if _is(message.body, "release"):
            self._release(ctx, run_id, message)
        elif _is(message.body, "cancel"):
            self._cancel(ctx, run_id, message, flag)
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

    # --- the ways out -------------------------------------------------------------------------

    def _release(self, ctx: Context, run_id: str, message: Message) -> None:
        """Take the run up again: its timers are set anew, then what was parked is processed in order."""
        self._lift(ctx, run_id)
        aside = self._take(ctx, run_id, self._loses_nothing)
        text = (
            f"release, without {len(aside)} that raised again: {aside[0]}" if aside else "release"
        )
        self._answer(ctx, run_id, message, True, text)

    def _cancel(self, ctx: Context, run_id: str, message: Message, flag: layout.Quarantine) -> None:
        """End the run ahead of what is parked for it; what raises is not what the end waits for."""
        header = self._checkpoints.header(ctx, run_id)
        if header is None and ctx.get(layout.stub(run_id)) is None:
            self._never_begun(ctx, run_id, flag)
            self._answer(ctx, run_id, message, True, "cancel")
            return
        over = "purged" if header is None else _over(header)
        if header is not None and (over is None or self._judged(ctx, header, message)):
            before = header.version
            self._dispatch(ctx, message)
            header = self._checkpoints.header(ctx, run_id)
            assert header is not None
            if header.version == before:
                return  # refused: it stays as it is
        else:
            text = f"it is already {over}, and no longer quarantined"
            self._answer(ctx, run_id, message, True, text)
        self._lift(ctx, run_id)
        self._take(ctx, run_id, lambda ctx, body: True)

    def _judged(self, ctx: Context, header: Header, message: Message) -> bool:
        """The run has a word on the request though it has ended: it is another version's, or known."""
        expected = message.body.expected_version
        known = layout.remembered(header.run_id, request_id_of(message.body, message.record))
        return expected not in (None, header.version) or ctx.get(known) is not None

    def _lift(self, ctx: Context, run_id: str) -> None:
        """The flag goes, and what waited for it has its timers again."""
        ctx.delete(layout.quarantine(run_id))
        ctx.after_commit(partial(self._measures.sick, ctx.partition, run_id, None))
        header = self._checkpoints.header(ctx, run_id)
        if header is not None:
            for name, due in header.timers.items():
                ctx.set_timer(max(due, ctx.now), f"{run_id}/{name}".encode())
            return
        if ctx.get(layout.waiting(run_id)) is not None:
            ctx.set_timer(ctx.now, f"{run_id}/wait".encode())
        for _, held in list(ctx.scan(layout.held(run_id))):
            where = position(self._kept.record(held))
            ctx.set_timer(max(held.until, ctx.now), f"{run_id}/hold/{where}".encode())

    def _take(self, ctx: Context, run_id: str, spared: Callable[[Context, Any], bool]) -> list[str]:
        """Process what was parked. Of what raised: set aside where it may be ``spared``, and told;
        else raised."""
        told = []
        for key, waiting in list(ctx.scan(layout.parked(run_id))):
            ctx.delete(key)
            record, body = _bare(waiting), None
            draft = Draft(ctx, self._encode)
            try:
                record = self._kept.record(waiting)
                message = self._intake.read(record)
                body = message.body
                self._dispatch(draft, message)
                draft.keep()
            except NOT_THE_INPUTS:
                raise
            except Undecodable as error:  # an earlier version could read it
                ctx.dead_letter(record, error.reason, error.detail)
            except Exception as error:
                error.add_note(position(record))
                if not spared(ctx, body):
                    raise
                self._set_aside(ctx, run_id, record, body, error)
                told.append(f"{_told(error)} at {position(record)}")
        return told

    def _loses_nothing(self, ctx: Context, body: Any) -> bool:
        """A request, whose sender is told, or the result of a call that is simply made again."""
        if not isinstance(body, records.ActionResult):
            return isinstance(body, _REQUESTS)
        run = self._checkpoints.load(ctx, body.run_id)
        n = int(body.action_id.rpartition("/")[2])
        if run is None or not 1 <= n < run.header.next_action:
            return False
        action = run.action(n)
        return action.kind == "model" or action.effect == "read_only"

    def _set_aside(
        self, ctx: Context, run_id: str, record: Record, body: Any, error: Exception
    ) -> None:
        text = f"run {run_id}: to process it raises: {_told(error)}"
        ctx.dead_letter(record, "quarantined", text)
        kind, named = type(error).__name__, {"run_id": run_id}
        log.error("run %s: %s is set aside: %s", run_id, position(record), kind, extra=named)
        if isinstance(body, _REQUESTS):
            request_id = request_id_of(body, record)
            text = f"to process it raises: {_told(error)}"
            self._verdict(ctx, run_id, request_id, False, text)

    def _never_begun(self, ctx: Context, run_id: str, flag: layout.Quarantine) -> None:
        """Its very task could not be processed: it is refused, and whoever asked is told."""
        keys = [key for key, _ in ctx.scan(layout.parked(run_id))]
        held = [key for key, _ in ctx.scan(layout.held(run_id))]
        waits = layout.waiting(run_id)
        for key in (waits, *keys, *held):
            waiting: layout.Waiting | None = ctx.get(key)
            if waiting is None:
                continue
            ctx.delete(key)
            record, body = _bare(waiting), None
            try:
                record = self._kept.record(waiting)
                body = self._intake.read(record).body
            except NOT_THE_INPUTS:
                raise
            except Exception as error:  # it can't be had any more
                log.warning("run %s: %s: %s", run_id, position(record), type(error).__name__)
            text = f"cancelled, for it could not be begun: {flag.reason}"
            if isinstance(body, NewTask):
                self._refuse(ctx, record, run_id, body.task, text)
            elif isinstance(body, _REQUESTS):
                request_id = request_id_of(body, record)
                self._verdict(ctx, run_id, request_id, False, text)
            else:
                ctx.dead_letter(record, "quarantined", f"run {run_id}: {text}")
        self._lift(ctx, run_id)

    def _answer(
        self, ctx: Context, run_id: str, message: Message, accepted: bool, reason: str
    ) -> None:
        request_id = request_id_of(message.body, message.record)
        self._verdict(ctx, run_id, request_id, accepted, reason)


def _is(body: object, command: str) -> bool:
    return isinstance(body, records.ControlRequest) and body.command == command


def _over(header: Header) -> str | None:
    """How the run has ended, or ends, where no cancel can change that any more."""
    if header.status in FINAL:
        return header.status if header.status != "failed" else None
    ending = header.ending
    return None if ending is None or ending.to == "failed" else f"ending ({ending.to})"


def _bare(waiting: layout.Waiting) -> Record:
    """The record without its value, for one that can't be had any more."""
    at = waiting.topic, waiting.partition, waiting.offset, waiting.timestamp
    return Record(*at, key=None, value=None)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]
