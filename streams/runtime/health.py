"""What a processor is doing, for /metrics, /ready and `doctor`: read from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .measures import Family, RuntimeMeasures


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    processor: str
    started: bool = False  # Kafka answered, identity taken, subscribed
    live: tuple[int, ...] = ()
    restoring: dict[int, str] = field(default_factory=dict)  # partition: what it is at
    stopped: dict[int, str] = field(default_factory=dict)  # partition: why, and what to do
    paused: tuple[int, ...] = ()  # too many unfinished records
    last_cycle_at: int = 0  # ms
    last_commit_at: int = 0  # ms
    failure: str | None = None  # what ended the processor
    records: int = 0
    dropped: int = 0
    dead: int = 0
    forwarded: int = 0
    failed: int = 0  # inputs whose processing raised
    timers: int = 0
    cycles: int = 0
    commits: int = 0
    aborts: int = 0


class Health:
    """Written by the cycle's thread once a cycle, read by anyone."""

    def __init__(self, processor: str) -> None:
        self._lock = threading.Lock()
        self._snapshot = HealthSnapshot(processor)
        self._more: tuple[Family, ...] = ()
        self.measures = RuntimeMeasures()

    def also(self, families: Iterable[Family]) -> None:
        """What the processor itself measures, beside the runtime."""
        self._more = (*self._more, *families)

    @property
    def families(self) -> tuple[Family, ...]:
        return (*self.measures.families, *self._more)

    def snapshot(self) -> HealthSnapshot:
        with self._lock:
            return self._snapshot

    def update(self, **changes: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)  # type: ignore[arg-type]

    def report(self, counts: Mapping[str, int], **changes: object) -> None:
        """``counts`` are added to the counters."""
        with self._lock:
            now = self._snapshot
            sums = {name: getattr(now, name) + n for name, n in counts.items()}
            self._snapshot = replace(now, **sums, **changes)  # type: ignore[arg-type]


class HealthBoard:
    """The processors of one process."""

    def __init__(self, processors: Iterable[str] = ()) -> None:
        self._healths = {name: Health(name) for name in processors}

    def of(self, processor: str) -> Health:
        return self._healths.setdefault(processor, Health(processor))

    def families(self) -> list[tuple[str, Family]]:
        """All that is measured, with the name of its processor."""
        healths = list(self._healths.items())
        return [(name, family) for name, health in healths for family in health.families]

    def snapshots(self) -> list[HealthSnapshot]:
        return [health.snapshot() for health in list(self._healths.values())]
