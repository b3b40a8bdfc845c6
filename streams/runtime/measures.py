"""Counters, histograms and gauges as plain numbers; what a scrape makes of them is the scraper's.

Nothing here knows a monitoring system, so the runtime and what runs on it import none. A change
costs about a third of a microsecond; many threads may make it, any may read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final

Labels = tuple[str, ...]

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Bounds of what is normally over within a second (s)."""
LONG_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""Bounds of calls to the outside and of takeovers (s)."""
COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
OTHER: Final = "other"


class Names:
    """Keeps a label bounded: the first ``most`` values are themselves, all later ones ``other``.

    A name comes from records of others; each value of a label is a series for good.
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return OTHER
        shown = name.encode("utf-8", "replace").decode()[:200]
        return self._known.setdefault(name, shown)


class Counter:
    """Only grows, by the values of its labels."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self._lock = threading.Lock()
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), n: float = 1) -> None:
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + n

    def values(self) -> Mapping[Labels, float]:
        with self._lock:
            return self._values.copy()


class Gauge:
    """A number that is looked up when somebody asks: ``read`` gives it by the values of the labels."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, read: Callable[[], Mapping[Labels, float]], labels: Labels = ()
    ) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.values = read


class CounterOf(Gauge):
    """Looked up as a gauge is, and only grows: somebody else counts it."""

    kind = "counter"


class Histogram:
    """How often a value was at most each of ``bounds`` (ascending), and their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, text: str, bounds: Sequence[float] = SECONDS, labels: Labels = ()
    ) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.bounds = tuple(bounds)
        self._lock = threading.Lock()
        self._series: dict[Labels, list[float]] = {}
        if not labels:
            self._series[()] = self._empty()

    def _empty(self) -> list[float]:
        return [0.0] * (len(self.bounds) + 2)  # one more for what is above all, one for the sum

    def observe(self, value: float, labels: Labels = ()) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = self._empty()
            series[at] += 1
            series[-1] += value

    def values(self) -> Mapping[Labels, tuple[list[float], float]]:
        """Cumulative counts, one for each bound and one for all; and the sum."""
        with self._lock:
            copies = {labels: list(series) for labels, series in self._series.items()}
        found = {}
        for labels, series in copies.items():
            total = 0.0
            counts = [total := total + n for n in series[:-1]]
            found[labels] = (counts, series[-1])
        return found


Family = Counter | Gauge | Histogram


class RuntimeMeasures:
    """What the runtime measures of one processor."""

    def __init__(self) -> None:
        self.transaction = Histogram(
            "transaction_seconds", "a transaction, from begin to the answer of its commit"
        )
        self.cycle = Histogram("cycle_seconds", "a cycle that had work, without its poll")
        self.batch = Histogram("batch_inputs", "inputs of a cycle that had work", COUNTS)
        self.takeover = Histogram(
            "takeover_seconds", "a partition, from assigned to live", LONG_SECONDS
        )
        self.restored = Counter("restored_records", "records read from the changelog to take over")
        self.dead_letters = Counter("dead_letters", "records to agent.dead-letters", ("reason",))
        self._reasons = Names(50)

    def buried(self, reasons: Mapping[str, int]) -> None:
        for reason, n in reasons.items():
            self.dead_letters.add((self._reasons.of(reason),), n)

    @property
    def families(self) -> tuple[Family, ...]:
        return (
            self.transaction,
            self.cycle,
            self.batch,
            self.takeover,
            self.restored,
            self.dead_letters,
        )
