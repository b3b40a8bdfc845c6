"""Step 2 of the cycle: each input in a savepoint of its own.

Here what a processor raises is caught. Its savepoint is discarded, and
`Processor.failed` says in a new one what becomes of the input; if that raises too, the record is
buried or the timer deleted, because one input must never stop a partition. Failures of the store,
of Kafka or of memory are not the processor's and go through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .assignment import OwnedPartition
from .clock import Clock
from .errors import NOT_THE_INPUTS, Aborted, StoreCorrupt, Undeliverable
from .forwarding import Misrouted, forward, unwrap
from .partitioner import partition_of
from .processor import Context, Message, Processor, Record, Undecodable
from .savepoint import Savepoint
from .settings import RuntimeSettings
from .timers import timer_key
from .work import Work, is_same

log = logging.getLogger(__name__)

FAR_AHEAD_MS = 10_000
"""Of a partition's time before its machine's clock: more than clocks that are looked after differ."""


class Processing:
    """Takes the inputs of live partitions through the processor, into a `Work`."""

    def __init__(
        self,
        processor: Processor,
        settings: RuntimeSettings,
        clock: Clock,
        corrupt: Callable[[OwnedPartition, StoreCorrupt], None],
    ) -> None:
        self._processor = processor
        self._settings = settings
        self._clock = clock
        self._corrupt = corrupt
        self._turn = 0
        self.one_by_one = False  # one input a cycle, always the same first
        self.poison: tuple[Any, str] | None = None  # an input whose outputs Kafka refuses, and why

    def process(self, owned: Sequence[OwnedPartition], work: Work, timers: bool) -> None:
        """Raises `Aborted` when a store turned out corrupt."""
        if not self.one_by_one:
            self._turn += 1
        first = self._turn % len(owned) if owned else 0  # nobody is always last
        deadline = self._clock.monotonic() + self._settings.max_processing_ms / 1000
        now = self._clock.now_ms()
        for own in (*owned[first:], *owned[:first]):
            if now >= own.now:
                own.now = now
            elif not own.ahead and own.now - now > FAR_AHEAD_MS:
                self._stands_still(own, now)
            own.notice_finished()
            try:
                if not own.announced:
                    work.of(own).announced = own.announced = True
                    self._attempt(own, work, None, self._processor.live, None)
                if own.unwritten:  # an entry before any input is passed: see `restore.py`
                    work.staged[own] = None
                self._take_events(own, work, deadline)
                self._take_records(own, work, deadline)
                if timers and not own.leaving:
                    self._take_timers(own, work, deadline)
            except StoreCorrupt as e:
                self._corrupt(own, e)
                raise Aborted(f"the store of partition {own.partition} is corrupt") from e

    def _stands_still(self, own: OwnedPartition, now: int) -> None:
        """Its time never goes back: after a clock that ran ahead it waits for the right ones."""
        own.ahead = True
        log.error(
            "%s: the time of partition %d is %d s ahead of this machine's clock: a clock was ahead when it "
            "was last written, or this one is behind. Until the clock has caught up its timers (time-outs, "
            "retries, expiries) do not fire; check the clocks (NTP) of all machines that run Perdure",
            self._processor.name,
            own.partition,
            (own.now - now) // 1000,
        )

    def _refuse_poison(self, source: Any, work: Work) -> None:
        if self.poison is not None and is_same(self.poison[0], source):
            reason, self.poison = self.poison[1], None
            work.replaced = True
            raise Undeliverable(reason)

    def _full(self, work: Work, deadline: float) -> bool:
        return (
            work.inputs >= (1 if self.one_by_one else self._settings.max_batch)
            or work.size >= self._settings.max_staged_bytes
            or self._clock.monotonic() >= deadline
        )

    def _take_events(self, own: OwnedPartition, work: Work, deadline: float) -> None:
        while own.has_news and not self._full(work, deadline):
            try:
                event = own.take_event()
            except IndexError:
                return
            work.of(own).events.append(event)
            work.take(event)
            took = partial(_completed, self._processor, event)
            self._attempt(own, work, event, took, None, event)

    def _take_records(self, own: OwnedPartition, work: Work, deadline: float) -> None:
        pending = own.pending
        if not pending or not self._processor.accepting:
            return
        items = work.of(own).items
        longest = self._settings.max_unfinished
        while pending and not self._full(work, deadline):
            item = pending[0]
            offsets = own.offsets[item.topic]
            if type(item) is Record:
                if offsets.span >= longest:
                    break
                pending.popleft()
                items.append(item)
                work.take(item)
                if item.offset >= offsets.position and not offsets.is_done(item.offset):
                    own.taking = (item.topic, item.offset)
                    self._take_record(own, work, item)
                offsets.advance(item.offset + 1)
            else:
                pending.popleft()
                items.append(item)
                offsets.advance(item.offset)

    def _take_record(self, own: OwnedPartition, work: Work, record: Record) -> None:
        work.count("records")
        processor = self._processor
        savepoint = Savepoint(own, processor.encode, record)
        message: Message | None = None
        came_from = record
        try:
            if record.topic == processor.forwarded:
                record = unwrap(record)
            message = processor.read(record)
            if message is None:
                work.count("dropped")
                return
            if message.owner is not None:
                target = partition_of(message.owner, own.partitions)
                if target != own.partition:
                    self._send_home(savepoint, work, came_from, message.owner, target)
                    savepoint.merge(work)
                    return
            if self.poison is not None:
                self._refuse_poison(came_from, work)
            processor.process(savepoint, message)
            savepoint.merge(work)
        except (Undecodable, Misrouted) as e:
            reason, detail = (
                (e.reason, e.detail) if isinstance(e, Undecodable) else ("misrouted", str(e))
            )
            self._bury(own, work, record, reason, detail)
        except NOT_THE_INPUTS:
            raise
        except Exception as e:
            self._failed(own, work, e, record, message, None)

    def _send_home(
        self, savepoint: Savepoint, work: Work, record: Record, owner: str, target: int
    ) -> None:
        to = self._processor.forwarded
        if to is None or record.topic == to:
            raise Misrouted(f"partition {target} owns it")
        savepoint.send_as_it_came(forward(record, to, owner, target))
        work.count("forwarded")

    def _take_timers(self, own: OwnedPartition, work: Work, deadline: float) -> None:
        due_timers = own.timers.due(own.now, own.position)
        if due_timers is None:
            return
        taken = work.of(own)
        taken.timers_looked_at = True
        fired = 0
        for due, key in due_timers:
            stored = timer_key(due, key)
            if stored in own.state.overlay.raw:  # cancelled earlier in this cycle
                continue
            delay = self._processor.timer_delay(key, due, own.live_since)
            if delay and own.now < own.live_since + delay:
                taken.timers_held_back = True
                continue
            fired += 1
            work.take(timer := (due, key))
            work.count("timers")
            self._attempt(own, work, timer, partial(_timer, self._processor, due, key), (due, key))
            if fired >= self._settings.max_timers or self._full(work, deadline):
                break

    def _attempt(
        self,
        own: OwnedPartition,
        work: Work,
        source: Any,
        call: Callable[[Context], None],
        timer: tuple[int, bytes] | None,
        event: Any = None,
    ) -> None:
        savepoint = Savepoint(own, self._processor.encode, None)
        if timer is not None:
            savepoint.cancel_timer(*timer)
        try:
            self._refuse_poison(source, work)
            call(savepoint)
            savepoint.merge(work)
        except NOT_THE_INPUTS:
            raise
        except Exception as e:
            self._failed(own, work, e, None, None, timer, event)

    def _failed(
        self,
        own: OwnedPartition,
        work: Work,
        error: Exception,
        record: Record | None,
        message: Message | None,
        timer: tuple[int, bytes] | None,
        event: Any = None,
    ) -> None:
        """The savepoint is discarded; the processor says in a new one what becomes of the input."""
        work.count("failed")
        log.warning(
            "%s: partition %d: an input failed: %s",
            self._processor.name,
            own.partition,
            where(error),
            extra={"run_id": None if message is None else message.owner},
        )
        log.debug("the whole of it", exc_info=error)
        savepoint = Savepoint(own, self._processor.encode, record)
        if timer is not None:
            savepoint.cancel_timer(*timer)
        try:
            if record is not None and message is None:
                savepoint.dead_letter(record, "internal_error", f"{type(error).__name__}: {error}")
                work.count("dead")
            else:
                self._processor.failed(
                    savepoint, message, None if timer is None else timer[1], error, event
                )
            savepoint.merge(work)
        except NOT_THE_INPUTS:
            raise
        except Exception as e:
            log.error(
                "%s: partition %d: failed() itself failed: %s",
                self._processor.name,
                own.partition,
                where(e),
            )
            self._last_resort(own, work, record, timer, error)

    def _last_resort(
        self,
        own: OwnedPartition,
        work: Work,
        record: Record | None,
        timer: tuple[int, bytes] | None,
        error: Exception,
    ) -> None:
        """One input must never stop a partition: a record is buried, a timer deleted."""
        savepoint = Savepoint(own, self._processor.encode, record)
        if timer is not None:
            savepoint.cancel_timer(*timer)
        if record is not None:
            savepoint.dead_letter(record, "internal_error", f"{type(error).__name__}: {error}")
            work.count("dead")
        savepoint.merge(work)

    def _bury(
        self, own: OwnedPartition, work: Work, record: Record, reason: str, detail: str
    ) -> None:
        savepoint = Savepoint(own, self._processor.encode, record)
        savepoint.dead_letter(record, reason, detail)
        savepoint.merge(work)
        work.count("dead")


def _completed(processor: Processor, event: Any, ctx: Context) -> None:
    processor.completed(ctx, event)


def _timer(processor: Processor, due: int, key: bytes, ctx: Context) -> None:
    processor.timer(ctx, key, due)


def where(error: BaseException) -> str:
    """Type and place; the text may hold a payload."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = (
        ""
        if at is None
        else f" at {at.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{at.tb_lineno}"
    )
    return f"{type(error).__name__}{place}"
