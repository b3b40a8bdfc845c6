"""Runs processors until told to stop: one thread, consumer and producer each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from .clock import Clock, SystemClock
from .cycle import Cycle
from .directory_lock import DirectoryLock
from .errors import OutcomeUnknown, RuntimeFault
from .health import HealthBoard
from .kafka import ConfluentKafka
from .memory import MemoryStores
from .ports import Kafka
from .processing import where
from .processor import Processor
from .rocksdb import RocksStores
from .settings import RuntimeSettings
from .store import Stores

log = logging.getLogger(__name__)


class Stop(Protocol):
    """A `threading.Event`, or anything with its ``is_set``."""

    def is_set(self) -> bool: ...


def run(
    processors: Sequence[Processor],
    settings: RuntimeSettings,
    stop: Stop,
    *,
    drained: Callable[[], bool] | None = None,
    board: HealthBoard | None = None,
    kafka: Kafka | None = None,
    clock: Clock | None = None,
) -> None:
    """Return once ``stop`` is set and all work is settled.

    A stop takes nothing new, finishes the cycle, and lets work in flight end for
    ``drain_seconds``: until no call is counted busy, no record is held, and ``drained`` (if
    given) says so. Raises the first `RuntimeFault` of any processor once the others have
    stopped; the caller exits with its ``exit_code``.
    """
    kafka = kafka or ConfluentKafka(settings)
    board = board or HealthBoard()
    ending = threading.Event()
    locks: list[DirectoryLock] = []
    loops: list[Loop] = []
    try:
        for processor in processors:
            locks.append(DirectoryLock(settings.directory(processor.name)))
        loops = [
            Loop(processor, settings, kafka, clock or SystemClock(), board, stop, ending, drained)
            for processor in processors
        ]
        for loop in loops:
            loop.start()
        _watch(loops, settings.stuck_ms / 1000)
        for loop in loops:
            if loop.failure is not None:
                raise loop.failure
    finally:
        if not any(loop.is_alive() for loop in loops):  # else the identity is still in use
            for lock in locks:
                lock.release()


def _watch(loops: Sequence[Loop], patience: float) -> None:
    """Wait for all to end. A client call that never comes back (measured: offsets sent while
    the broker dies) can't be interrupted, but the process can end."""
    while any(loop.is_alive() for loop in loops):
        for loop in loops:
            loop.join(0.2)
            if loop.is_alive() and loop.silent_for > patience:
                raise OutcomeUnknown(
                    f"{loop.name} has not come round for {patience:.0f} s: a call to Kafka hangs; "
                    "start the process again"
                )


class Loop(threading.Thread):
    """One processor's thread. ``ending`` is set by the first that fails: then all end."""

    def __init__(
        self,
        processor: Processor,
        settings: RuntimeSettings,
        kafka: Kafka,
        clock: Clock,
        board: HealthBoard,
        stop: Stop,
        ending: threading.Event,
        drained: Callable[[], bool] | None,
    ) -> None:
        super().__init__(name=f"cycle {processor.name}", daemon=True)
        self.failure: BaseException | None = None
        self._came_round_at = clock.monotonic()
        self._processor = processor
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._health = board.of(processor.name)
        self._stop_asked = stop
        self._ending = ending
        self._drained = drained

    @property
    def silent_for(self) -> float:
        """Seconds since the last cycle began."""
        return self._clock.monotonic() - self._came_round_at

    def run(self) -> None:
        try:
            self._work()
        except BaseException as e:  # handed to `run`, which raises it in the caller's thread
            self.failure = e
            text = str(e) if isinstance(e, RuntimeFault) else f"a bug: {where(e)}"
            self._health.update(failure=text, live=())
            log.error("%s ends: %s", self._processor.name, text)
            self._ending.set()

    def _work(self) -> None:
        cycle = Cycle(
            self._processor, self._settings, self._kafka, self._stores(), self._clock, self._health
        )
        try:
            while not self._stop_asked.is_set() and not self._ending.is_set():
                self._came_round_at = self._clock.monotonic()
                cycle.step()
            self._drain(cycle)
        except BaseException:
            # No goodbye: leaving would commit offsets of a broken processor. The group notices
            # within the session timeout, and whoever comes next restores from the changelog.
            raise
        cycle.close()
        self._health.update(started=False, live=())
        log.info("%s has stopped", self._processor.name)

    def _drain(self, cycle: Cycle) -> None:
        cycle.begin_drain()
        deadline = self._clock.monotonic() + self._settings.drain_seconds
        while not self._ending.is_set() and self._clock.monotonic() < deadline:
            self._came_round_at = self._clock.monotonic()
            cycle.step()
            if not cycle.in_flight and (self._drained is None or self._drained()):
                return
        if cycle.in_flight:
            log.warning("%s stops with %d calls in flight", self._processor.name, cycle.in_flight)

    def _stores(self) -> Stores:
        if self._settings.store == "memory":
            return MemoryStores()
        return RocksStores(self._settings.directory(self._processor.name))
