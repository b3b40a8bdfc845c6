"""The producing ports. What is sent waits in the client until it is put on the wire; how much of it
is there when the process dies is left to chance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from perdure.streams.runtime.errors import (
    Aborted,
    DoesNotFit,
    GroupFenced,
    ProducerFenced,
    Unanswered,
)
from perdure.streams.runtime.ports import Position, Spot
from perdure.streams.runtime.processor import Headers

from .consumers import Membership, refused_offsets
from .errors import Refused, TooLargeForTopic
from .log import size
from .transactions import Fenced

if TYPE_CHECKING:
    from .process import Process

CLIENT_MAX_BYTES = 4_300_000
_LINGER = 0.01
"""s within which a client sends by itself what it holds."""
_LATE = 1.0
"""s after its sender's death within which a request may still arrive."""


class Sent(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    told: Callable[..., None] | None


class SimulatedTransactionalProducer:
    def __init__(self, process: Process, transactional_id: str) -> None:
        self._process = process
        self._broker = process.broker
        self._id = transactional_id
        self._epoch = -1
        self._began = False
        self._known = False  # the coordinator has heard of this transaction
        self._fatal = ""
        self._void = ""  # why it can only be aborted
        self._does_not_fit = False  # that is why
        self._unsent: list[Sent] = []
        self._delivered: list[tuple[Callable[..., None], int]] = []

    def start(self) -> None:
        process = self._process
        process.enter("producer.start")

        def take() -> None:
            transactions = self._broker.transactions
            self._epoch = transactions.take(self._id, process.transaction_timeout)

        process.ask("producer.start", take, self._confirm)

    def begin(self) -> None:
        self._process.enter("producer.begin")
        self._raise_fatal("begin")
        if self._began:
            raise Aborted(f"begin of {self._id}: a transaction is open")
        self._began, self._known, self._void = True, False, ""
        self._does_not_fit = False
        self._process.leave("producer.begin")

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        process = self._process
        process.enter("producer.send")
        self._raise_fatal("send")
        if not self._began or self._void:
            raise Aborted(f"send of {self._id}: no transaction to send in: {self._void}")
        if size(key, value, headers) > CLIENT_MAX_BYTES:
            raise DoesNotFit(f"send of {self._id}: MSG_SIZE_TOO_LARGE to {topic}")
        timestamp = self._broker.clock.now_ms()
        kept = tuple(headers)
        self._unsent.append(Sent(topic, partition, key, value, kept, timestamp, delivered))
        rng = self._broker.random
        if rng is not None and rng.random() < 0.7:
            if len(self._unsent) == 1:
                self._broker.after(_LINGER, self._push_unasked)
        elif process.reachable:
            self._push()
        process.leave("producer.send")

    def send_offsets(self, positions: Mapping[Spot, Position], membership: object) -> None:
        process = self._process
        process.enter("producer.send_offsets")
        assert isinstance(membership, Membership)

        def add() -> None:
            self._raise_broken("send_offsets")
            broker = self._broker
            group = broker.group(membership.group)
            error = refused_offsets(broker, positions)
            if error:
                self._void = error
                raise Aborted(f"send_offsets of {self._id}: {error}")
            try:
                broker.transactions.check(self._id, self._epoch)
                group.check(membership.member, membership.epoch, positions)
                self._known = True
                broker.transactions.add_offsets(self._id, self._epoch, group, positions)
            except GroupFenced as e:
                self._void = str(e)
                raise GroupFenced(f"send_offsets of {self._id}: {e}") from e
            except Fenced as e:
                raise self._fenced("send_offsets", e) from e

        process.ask("producer.send_offsets", add, self._confirm)

    def commit(self) -> None:
        process = self._process
        process.enter("producer.commit")

        def commit() -> None:
            if not self._began:
                raise Aborted(f"commit of {self._id}: no transaction is open")
            self._push()
            self._raise_broken("commit")
            for delivered, offset in self._delivered:
                delivered(offset)
            self._end(commit=True)

        process.ask("producer.commit", commit, self._confirm)

    def abort(self) -> None:
        process = self._process
        process.enter("producer.abort")

        def abort() -> None:
            self._raise_fatal("abort")
            self._end(commit=False)

        process.ask("producer.abort", abort, self._confirm)

    def close(self) -> None:
        """What is open stays open until the broker's patience ends, or the id is taken again."""
        if self._process.alive:
            self._process.enter("producer.close")
            self._unsent.clear()
            self._process.leave("producer.close")

    # what is in the client

    def killed(self) -> None:
        """Some of what was on its way may arrive all the same, now or in a moment."""
        rng = self._broker.random
        if rng is None or not self._unsent or not self._began:
            return
        del self._unsent[rng.randint(0, len(self._unsent)) :]
        broker = self._broker
        late = 0.0 if rng.random() < 0.5 else rng.uniform(0, _LATE)
        broker.at(broker.now() + late, self._push)

    def commits_late(self, seconds: float) -> None:
        """The commit is on its way and arrives whatever becomes of the process. A client sends it
        once all records are acknowledged, so they are there."""
        broker = self._broker
        self._push()

        def commit() -> None:
            if not self._fatal and not self._void and self._began:
                try:
                    self._end(commit=True)
                except ProducerFenced as e:
                    self._fatal = str(e)

        broker.at(broker.now() + seconds, commit)

    def _push_unasked(self) -> None:
        if self._process.alive and not self._process.stopped and self._process.reachable:
            self._push()

    def _push(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not unsent:
            return
        broker = self._broker
        for sent in unsent:
            if self._void or self._fatal:
                return
            try:
                if sent.topic in broker.sick:
                    raise Refused(f"{sent.topic}: NOT_ENOUGH_REPLICAS")
                log = broker.place(sent.topic, sent.partition, sent.key, sent.value, sent.headers)
                self._known = True
                offset = broker.transactions.append(
                    self._id, self._epoch, log, broker.stamp(sent.topic, sent.timestamp),
                    sent.key, sent.value, sent.headers,
                )  # fmt: skip
            except Refused as e:
                self._void = f"not delivered to {e}"
                self._does_not_fit = isinstance(e, TooLargeForTopic)
            except Fenced as e:
                self._fatal = str(e)
            else:
                if sent.told is not None:
                    self._delivered.append((sent.told, offset))

    def _end(self, *, commit: bool) -> None:
        if self._known:
            try:
                self._broker.transactions.end(self._id, self._epoch, commit)
            except Fenced as e:
                raise self._fenced("commit" if commit else "abort", e) from e
        self._began, self._void = False, ""
        self._unsent.clear()
        self._delivered.clear()

    def _confirm(self) -> None:
        """The same request again: it is answered as before, unless the id was taken meanwhile."""
        try:
            self._broker.transactions.check(self._id, self._epoch)
        except Fenced as e:
            raise self._fenced("the repeated request", e) from e

    def _raise_broken(self, what: str) -> None:
        self._raise_fatal(what)
        if self._void:
            why = DoesNotFit if self._does_not_fit else Aborted
            raise why(f"{what} of {self._id}: {self._void}")

    def _raise_fatal(self, what: str) -> None:
        if self._fatal:
            raise ProducerFenced(f"{what} of {self._id}: {self._fatal}")

    def _fenced(self, what: str, e: Fenced) -> ProducerFenced:
        self._fatal = str(e)
        return ProducerFenced(f"{what} of {self._id}: {e}")


class SimulatedPlainProducer:
    """Answers come from `serve`, as in the real port from a thread of its own."""

    def __init__(self, process: Process, client_id: str) -> None:
        self._process = process
        self._broker = process.broker
        self._unsent: deque[Sent] = deque()
        self._unanswered: deque[tuple[Sent, Exception | None]] = deque()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        self._process.enter("plain.send")
        if size(key, value, headers) > CLIENT_MAX_BYTES:
            raise Unanswered(f"send: MSG_SIZE_TOO_LARGE to {topic}")
        timestamp = self._broker.clock.now_ms()
        self._unsent.append(Sent(topic, partition, key, value, tuple(headers), timestamp, done))
        self._process.leave("plain.send")

    def flush(self, timeout: float) -> int:
        process = self._process
        process.enter("plain.flush")
        if process.reachable:
            self._arrive(len(self._unsent))
            self._answer(len(self._unanswered))
        left = len(self._unsent) + len(self._unanswered)
        process.leave("plain.flush")
        return left

    def close(self) -> None:
        if self._process.alive:
            self._process.enter("plain.close")
            self._unsent.clear()
            self._unanswered.clear()
            self._process.leave("plain.close")

    def serve(self) -> None:
        """A moment passes: something arrives, something is answered."""
        rng = self._broker.random
        if self._unsent:
            n = len(self._unsent)
            self._arrive(n if rng is None else rng.randint(0, n))
        if self._unanswered:
            n = len(self._unanswered)
            self._answer(n if rng is None else rng.randint(0, n))

    def killed(self) -> None:
        rng = self._broker.random
        if rng is None or not self._unsent:
            return
        n = rng.randint(0, len(self._unsent))
        broker = self._broker
        late = 0.0 if rng.random() < 0.5 else rng.uniform(0, _LATE)
        broker.at(broker.now() + late, lambda: self._arrive(n))

    def _arrive(self, n: int) -> None:
        for _ in range(n):
            sent = self._unsent.popleft()
            error: Exception | None = None
            try:
                self._broker.put(
                    sent.topic, sent.key, sent.value, sent.headers, sent.partition, sent.timestamp
                )
            except Refused as e:
                error = Unanswered(f"not delivered to {e}")
            self._unanswered.append((sent, error))

    def _answer(self, n: int) -> None:
        for _ in range(n):
            sent, error = self._unanswered.popleft()
            if sent.told is not None:
                sent.told(error)
