"""Taking over a partition, in the order of architecture section 3.

(a) the committed offsets of all its inputs, waiting while any is unstable; (b) the changelog's
end as read_uncommitted; (c) the changelog as read_committed until the position has reached (b);
(d) the caller starts the inputs at exactly (a). Any other order can miss what a former owner
commits late: its transaction is either in (a) and hence below (b), or it is refused.

If (a) or (c) stands still for `stall_ms`, an open transaction is in the way. Its owner wrote its
transactional id beside the last stable offset (every owner does so before its first
transaction, see `membership.py`); taking that id for a moment aborts the transaction. Normally
that owner is dead. If it is alive it has hung through its session timeout and a second more: it
is fenced, ends with exit code 5, and its supervisor starts it again. Nothing is lost either way:
what it had open could not have been committed any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .assignment import OwnedPartition
from .clock import Clock
from .errors import StoreBusy, StoreCorrupt, TopicMismatch, Unanswered
from .offsets import StoredOffsets, decode_stored, read_note, unpack_done
from .ports import Admin, Answer, End, Kafka, Polled, Position, Reader, Spot
from .processor import Record
from .settings import RuntimeSettings
from .store import OFFSETS_KEY, REBUILDING_KEY, Store, StoreMeta, Stores

log = logging.getLogger(__name__)

SLICE_RECORDS = 5_000
_BUSY_PATIENCE = 10.0  # s a store may still be held by the former assignment's iterators
_ASK_AGAIN = 0.05
_ABORT_AGAIN = 5.0
CLOCKS_DIFFER_MS = 600_000
"""A store written this much later than now says nothing of its age."""
_HANGS = 60.0
"""Past every transaction's own time-out: what stands in the way now is the broker's mistake."""


class Stopped(Exception):
    """The partition can't be taken; the message says why and what to do. Others go on."""


class Restoration:
    """One partition's way from assigned to ready. `advance` never blocks for long."""

    def __init__(
        self,
        own: OwnedPartition,
        changelog: str,
        group: str,
        owner: str,
        settings: RuntimeSettings,
        kafka: Kafka,
        admin: Admin,
        reader: Reader,
        stores: Stores,
        clock: Clock,
    ) -> None:
        self.own = own
        self.store: Store | None = None
        self.starts: dict[str, tuple[int, set[int]]] = {}  # topic: position, finished above it
        self.ready = False
        self.doing = "offsets"
        self.took: dict[str, float] = {}  # s, by what it was at
        self.restored = 0  # records read from the changelog
        self.began = clock.monotonic()
        self._phase, self._phase_began = self.doing, self.began
        self._spot = Spot(changelog, own.partition)
        self._group = group
        self._owner = owner
        self._settings = settings
        self._kafka = kafka
        self._admin = admin
        self._reader = reader
        self._stores = stores
        self._clock = clock
        self._progress_at = clock.monotonic()
        self._asked_at = self._progress_at
        self._aborted_at = -_ABORT_AGAIN
        self._stores_opened_from = self._progress_at
        self._committed_answer = admin.committed(group, own.spots(), True)
        self._committed: Mapping[Spot, Position] = {}
        self._unstable: Answer[Mapping[Spot, Position]] | None = None
        self._questions: list[Answer[Any]] | None = None
        self._ends: Mapping[Spot, int] = {}
        self._starts: Mapping[Spot, int] = {}
        self._ids: Mapping[str, str] = {}
        self._end = 0
        self._topic_id = ""
        self._position = 0
        self._reading = False
        self._step = self._take_offsets

    def advance(self) -> None:
        """Raises `Stopped`, `TopicMismatch`, `StoreFailed`."""
        if not self.ready:
            self._step()

    def close(self) -> None:
        """The partition is lost before it was ready, or stopped."""
        self._stop_reading()
        if self.store is not None:
            self.store.close()
            self.store = None

    def _go(self, doing: str, step: Any) -> None:
        self._enter(doing)
        self._step = step
        self._progress_at = self._phase_began
        step()

    def _enter(self, doing: str) -> None:
        now = self._clock.monotonic()
        self.took[self._phase] = now - self._phase_began
        self.doing = self._phase = doing
        self._phase_began = now

    # (a)
    def _take_offsets(self) -> None:
        if not self._committed_answer.done():
            self._break_stall()
            return
        try:
            self._committed = self._committed_answer.result()
        except Unanswered as e:
            self.doing = f"offsets ({e})"
            self._break_stall()
            if self._clock.monotonic() >= self._asked_at + _ASK_AGAIN:
                self._asked_at = self._clock.monotonic()
                self._committed_answer = self._admin.committed(self._group, self.own.spots(), True)
            return
        self._go("changelog's end", self._take_end)

    # (b)
    def _take_end(self) -> None:
        if self._questions is None:
            inputs = self.own.spots()
            self._questions = [
                self._admin.ends([self._spot, *inputs]),
                self._admin.starts([self._spot, *inputs]),
                self._admin.topic_ids([self._spot.topic, *self.own.topics]),
            ]
        if not all(q.done() for q in self._questions):
            return
        try:
            ends, starts, ids = [q.result() for q in self._questions]
        except Unanswered as e:
            self.doing = f"changelog's end ({e})"
            self._questions = None
            return
        self._ends, self._starts, self._ids = ends, starts, ids
        self._end = ends[self._spot]
        self._topic_id = ids[self._spot.topic]
        self._stores_opened_from = self._clock.monotonic()
        self._go("opening the store", self._open_store)

    def _open_store(self) -> None:
        partition = self.own.partition
        try:
            self.store = self._stores.open(partition)
            meta = self.store.meta()
            reason = self._unusable(meta)
        except StoreBusy as e:
            if self._clock.monotonic() > self._stores_opened_from + _BUSY_PATIENCE:
                raise Stopped(f"{e}; end the process that holds it") from e
            return
        except StoreCorrupt as e:
            meta, reason = None, f"it is corrupt: {e}"
        if reason is not None:
            log.warning(
                "partition %d: the store is dropped and restored anew: %s", partition, reason
            )
            if self.store is not None:
                self.store.close()
            self._stores.wipe(partition)
            self.store = self._stores.open(partition)
            meta = None
        self._position = self._starts[self._spot] if meta is None else meta.offset
        if self._position < self._end:
            self._reader.add(self._spot, self._position)
            self._reading = True
        self._go("changelog", self._read)

    def _unusable(self, meta: StoreMeta | None) -> str | None:
        if meta is None:
            return None
        start = self._starts[self._spot]
        age = self._clock.now_ms() - meta.written_at
        if meta.topic_id != self._topic_id:
            return "it belongs to another changelog topic of the same name"
        if not start <= meta.offset <= self._end:
            return f"its offset {meta.offset} is outside the changelog ({start} to {self._end})"
        if age > self._settings.changelog_delete_retention_ms // 2:
            return (
                f"it was last written {age // 3_600_000} hours ago: deletions may have been missed"
            )
        if age < -CLOCKS_DIFFER_MS:
            return (
                f"it was last written {-age // 60_000} minutes from now, by a clock that was ahead: how "
                "old it is can't be told, so deletions may have been missed"
            )
        return None

    # (c)
    def take(self, batch: list[Polled]) -> None:
        """What the reader got of this partition's changelog: one slice."""
        changes: dict[bytes, bytes | None] = {}
        position = self._position
        for item in batch:
            if isinstance(item, Record):
                self.restored += 1
                if item.key is not None:
                    changes[item.key] = item.value
                position = item.offset + 1
            elif isinstance(item, End):
                position = max(position, item.offset)
            elif item.lost:  # cut while we read: start over from what is left
                raise Stopped(
                    f"the changelog was cut while it was read ({item.detail}); start again"
                )
        if position > self._position:
            self._position = position
            self._progress_at = self._clock.monotonic()
            assert self.store is not None
            self.store.write(changes, self._meta())
            self.doing = f"changelog: {max(self._end - position, 0)} to go"

    def _read(self) -> None:
        if self._position < self._end:
            self._break_stall()
            return
        self._stop_reading()
        assert self.store is not None
        raw = self.store.get(OFFSETS_KEY)
        if self.store.get(REBUILDING_KEY) is not None:
            raise Stopped(
                "`perdure rebuild` was begun and not finished: run it again, with all engines stopped"
            )
        stored = None if raw is None else decode_stored(raw)
        if stored is None:
            self._refuse_lost_state()
        if stored is not None and stored.partitions != self.own.partitions:
            raise TopicMismatch(
                f"the topics have {self.own.partitions} partitions; this deployment's state was made with "
                f"{stored.partitions}, so runs would not be found. Partitions are fixed for the life of a "
                "topic_prefix: set the old count, or start a new topic_prefix and let this one run dry"
            )
        self.store.write({}, self._meta())
        notes = {spot.topic: read_note(at.metadata) for spot, at in self._committed.items()}
        self.own.unwritten = stored is None
        # An operator's offsets and no state (see `_refuse_lost_state`); or the same, and an owner
        # that died before it wrote any.
        self.own.began_anew = stored is None and any(not n.id or n.anew for n in notes.values())
        self.own.now = stored.now if stored is not None else 0
        self.own.topic_ids = {t: self._ids[t] for t in self.own.topics}
        for topic in self.own.topics:
            self.starts[topic] = self._start_of(topic, stored)
            if topic in notes and (notes[topic].id or self.own.began_anew):
                self.own.taken_until[topic] = self._ends[Spot(topic, self.own.partition)]
        self._enter("ready")
        self.ready = True

    def _refuse_lost_state(self) -> None:
        """The first transaction of a partition's life writes an entry, before any input is passed.
        Inputs that were taken and no entry: the changelog was deleted, and the state with it."""
        name = f"{self._spot.topic}-{self._spot.partition}"
        notes = {spot: read_note(at.metadata) for spot, at in self._committed.items()}
        read = [
            f"{spot.topic} up to {at.offset}"
            for spot, at in self._committed.items()
            if notes[spot].id and not notes[spot].new  # also where retention has caught up with it
        ]
        if not read:
            return
        raise Stopped(
            f"{name} holds no state, but the inputs have been read ({', '.join(read)}): the state is "
            "lost. For engines `perdure rebuild` makes it from agent.events; to go on without it: "
            f"perdure topics check --accept-loss {name}"
        )

    # what (d) starts from
    def _start_of(self, topic: str, stored: StoredOffsets | None) -> tuple[int, set[int]]:
        spot = Spot(topic, self.own.partition)
        first, end = self._starts[spot], self._ends[spot]
        name = f"{topic}-{self.own.partition}"
        known = stored.inputs.get(topic) if stored is not None else None
        made_anew = (
            stored is not None and stored.topic_ids.get(topic, self._ids[topic]) != self._ids[topic]
        )
        committed = self._committed.get(spot)
        if committed is not None:
            position, done = committed.offset, read_note(committed.metadata).done
        elif known is not None:
            position, done = known
        else:  # a group that never was here: all that waits is its work
            return first, set()
        if committed is not None and not read_note(committed.metadata).id:
            made_anew = False  # an operator's offset: a loss that was accepted
        if made_anew:
            lost = f"{topic} was deleted and made anew; offset {position} is of the old one"
        elif position < first:
            lost = f"the records {position} to {first - 1} of {name} are gone (retention, or deleted) before they were read"
        elif position > end:
            lost = f"{name} ends at {end}, before the committed offset {position}"
        else:
            return position, unpack_done(position, done)
        raise Stopped(
            f"{lost}. To go on from offset {first}: perdure topics check --accept-loss {name}"
        )

    def _meta(self) -> StoreMeta:
        return StoreMeta(self._position, self._topic_id, self._clock.now_ms())

    @property
    def topic_id(self) -> str:
        return self._topic_id

    @property
    def position(self) -> int:
        return self._position

    def _stop_reading(self) -> None:
        if self._reading:
            self._reader.remove(self._spot)
            self._reading = False

    def _break_stall(self) -> None:
        now = self._clock.monotonic()
        if (
            now < self._progress_at + self._settings.stall_ms / 1000
            or now < self._aborted_at + _ABORT_AGAIN
        ):
            return
        if self._unstable is None:
            self._unstable = self._admin.committed(self._group, self.own.spots(), False)
        if not self._unstable.done():
            return
        try:
            last = self._unstable.result()
        except Unanswered:
            self._unstable = None
            return
        self._unstable = None
        self._aborted_at = now
        if now >= self._progress_at + _HANGS:
            log.error(
                "partition %d: its takeover has stood still for %.0f s (%s): a transaction hangs that "
                "nobody holds any more. Kafka's own kafka-transactions.sh finds and aborts it",
                self.own.partition,
                now - self._progress_at,
                self.doing,
            )
        owners = {read_note(p.metadata).id for p in last.values()} - {"", self._owner}
        for former in sorted(owners):
            log.warning(
                "partition %d: takeover stands still; aborting what %s left open",
                self.own.partition,
                former,
            )
            self._kafka.abort_open_transaction(former)
