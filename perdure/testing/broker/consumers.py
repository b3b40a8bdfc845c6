"""The consuming ports: what is fetched, and the member's side of the group's decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.ports import Listener, Polled, Position, Spot

from .fetching import Fetcher
from .groups import MAX_METADATA, Member

if TYPE_CHECKING:
    from .broker import Broker
    from .process import Process

_COMMIT_TIMEOUT = 10.0


class Membership(NamedTuple):
    """What `GroupConsumer.membership` gives: the epoch as it was then."""

    group: str
    member: str
    epoch: int


class SimulatedReader:
    def __init__(self, process: Process, client_id: str) -> None:
        self._process = process
        self._fetcher = Fetcher(process.broker)

    def add(self, spot: Spot, offset: int) -> None:
        self._process.enter("reader.add")
        self._fetcher.add(spot, offset, False)
        self._process.leave("reader.add")

    def remove(self, spot: Spot) -> None:
        self._process.enter("reader.remove")
        self._fetcher.remove(spot)
        self._process.leave("reader.remove")

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        process = self._process
        process.enter("reader.poll")
        polled = self._fetcher.take(limit) if process.reachable else []
        process.leave("reader.poll")
        return polled

    def close(self) -> None:
        if self._process.alive:
            self._process.enter("reader.close")
            self._fetcher = Fetcher(self._process.broker)
            self._process.leave("reader.close")


class SimulatedGroupConsumer:
    """``member`` is what the coordinator knows of us; ``_owned`` what the listener was told."""

    def __init__(self, process: Process, group: str, client_id: str) -> None:
        self._process = process
        self._broker = process.broker
        self.group = self._broker.group(group)
        self._fetcher = Fetcher(self._broker)
        self._id = self._broker.new_id("member")
        self._topics: tuple[str, ...] = ()
        self._listener: Listener | None = None
        self._owned: set[Spot] = set()
        self._raised: Exception | None = None
        self._closed = False
        self._answer_due = False  # what follows a revocation is told, though it be nothing
        self._stale: list[Spot] = []  # lost, and named once more after the return
        self.member: Member | None = None

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._process.enter("consumer.subscribe")
        self._topics, self._listener = tuple(topics), listener
        self._join()
        self._process.leave("consumer.subscribe")

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        process = self._process
        process.enter("consumer.poll")
        polled: list[Polled] = []
        if process.reachable:
            member = self.member
            if (
                member is None
                or member.gone
                or member.giving_up
                or member.granted.keys() != self._owned
            ):
                self._follow()
                self._reraise()
            polled = self._fetcher.take(limit)
        process.leave("consumer.poll")
        return polled

    def pause(self, spots: Sequence[Spot]) -> None:
        self._process.enter("consumer.pause")
        self._fetcher.pause(spots)
        self._process.leave("consumer.pause")

    def resume(self, spots: Sequence[Spot]) -> None:
        self._process.enter("consumer.resume")
        self._fetcher.resume(spots)
        self._process.leave("consumer.resume")

    def start(self, positions: Mapping[Spot, int]) -> None:
        self._process.enter("consumer.start")
        for spot, position in positions.items():
            if spot not in self._fetcher:
                raise Unanswered(f"seek: {spot.topic}-{spot.partition} is not assigned")
            self._fetcher.start(spot, position)
        self._process.leave("consumer.start")

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        process = self._process
        process.enter("consumer.commit")
        if not process.reachable:
            process.wait(_COMMIT_TIMEOUT)
            if not process.reachable:
                raise Unanswered("commit: Kafka does not answer")
        membership = self._membership()
        self.group.check(membership.member, membership.epoch, positions)
        error = refused_offsets(self._broker, positions)
        if error:
            raise Unanswered(error)
        self.group.commit(positions)
        process.leave("consumer.commit")
        if not process.reachable:
            process.wait(_COMMIT_TIMEOUT)
            raise Unanswered("commit: Kafka does not answer")

    def membership(self) -> object:
        self._process.enter("consumer.membership")
        membership = self._membership()
        self._process.leave("consumer.membership")
        return membership

    def close(self) -> None:
        process = self._process
        if self._closed or not process.alive:
            return
        process.enter("consumer.close")
        self._closed = True
        member = self.member
        if member is not None and self._listener is not None and self._owned:
            gone = member.gone
            self._tell(self._listener.lost if gone else self._listener.revoked, self._owned)
        if member is not None and process.reachable:
            self.group.expel(member)
        process.consumers.remove(self)
        process.leave("consumer.close")
        self._reraise()

    # the member's side

    def silence(self, silent: bool) -> None:
        """Heartbeats cease, or go on."""
        member = self.member
        if member is None or member.gone or member.silent == silent:
            return
        if not silent:
            self.group.speaks_again(member)
            return
        member.silent = True
        rng, beat = self._broker.random, self.group.heartbeat
        self._expel_in(member, self.group.session - (rng.uniform(0, beat) if rng else 0.0))

    def renew(self) -> None:
        """The coordinator has started anew: who is silent has a whole session again."""
        if self.member is not None and self.member.silent and not self.member.gone:
            self._expel_in(self.member, self.group.session)

    def _expel_in(self, member: Member, seconds: float) -> None:
        member.beats += 1
        beats, broker = member.beats, self._broker

        def over() -> None:
            if member.beats == beats:
                self.group.expel(member)

        broker.at(broker.now() + seconds, over)

    def _membership(self) -> Membership:
        member = self.member
        return Membership(self.group.name, self._id, -1 if member is None else member.epoch)

    def _join(self) -> None:
        if self._topics and self._process.reachable and not self._closed:
            self.member = self.group.join(self._id, self._topics)

    def _follow(self) -> None:
        """Inside a poll: bring what we own to what the coordinator has told us."""
        listener = self._listener
        if listener is None:
            return
        while True:
            member = self.member
            if member is None or member.gone:
                if self._owned:
                    if self._broker.random is not None and self._broker.random.random() < 0.3:
                        self._stale = sorted(self._owned)
                    self._tell(listener.lost, self._owned)
                self._join()
                if self.member is None or self.member.gone:
                    return
                continue
            going = self._owned - member.granted.keys()
            if going:
                self._tell(listener.revoked, going)
            if member.giving_up:
                self.group.acknowledge(member)
                self._answer_due = True
                continue
            if self._stale:
                stale, self._stale = self._stale, []
                self._guarded(listener.revoked, stale)
            coming = sorted(member.granted.keys() - self._owned)
            if not coming:
                if self._answer_due and member.epoch == self.group.epoch:
                    self._answer_due = False
                    self._guarded(listener.assigned, [])
                return
            self._answer_due = False
            rng = self._broker.random
            if rng is not None and rng.random() < 0.1:  # the rest is told by a later poll
                coming = coming[: rng.randint(1, len(coming))]
            for spot in coming:
                self._fetcher.placeholder(spot)
                self._owned.add(spot)
            self._guarded(listener.assigned, coming)
            if rng is not None:
                return

    def _tell(self, what: Callable[[Sequence[Spot]], None], spots: set[Spot]) -> None:
        named = sorted(spots)
        self._guarded(what, named)
        for spot in named:
            self._fetcher.remove(spot)
            self._owned.discard(spot)

    def _guarded(self, call: Callable[[Sequence[Spot]], None], spots: Sequence[Spot]) -> None:
        """As in the real client a listener's error comes out of the poll once all is told.
        What is no `Exception` is the simulation's own crash: nothing happens after it."""
        try:
            call(spots)
        except Exception as e:
            self._raised = self._raised or e

    def _reraise(self) -> None:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised


def refused_offsets(broker: Broker, positions: Mapping[Spot, Position]) -> str:
    """Why the coordinator does not take these; empty if it does."""
    for spot, position in positions.items():
        if len(position.metadata.encode()) > MAX_METADATA:
            return f"OFFSET_METADATA_TOO_LARGE: {spot.topic}-{spot.partition}"
        if broker.log(spot) is None:
            return f"UNKNOWN_TOPIC_OR_PART: {spot.topic}-{spot.partition}"
    return ""
