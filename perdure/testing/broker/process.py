"""One process as the broker sees it, and the `Kafka` port bound to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from perdure.streams.runtime.errors import OutcomeUnknown

from .admin import SimulatedAdmin
from .consumers import SimulatedGroupConsumer, SimulatedReader
from .errors import ProcessGone
from .producers import SimulatedPlainProducer, SimulatedTransactionalProducer

if TYPE_CHECKING:
    from .broker import Broker

T = TypeVar("T")

_NEVER = threading.Event()
_SLICE = 0.25
"""s a call waits before it looks again whether the broker answers."""


class Process:
    """A `Kafka` port. Every call of its clients goes through `enter` and `leave`.

    ``alive``: not killed. ``reachable``: the broker is up and this process's network is not cut.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        transaction_timeout_ms: int,
        commit_patience_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self.broker = broker
        self.name = name
        self.transaction_timeout = transaction_timeout_ms / 1000
        self.patience = commit_patience_ms / 1000
        self.connect_timeout = connect_timeout_ms / 1000
        self.alive = True
        self.stopped = False
        self.cut = False
        self.consumers: list[SimulatedGroupConsumer] = []
        self.transactional: list[SimulatedTransactionalProducer] = []
        self.plain: list[SimulatedPlainProducer] = []

    # the port

    def group_consumer(self, group: str, client_id: str) -> SimulatedGroupConsumer:
        consumer = SimulatedGroupConsumer(self, group, client_id)
        self.consumers.append(consumer)
        return consumer

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        producer = SimulatedTransactionalProducer(self, transactional_id)
        self.transactional.append(producer)
        return producer

    def plain_producer(self, client_id: str) -> SimulatedPlainProducer:
        producer = SimulatedPlainProducer(self, client_id)
        self.plain.append(producer)
        return producer

    def reader(self, client_id: str) -> SimulatedReader:
        return SimulatedReader(self, client_id)

    def admin(self) -> SimulatedAdmin:
        return SimulatedAdmin(self)

    def abort_open_transaction(self, transactional_id: str) -> None:
        """In the background: with the next moment the process lives and the broker answers."""
        self.enter("kafka.abort_open_transaction")

        def take() -> None:
            if self.alive and self.reachable and not self.stopped:
                self.broker.transactions.take(transactional_id, self.transaction_timeout)

        self.broker.after(0.05, take)
        self.leave("kafka.abort_open_transaction")

    # for its clients

    @property
    def reachable(self) -> bool:
        return not self.cut and not self.broker.is_down

    def enter(self, operation: str) -> None:
        broker = self.broker
        if broker.on_call is not None:
            broker.on_call(self.name, operation, "before")
        if not self.alive:
            raise ProcessGone(f"{self.name} was killed; it called {operation}")
        broker.catch_up()

    def leave(self, operation: str) -> None:
        on_call = self.broker.on_call
        if on_call is not None:
            on_call(self.name, operation, "after")
            if not self.alive:
                raise ProcessGone(f"{self.name} was killed in {operation}")

    def wait(self, seconds: float) -> None:
        """For an answer that may come. Only the clock moves, and what it moves."""
        self.broker.clock.wait(_NEVER, seconds)
        if not self.alive:
            raise ProcessGone(f"{self.name} was killed while it waited")
        self.broker.catch_up()

    def ask(self, operation: str, effect: Callable[[], T], confirm: Callable[[], object]) -> T:
        """Between `enter` and the return: do ``effect`` once the broker answers.

        Where its answer is lost, ``confirm`` is the same request again. Raises what they do, and
        `OutcomeUnknown` when the patience of the process is at its end.
        """
        waited = 0.0
        done: list[T] = []
        while True:
            if self.reachable:
                if done:
                    confirm()
                    return done[0]
                done.append(effect())
                self.leave(operation)
                if self.reachable:
                    return done[0]
            if waited >= self.patience:
                raise OutcomeUnknown(
                    f"Kafka has not answered {operation} of {self.name} for {self.patience:.0f} s"
                )
            self.wait(_SLICE)
            waited += _SLICE
