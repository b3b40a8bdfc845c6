"""The cycle: how records become committed state, outputs and actions, exactly once.

Theory of operation. One thread runs `Cycle.step` for ever; each step is

1. **Poll**: up to `max_batch` records of live partitions, completions posted by other threads,
   due timers. Rebalance callbacks run in here and nowhere else, so between here and step 5
   partitions neither come nor go. Restoring partitions advance by a slice.
2. **Process** each input in a savepoint of its own, merged only when the processor returned.
   A record is forwarded if another partition owns it, dead-lettered if undecodable, dropped if
   the processor says so. A raise discards the savepoint and asks `Processor.failed` what to
   do. Bounded by records, staged bytes and time: what was polled beyond waits in memory.
3. **Commit**: one Kafka transaction over all partitions with something staged: changelog,
   outputs, and the input offsets, always (also unchanged ones: a transaction without offsets is
   fenced by nothing). Nothing polls between 1 and 4.
4. **Store**: only now the overlay goes to the local store, in one batch with the changelog
   offset. The store is a cache of the changelog and never ahead of it.
5. **Act**: start the calls, answer the callers.

A crash before 3's commit leaves nothing: inputs are taken again. Between 3 and 4 the store is
behind and is restored from the changelog. Between 4 and 5 the action was promised but not
begun: the processor finds that in its state when the partition goes live.

An aborted transaction drops the overlay and puts the batch back in front (it is still in
memory, so nothing has to be fetched again). A group fence is such an abort: the consumer learns
of its expulsion in a coming poll and the partitions are lost. A producer fence ends the process.
A cycle that staged nothing makes no transaction; its offsets are committed plainly, at
intervals and before the next transaction could race them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from . import startup
from .assignment import OwnedPartition
from .clock import Clock
from .errors import Aborted, GroupFenced, StoreCorrupt, Unanswered
from .global_topics import GlobalTopics
from .health import Health
from .membership import Membership
from .ports import End, Kafka
from .processing import Processing
from .processor import Processor, Record
from .refusals import Refusals
from .settings import RuntimeSettings
from .store import OFFSETS_KEY, Stores
from .work import Work

log = logging.getLogger(__name__)

REPORT_MS = 50


class Cycle:
    """One processor with its own consumer and transactional producer. One thread calls it."""

    def __init__(
        self,
        processor: Processor,
        settings: RuntimeSettings,
        kafka: Kafka,
        stores: Stores,
        clock: Clock,
        health: Health,
    ) -> None:
        self._processor = processor
        self._settings = settings
        self._clock = clock
        self._health = health
        self._measures = health.measures
        self._wake = threading.Event()
        self._stopping = False
        self._aborted_in_a_row = 0
        self._plain_commit_at = 0.0
        self._counts: dict[str, int] = {}
        self._committed_at = 0
        self._reported: tuple[int, int, int] | None = None
        self._report_at = 0
        self._expecting = 0  # polls since something in flight last reported
        self._admin = kafka.admin()
        started = startup.start(processor, settings, kafka, self._admin)
        self._producer = started.producer
        self._consumer = started.consumer
        self._members = Membership(
            processor,
            settings,
            kafka,
            self._admin,
            self._consumer,
            stores,
            clock,
            started.partitions,
            self._wake,
            health.measures,
        )
        self._members.settle = self._settle
        self._processing = Processing(processor, settings, clock, self._members.corrupt)
        self._refusals = Refusals(self._processing, clock.monotonic, self._control)
        self._globals = GlobalTopics(
            started.global_counts,
            self._admin,
            lambda: kafka.reader(f"{settings.transactional_id(processor.name)}.globals"),
            processor.global_record,
            clock,
        )
        self._consumer.subscribe(processor.sources, self._members)
        health.update(started=True)

    # 1. Poll

    def step(self) -> None:
        """One cycle. Raises `RuntimeFault`; anything else that comes out is a bug."""
        self._poll()
        self._globals.poll()
        self._members.advance(may_go_live=self._globals.ready and not self._stopping)
        self._run(self._members.live)
        self._report()

    def _poll(self) -> None:
        self._pause_or_resume()
        waiting = sum(len(own.pending) for own in self._members.live if not own.paused)
        limit = max(1, self._settings.max_batch - waiting)
        owned = self._members.owned
        for item in self._consumer.poll(limit, self._poll_timeout(waiting)):
            own = owned.get(item.partition)
            if own is None or not own.live or own.leaving:
                continue
            if isinstance(item, (Record, End)):
                own.pending.append(item)
            elif item.lost:
                log.error("%s-%d: %s", item.topic, item.partition, item.detail)
                self._members.restart(own, wipe=False)  # which finds and names what is lost
            else:
                log.warning("%s-%d: %s", item.topic, item.partition, item.detail)

    def _poll_timeout(self, waiting: int) -> float:
        """Short while something may come from elsewhere: a poll can't be woken."""
        members = self._members
        if self._wake.is_set() or waiting or any(own.has_news for own in members.live):
            self._wake.clear()
            self._expecting = 0
            return 0
        if members.restoring or not self._globals.ready:
            return 0.002
        longest = self._settings.idle_poll_ms / 1000
        now = self._clock.now_ms()
        for own in members.live:
            if own.timers.asking:
                return 0.002
            if own.in_flight:  # its end comes from another thread; held records end without us
                self._expecting += 1
                longest = min(longest, 0.001 if self._expecting < 500 else 0.005)
            if own.timers.wake_at is not None and not own.leaving:
                longest = min(longest, max(own.timers.wake_at - now, 0) / 1000)
        return longest

    def _pause_or_resume(self) -> None:
        """A partition with too many unfinished records takes no more until half are done, and
        none does while the processor accepts nothing."""
        accepting = self._processor.accepting
        for own in self._members.live:
            span = own.span
            if not own.paused and (not accepting or span >= self._settings.max_unfinished):
                own.paused = True
                self._consumer.pause(own.spots())
            elif own.paused and accepting and span <= self._settings.max_unfinished // 2:
                own.paused = False
                self._consumer.resume(own.spots())

    def _run(self, owned: Sequence[OwnedPartition]) -> None:
        """Steps 2 to 5 for these partitions."""
        work = Work()
        began = self._clock.monotonic()
        try:
            self._processing.process(owned, work, timers=not self._stopping)
            if work.staged:
                changelog_offsets = self._commit(work)
                self._store(work, changelog_offsets)
            else:
                self._commit_plainly(owned)
        except Aborted as e:
            self._rewind(work, e)
            return
        self._aborted_in_a_row = 0
        if work.inputs:
            self._processing.one_by_one = False
        self._settled(work)
        for action in work.actions:  # 5. Act
            action()
        if work.inputs:
            self._measures.batch.observe(work.inputs)
            self._measures.cycle.observe(self._clock.monotonic() - began)

    # 3. Commit

    def _commit(self, work: Work) -> dict[OwnedPartition, int]:
        """The transaction. Returns the changelog's offset of each partition's last record."""
        producer = self._producer
        changelog = self._processor.changelog
        written: dict[OwnedPartition, int] = {}
        first = [own for own in work.staged if own.unwritten]
        for own in first:  # from this transaction on its state can be lost
            own.unwritten = False
        began = self._clock.monotonic()
        producer.begin()
        try:
            positions = {}
            for own in work.touched():
                positions.update(own.positions())
            for own in work.staged:
                for key, raw in own.state.overlay.raw.items():
                    producer.send(changelog, key, raw, (), own.partition)
                entry = own.stored_offsets()
                own.state.overlay.raw[OFFSETS_KEY] = entry
                # Last of the partition, hence with the highest offset: one answer tells all.
                producer.send(
                    changelog, OFFSETS_KEY, entry, (), own.partition, _noting(written, own)
                )
            for topic, at, value, headers, partition in work.outputs:
                producer.send(topic, at, value, headers, partition)
            producer.send_offsets(positions, self._consumer.membership())
            producer.commit()
            self._measures.transaction.observe(self._clock.monotonic() - began)
        except Aborted:
            for own in first:
                own.unwritten = True
            producer.abort()
            raise
        for own in work.touched():
            own.clean()
        return written

    def _commit_plainly(self, owned: Sequence[OwnedPartition]) -> None:
        """Positions that moved without anything staged. Waits for the answer: one under way
        could land after a later transaction's offsets and turn them back."""
        now = self._clock.monotonic()
        if now < self._plain_commit_at:
            return
        dirty = [own for own in owned if own.dirty]
        if not dirty:
            return
        self._plain_commit_at = now + self._settings.plain_commit_ms / 1000
        positions = {spot: at for own in dirty for spot, at in own.positions().items()}
        try:
            self._consumer.commit(positions)
        except (GroupFenced, Unanswered) as e:
            log.info("%s: offsets are committed later: %s", self._processor.name, e)
            return
        for own in dirty:
            own.clean()

    def _rewind(self, work: Work, reason: Aborted) -> None:
        """The cycle is void: its inputs are in front again, as if they had never been taken."""
        for own, taken in work.taken.items():
            if own.alive:
                own.pending.extendleft(reversed(taken.items))
                own.give_back(taken.events)
                own.announced = own.announced and not taken.announced
        for own in work.touched():
            if own.alive:
                own.state.drop_overlay()
                for offsets in own.offsets.values():
                    offsets.rewind()
        self._aborted_in_a_row += 1
        if not isinstance(reason, GroupFenced):
            self._refusals.aborted(work, reason, self._aborted_in_a_row)
        self._count({"aborts": 1})
        log.warning(
            "%s: transaction aborted, %d inputs are taken again: %s",
            self._processor.name,
            work.inputs,
            reason,
        )
        if self._aborted_in_a_row > 1:  # the first is most often a rebalance: no need to wait
            self._clock.wait(
                threading.Event(), min(0.02 * 2 ** min(self._aborted_in_a_row, 6), 1.0)
            )

    def _control(self, work: Work) -> bool:
        """A transaction over the same partitions and without the input that was refused."""
        control = Work()
        control.staged = {own: None for own in work.touched() if own.alive}
        if not control.staged:
            return False
        try:
            self._store(control, self._commit(control))
        except Aborted as e:
            log.info("%s: Kafka refuses others, too: %s", self._processor.name, e)
            return False
        return True

    # 4. Store

    def _store(self, work: Work, changelog_offsets: dict[OwnedPartition, int]) -> None:
        for own in work.staged:
            overlay = own.state.overlay
            try:
                own.state.store.write(
                    overlay.raw, self._members.written(own, changelog_offsets[own] + 1)
                )
            except StoreCorrupt as e:  # committed it is: the changelog has it all
                self._members.corrupt(own, e)
                continue
            own.timers.set(overlay.earliest_timer)
            own.state.committed()

    def _settled(self, work: Work) -> None:
        for own, taken in work.taken.items():
            for offsets in own.offsets.values():
                offsets.settle()
            if taken.timers_looked_at:
                own.timers.done(own.now, taken.timers_held_back)
        if work.staged:
            work.count("commits")
            self._committed_at = self._clock.now_ms()
        self._count(work.counts)
        if work.buried:
            self._measures.buried(work.buried)

    # Giving up

    def _settle(self, leaving: Sequence[OwnedPartition]) -> None:
        """Inside a revoke, the partitions still ours: let calls that write end, and commit them."""
        deadline = self._clock.monotonic() + self._settings.revoke_wait_ms / 1000
        while True:
            self._run([own for own in leaving if own.announced])
            busy = sum(own.in_flight for own in leaving)
            if not busy and not any(own.has_news for own in leaving):
                return
            if self._aborted_in_a_row > 3:  # not ours any more: the next owner settles it
                return
            if self._clock.monotonic() >= deadline:
                log.warning(
                    "%s: %d calls still run; the partition goes all the same",
                    self._processor.name,
                    busy,
                )
                return
            self._clock.wait(self._wake, 0.05)
            self._wake.clear()

    def begin_drain(self) -> None:
        """Take nothing new; completions of work in flight are still committed."""
        self._stopping = True
        for own in self._members.live:
            self._consumer.pause(own.spots())
            self._members.give_up(own)

    @property
    def in_flight(self) -> int:
        """Calls and held records whose end a drain waits for."""
        return sum(own.in_flight + own.unfinished + own.has_news for own in self._members.live)

    def close(self) -> None:
        """Leave the group, which commits the last offsets; state is already where it belongs."""
        try:
            self._consumer.close()
        finally:
            self._members.close()
            self._globals.close()
            self._producer.close()
            self._admin.close()

    def _count(self, counts: Mapping[str, int]) -> None:
        for what, n in counts.items():
            self._counts[what] = self._counts.get(what, 0) + n

    def _report(self) -> None:
        """To the health's readers: at most 20 times a second, or when partitions come and go."""
        members = self._members
        self._count({"cycles": 1})
        now = self._clock.now_ms()
        seen = (len(members.live), len(members.restoring), len(members.stopped))
        if seen == self._reported and now < self._report_at:
            return
        self._reported, self._report_at = seen, now + REPORT_MS
        counts, self._counts = self._counts, {}
        self._health.report(
            counts,
            live=tuple(sorted(own.partition for own in members.live)),
            restoring={p: r.doing for p, r in members.restoring.items()},
            stopped=dict(members.stopped),
            paused=tuple(own.partition for own in members.live if own.paused),
            last_cycle_at=now,
            last_commit_at=self._committed_at,
        )


def _noting(written: dict[OwnedPartition, int], own: OwnedPartition) -> Callable[[int], None]:
    def note(offset: int) -> None:
        written[own] = offset

    return note
