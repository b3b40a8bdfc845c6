"""Which partitions are ours: told by the group inside polls, acted on between them.

A partition is taken over once *all* its inputs are assigned, and given up with the first that
goes. Going live begins with a plain commit of the unchanged offsets that carries our
transactional id: whoever takes over after our death finds the id beside the last stable offset,
and can abort what we left open (see `restore.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from .assignment import OwnedPartition, Phase
from .clock import Clock
from .errors import GroupFenced, StoreCorrupt, TopicMismatch, Unanswered
from .measures import RuntimeMeasures
from .offsets import InputOffsets
from .overlay import PartitionState
from .ports import Admin, Answer, GroupConsumer, Kafka, Polled, Reader, Spot
from .processor import Processor
from .restore import SLICE_RECORDS, Restoration, Stopped
from .settings import RuntimeSettings
from .store import StoreMeta, Stores
from .timers import PREFIX, Timers

log = logging.getLogger(__name__)


class Membership:
    """The group's `Listener`. Truth owned here: the `OwnedPartition` of each partition."""

    def __init__(
        self,
        processor: Processor,
        settings: RuntimeSettings,
        kafka: Kafka,
        admin: Admin,
        consumer: GroupConsumer,
        stores: Stores,
        clock: Clock,
        partitions: int,
        wake: threading.Event,
        measures: RuntimeMeasures,
    ) -> None:
        self._measures = measures
        self._processor = processor
        self._settings = settings
        self._kafka = kafka
        self._admin = admin
        self._consumer = consumer
        self._stores = stores
        self._clock = clock
        self._partitions = partitions
        self._wake = wake
        self._owner = settings.transactional_id(processor.name)
        self._group = settings.group(processor.name)
        self._assigned: dict[int, set[str]] = {}
        self._restoring: dict[int, Restoration] = {}
        self._reader: Reader | None = None
        self._changelog_ids: dict[int, str] = {}
        self.owned: dict[int, OwnedPartition] = {}
        self.stopped: dict[int, str] = {}
        self.settle: Callable[[Sequence[OwnedPartition]], None] = lambda leaving: (
            None
        )  # set by the cycle

    # told by the group

    def assigned(self, spots: Sequence[Spot]) -> None:
        log.info("%s: assigned %s", self._processor.name, _named(spots))
        for spot in spots:
            if spot.partition >= self._partitions:
                raise TopicMismatch(
                    f"{spot.topic} has more partitions than the {self._partitions} it had at the start. "
                    "Partitions are fixed for the life of a topic_prefix"
                )
            self._assigned.setdefault(spot.partition, set()).add(spot.topic)

    def revoked(self, spots: Sequence[Spot]) -> None:
        log.info("%s: revoked %s", self._processor.name, _named(spots))
        leaving = self._going(spots)
        for own in leaving:
            self.give_up(own)
        live = [own for own in leaving if own.phase is Phase.LIVE]
        self.settle(live)
        self._commit_last(live)
        self._forget(spots, leaving)

    def give_up(self, own: OwnedPartition) -> None:
        """Start nothing more for it; it stays ours until what writes has ended."""
        if not own.leaving:
            own.leave()
            if own.phase is Phase.LIVE:
                self._processor.revoked(own)

    def lost(self, spots: Sequence[Spot]) -> None:
        log.warning("%s: lost %s", self._processor.name, _named(spots))
        leaving = self._going(spots)
        for own in leaving:
            own.die()
            if own.phase is Phase.LIVE:
                self._processor.revoked(own)
        self._forget(spots, leaving)

    def _going(self, spots: Sequence[Spot]) -> list[OwnedPartition]:
        """A list may name what we don't hold (measured after an expulsion): nothing goes then."""
        gone = {s.partition for s in spots if s.topic in self._assigned.get(s.partition, ())}
        return [self.owned[p] for p in sorted(gone) if p in self.owned]

    def _commit_last(self, leaving: Sequence[OwnedPartition]) -> None:
        positions = {
            spot: at for own in leaving if own.dirty for spot, at in own.positions().items()
        }
        if not positions:
            return
        try:
            self._consumer.commit(positions)
        except (GroupFenced, Unanswered) as e:
            log.info(
                "%s: last offsets not committed, the next owner takes these records again: %s",
                self._processor.name,
                e,
            )

    def _forget(self, spots: Sequence[Spot], leaving: Iterable[OwnedPartition]) -> None:
        for own in leaving:
            self._drop(own)
        for spot in spots:
            topics = self._assigned.get(spot.partition)
            if topics is not None:
                topics.discard(spot.topic)
                self.stopped.pop(spot.partition, None)
                if not topics:
                    del self._assigned[spot.partition]

    def _drop(self, own: OwnedPartition) -> None:
        own.die()
        self.owned.pop(own.partition, None)
        restoration = self._restoring.pop(own.partition, None)
        if restoration is not None:
            restoration.close()
        elif own.phase is Phase.LIVE:
            own.state.store.close()

    # acted on between polls

    @property
    def restoring(self) -> Mapping[int, Restoration]:
        return self._restoring

    @property
    def live(self) -> list[OwnedPartition]:
        return [own for own in self.owned.values() if own.phase is Phase.LIVE]

    def advance(self, may_go_live: bool) -> None:
        """Take over what is complete, restore a slice of it, let the ready ones go live."""
        for partition, topics in self._assigned.items():
            if partition not in self.owned and len(topics) == len(self._processor.sources):
                self._take_over(partition)
        if not self._restoring:
            return
        self._read_slice()
        for restoration in list(self._restoring.values()):
            try:
                restoration.advance()
                if restoration.ready and may_go_live:
                    self._go_live(restoration)
            except Stopped as e:
                self._stop(restoration.own, str(e))
            except StoreCorrupt as e:
                self.corrupt(restoration.own, e)

    def restart(self, own: OwnedPartition, wipe: bool) -> None:
        """Take the partition over anew: its store is corrupt, or its position is gone."""
        own.die()
        if own.phase is Phase.LIVE:
            self._processor.revoked(own)
            self._consumer.pause(own.spots())
        self._drop(own)
        if wipe:
            self._stores.wipe(own.partition)

    def _take_over(self, partition: int) -> None:
        if self._reader is None:
            self._reader = self._kafka.reader(f"{self._owner}.restore")
        own = OwnedPartition(
            partition, self._partitions, self._processor.sources, self._owner, self._wake
        )
        self.owned[partition] = own
        self._restoring[partition] = Restoration(
            own, self._processor.changelog, self._group, self._owner, self._settings,
            self._kafka, self._admin, self._reader, self._stores, self._clock,
        )  # fmt: skip

    def _read_slice(self) -> None:
        assert self._reader is not None
        by_partition: dict[int, list[Polled]] = {}
        for item in self._reader.poll(SLICE_RECORDS, 0):
            by_partition.setdefault(item.partition, []).append(item)
        for partition, batch in by_partition.items():
            restoration = self._restoring.get(partition)
            if restoration is not None:
                try:
                    restoration.take(batch)
                except Stopped as e:
                    self._stop(restoration.own, str(e))
                except StoreCorrupt as e:
                    self.corrupt(restoration.own, e)

    def corrupt(self, own: OwnedPartition, error: StoreCorrupt) -> None:
        """Whenever it is noticed: the store is a cache of the changelog, so it is made anew."""
        log.error(
            "%s: partition %d: the store is corrupt, it is restored anew: %s",
            self._processor.name,
            own.partition,
            error,
        )
        self.restart(own, wipe=True)

    def _stop(self, own: OwnedPartition, reason: str) -> None:
        log.error("%s: partition %d stops: %s", self._processor.name, own.partition, reason)
        self._restoring.pop(own.partition).close()
        own.phase = Phase.STOPPED
        self.stopped[own.partition] = reason

    def _go_live(self, restoration: Restoration) -> None:
        own = restoration.own
        own.offsets = {t: InputOffsets(at, done) for t, (at, done) in restoration.starts.items()}
        try:
            self._consumer.commit(own.positions())
            self._consumer.start(
                {Spot(t, own.partition): at for t, (at, _) in restoration.starts.items()}
            )
        except (GroupFenced, Unanswered) as e:
            log.info(
                "%s: partition %d can't go live yet: %s", self._processor.name, own.partition, e
            )
            return
        store = restoration.store
        assert store is not None
        del self._restoring[own.partition]
        own.state = PartitionState(store, self._processor.decode, self._settings.cache_bytes)
        spots, admin = own.spots(), self._admin

        def ends() -> Answer[Mapping[Spot, int]]:
            return admin.ends(spots)

        own.timers = Timers(lambda start: (key for key, _ in store.scan(PREFIX, start)), ends)
        own.now = max(own.now, self._clock.now_ms())
        own.live_since = own.now
        own.phase = Phase.LIVE
        self._changelog_ids[own.partition] = restoration.topic_id
        self._measures.takeover.observe(self._clock.monotonic() - restoration.began)
        self._measures.restored.add(n=restoration.restored)
        times = ", ".join(f"{what} {s:.2f}" for what, s in restoration.took.items())
        log.info(
            "%s: partition %d is live at changelog offset %d (seconds: %s)",
            self._processor.name,
            own.partition,
            restoration.position,
            times,
        )

    def written(self, own: OwnedPartition, changelog_offset: int) -> StoreMeta:
        return StoreMeta(changelog_offset, self._changelog_ids[own.partition], self._clock.now_ms())

    def close(self) -> None:
        for own in list(self.owned.values()):
            self._drop(own)
        if self._reader is not None:
            self._reader.close()


def _named(spots: Sequence[Spot]) -> str:
    return ", ".join(f"{t}-{p}" for t, p in sorted(spots)) or "nothing"
