"""The transaction coordinator: who holds a transactional id, and what it has open.

An id has an epoch; every request names the epoch its sender got at `take`. Taking the id again
raises it, which fences the former holder for good, and aborts what it had open. A decided
transaction writes one marker for each partition and group it touched; they arrive one by one,
each at a moment of its own, at the latest before the same id is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from perdure.streams.runtime.ports import Position, Spot

from .groups import Group
from .log import ABORTED, COMMITTED, Entry, Log


class Fenced(Exception):
    """The sender's epoch is not the id's any more."""


class Later(Protocol):
    """What a coordinator needs of the broker it runs on."""

    def at(self, due: float, call: Callable[[], None]) -> None: ...

    def after(self, most: float, call: Callable[[], None]) -> None:
        """Within ``most`` seconds, as chance has it; at once where there is none."""

    def now(self) -> float: ...

    def changed(self) -> None: ...


class Transaction:
    """One transaction. Hashed by identity: it is the key of what it has open in logs and groups."""

    __slots__ = ("groups", "id", "logs", "unmarked")

    def __init__(self, transactional_id: str) -> None:
        self.id = transactional_id
        self.logs: dict[Log, list[Entry]] = {}
        self.groups: list[Group] = []
        self.unmarked: list[Callable[[], None]] = []


class Identity:
    """A transactional id as the coordinator knows it."""

    __slots__ = ("completing", "current", "epoch", "name", "outcome", "timeout")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = -1
        self.timeout = 10.0
        self.current: Transaction | None = None
        self.completing: Transaction | None = None  # decided, markers on their way
        self.outcome: tuple[int, bool] | None = None  # of the last: epoch, committed


class Transactions:
    MARKERS = 0.02
    """s within which all markers of a transaction are written."""
    CLEANUP = 1.0
    """s between two looks for transactions that are open too long."""

    def __init__(self, broker: Later) -> None:
        self._broker = broker
        self._ids: dict[str, Identity] = {}

    def take(self, name: str, timeout: float) -> int:
        """The new epoch."""
        identity = self._ids.get(name)
        if identity is None:
            identity = self._ids[name] = Identity(name)
        identity.epoch += 1
        identity.timeout = timeout
        if identity.current is not None:
            self._decide(identity, ABORTED)
        self._complete(identity)
        return identity.epoch

    def open(self, name: str) -> bool:
        identity = self._ids.get(name)
        return identity is not None and identity.current is not None

    def check(self, name: str, epoch: int) -> Identity:
        identity = self._ids[name]
        if identity.epoch != epoch:
            raise Fenced(f"{name} was taken by another producer, or its transaction timed out")
        return identity

    def append(
        self,
        name: str,
        epoch: int,
        log: Log,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: object,
    ) -> int:
        transaction = self._joined(self.check(name, epoch))
        entry = log.append(timestamp, key, value, headers, transaction)  # type: ignore[arg-type]
        entries = transaction.logs.get(log)
        if entries is None:
            transaction.logs[log] = [entry]
        else:
            entries.append(entry)
        self._broker.changed()
        return entry.offset

    def add_offsets(
        self, name: str, epoch: int, group: Group, positions: Mapping[Spot, Position]
    ) -> None:
        """Pending, hence unstable, until the transaction is decided."""
        transaction = self._joined(self.check(name, epoch))
        if group not in transaction.groups:
            transaction.groups.append(group)
        group.pend(transaction, positions)

    def end(self, name: str, epoch: int, commit: bool) -> None:
        identity = self.check(name, epoch)
        if identity.current is not None:
            self._decide(identity, COMMITTED if commit else ABORTED)

    def _joined(self, identity: Identity) -> Transaction:
        """Its transaction, begun with the first thing that belongs to it."""
        transaction = identity.current
        if transaction is None:
            self._complete(identity)
            transaction = identity.current = Transaction(identity.name)
            begun = transaction
            broker = self._broker
            broker.at(broker.now() + identity.timeout, lambda: self._too_long(identity, begun))
        return transaction

    def _too_long(self, identity: Identity, transaction: Transaction) -> None:
        def abort() -> None:
            if identity.current is transaction:
                identity.epoch += 1
                self._decide(identity, ABORTED)

        if identity.current is transaction:
            self._broker.after(self.CLEANUP, abort)

    def _decide(self, identity: Identity, state: int) -> None:
        self._complete(identity)
        transaction = identity.current
        assert transaction is not None
        identity.current = None
        identity.completing = transaction
        identity.outcome = (identity.epoch, state == COMMITTED)
        broker = self._broker

        def mark_log(log: Log, entries: list[Entry]) -> Callable[[], None]:
            def mark() -> None:
                log.mark(transaction, entries, state)
                broker.changed()

            return mark

        def mark_group(group: Group) -> Callable[[], None]:
            return lambda: group.settle(transaction, state == COMMITTED)

        marks = [mark_log(log, entries) for log, entries in transaction.logs.items()]
        marks += [mark_group(group) for group in transaction.groups]
        transaction.unmarked = marks
        for mark in list(marks):
            broker.after(self.MARKERS, lambda mark=mark: _once(transaction, mark))  # type: ignore[misc]

    def _complete(self, identity: Identity) -> None:
        """The coordinator answers CONCURRENT_TRANSACTIONS until the last marker is written."""
        transaction = identity.completing
        if transaction is not None:
            identity.completing = None
            for mark in list(transaction.unmarked):
                _once(transaction, mark)


def _once(transaction: Transaction, mark: Callable[[], None]) -> None:
    if mark in transaction.unmarked:
        transaction.unmarked.remove(mark)
        mark()
