"""The group coordinator: KIP-848 with the server-side ``range`` assignor.

Theory of operation. Whenever members or topics change, the group's epoch rises and a new target
is computed. A member is brought to its target by its heartbeats, which go on in the background as
long as its process lives: first it is told what to give up and keeps its old epoch until it has
(`acknowledge`); then it gets what is free of its target, and the new epoch. A partition is free
once its former holder has acknowledged or is out of the group. What a member has been told it acts
on in its next poll (`consumers.py`). Epochs guard commits: one older than the member's is good
only for partitions that were the member's at that epoch; the member's own is good for any.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Protocol

from perdure.streams.runtime.errors import GroupFenced
from perdure.streams.runtime.ports import Position, Spot

MAX_METADATA = 4_096


class Topics(Protocol):
    def partition_count(self, topic: str) -> int: ...

    def after(self, most: float, call: Callable[[], None]) -> None: ...

    def changed(self) -> None:
        """A member has been told something."""


class Member:
    """One member as the coordinator knows it; ``gone`` once it is out."""

    __slots__ = ("beats", "epoch", "giving_up", "gone", "granted", "id", "silent", "topics")

    def __init__(self, member_id: str, topics: tuple[str, ...]) -> None:
        self.id = member_id
        self.topics = topics
        self.epoch = 0
        self.granted: dict[Spot, int] = {}  # since which epoch
        self.giving_up: dict[Spot, int] = {}
        self.gone = False
        self.silent = False  # its process is dead, stopped or cut off: no heartbeats
        self.beats = 0  # raised when it falls silent, so that an old deadline means nothing


class Group:
    __slots__ = (
        "_broker", "_holder", "_target", "_turn", "_written", "epoch", "heartbeat", "members",
        "name", "offsets", "pending", "session",
    )  # fmt: skip

    def __init__(self, name: str, broker: Topics, session: float, heartbeat: float) -> None:
        self.name = name
        self.session = session
        self.heartbeat = heartbeat
        self.epoch = 0
        self.members: dict[str, Member] = {}
        self.offsets: dict[Spot, Position] = {}
        self.pending: dict[Hashable, dict[Spot, Position]] = {}
        self._turn = 0
        self._written: dict[tuple[Hashable, Spot], int] = {}  # None: the committed one's turn
        self._broker = broker
        self._target: dict[str, set[Spot]] = {}
        self._holder: dict[Spot, Member] = {}

    # members

    def join(self, member_id: str, topics: tuple[str, ...]) -> Member:
        member = Member(member_id, topics)
        self.members[member_id] = member
        self.rebalance(first=member)
        return member

    def expel(self, member: Member) -> None:
        """It left, or its session is over: what it held is free at once."""
        if member.gone:
            return
        member.gone = True
        self._broker.changed()
        self.members.pop(member.id, None)
        self._free(member.granted)
        self._free(member.giving_up)
        member.granted = {}
        member.giving_up = {}
        self.rebalance()

    def rebalance(self, first: Member | None = None) -> None:
        """``first`` joins with a heartbeat of its own; the others hear of it with their next."""
        self.epoch += 1
        self._target = self._range()
        if first is not None:
            self._beat(first)
        self._beat_all()

    def forget_topic(self, topic: str) -> None:
        """Deleted: its partitions are nobody's, its offsets are gone."""
        for spots in (self.offsets, *self.pending.values()):
            for spot in [s for s in spots if s.topic == topic]:
                del spots[spot]
        if any(topic in member.topics for member in self.members.values()):
            self.rebalance()

    def wants(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def acknowledge(self, member: Member) -> None:
        """What it was told to give up it has given up."""
        if member.gone or not member.giving_up:
            return
        self._free(member.giving_up)
        member.giving_up = {}
        self._beat(member)
        self._beat_all()

    def unsettled(self, member: Member) -> bool:
        return not member.gone and (
            member.epoch != self.epoch
            or member.granted.keys() != self._target.get(member.id, set())
        )

    def _beat_all(self) -> None:
        for member in list(self.members.values()):
            if self.unsettled(member):
                self._broker.after(self.heartbeat, lambda member=member: self._beat(member))  # type: ignore[misc]

    def _beat(self, member: Member) -> None:
        """A heartbeat of a live process."""
        if member.gone or member.silent or member.giving_up or not self.unsettled(member):
            return
        self._broker.changed()
        target = self._target.get(member.id, set())
        kept = {s: e for s, e in member.granted.items() if s in target}
        if len(kept) != len(member.granted):
            member.giving_up = {s: e for s, e in member.granted.items() if s not in target}
            member.granted = kept
            return
        member.epoch = self.epoch
        for spot in sorted(target):
            if spot not in self._holder:
                self._holder[spot] = member
                member.granted[spot] = self.epoch

    def speaks_again(self, member: Member) -> None:
        member.silent = False
        member.beats += 1
        self._beat(member)

    def _free(self, spots: Iterable[Spot]) -> None:
        for spot in spots:
            self._holder.pop(spot, None)

    def _range(self) -> dict[str, set[Spot]]:
        target: dict[str, set[Spot]] = {m: set() for m in self.members}
        for topic in sorted({t for m in self.members.values() for t in m.topics}):
            count = self._broker.partition_count(topic)
            takers = sorted(m.id for m in self.members.values() if topic in m.topics)
            each, more = divmod(count, len(takers))
            first = 0
            for i, taker in enumerate(takers):
                last = first + each + (i < more)
                target[taker].update(Spot(topic, p) for p in range(first, last))
                first = last
        return target

    # offsets

    def check(self, member_id: str, epoch: int, spots: Iterable[Spot]) -> None:
        """Raises `GroupFenced`. Membership is checked; ownership only for an older epoch."""
        member = self.members.get(member_id)
        if member is None:
            raise GroupFenced(f"{self.name}: UNKNOWN_MEMBER_ID: {member_id} is no member")
        if epoch == member.epoch:
            return
        for spot in spots:
            since = member.granted.get(spot, member.giving_up.get(spot))
            if epoch > member.epoch or since is None or since > epoch:
                raise GroupFenced(
                    f"{self.name}: STALE_MEMBER_EPOCH: {epoch} of {member_id}, which is at {member.epoch}"
                )

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        self._turn += 1
        for spot, position in positions.items():
            self._put(spot, position, self._turn)

    def pend(self, transaction: Hashable, positions: Mapping[Spot, Position]) -> None:
        self._turn += 1
        pending = self.pending.setdefault(transaction, {})
        for spot, position in positions.items():
            pending[spot] = position
            self._written[transaction, spot] = self._turn

    def settle(self, transaction: Hashable, committed: bool) -> None:
        """An offset sent before one that is committed meanwhile does not replace it."""
        for spot, position in self.pending.pop(transaction, {}).items():
            turn = self._written.pop((transaction, spot))
            if committed and turn > self._written.get((None, spot), 0):
                self._put(spot, position, turn)

    def _put(self, spot: Spot, position: Position, turn: int) -> None:
        self.offsets[spot] = position
        self._written[None, spot] = turn

    def stable(self, spots: Iterable[Spot]) -> bool:
        return not self.pending or not any(
            spot in positions for positions in self.pending.values() for spot in spots
        )
