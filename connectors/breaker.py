"""A circuit breaker: whether one target is called at all. Pure; seconds come in as an argument.

    closed --(so many failures in a row)--> open until --(time)--> half-open --(a probe answers)--> closed
                                             ^                        |
                                             +--(the probe fails)-----+   twice as long

Half-open is no state of its own: it is an open breaker whose time has passed. Then one call goes
through as a probe, and the next one an interval later at the earliest, whether or not the first
has come back: a probe that was lost must not keep a target closed off for ever.

Every call carries the *era* in which it was let through. Opening and closing begin a new one, so
what began before is told apart from what is being judged, and late results change nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

Phase = Literal["closed", "open", "half-open"]

JITTER = 0.2
"""Share of the interval by which the last worker probes later than the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When a target is no longer called, and for how long."""

    failures: int = 5
    """So many failures of the service in a row open the breaker; 0: it never opens."""
    within_seconds: float = 30.0
    """They count if the first is no older than this."""
    open_seconds: float = 10.0
    """How long it is open at first; twice as long with each probe that fails."""
    longest_seconds: float = 300.0
    """How long at most, whatever a service asks for or another worker says."""

    def __post_init__(self) -> None:
        if self.failures < 0:
            raise ValueError("breaker failures must be at least 0 (0: it never opens)")
        if not 0 < self.open_seconds <= self.longest_seconds:
            raise ValueError("breaker open_seconds must be above 0 and at most longest_seconds")
        if self.within_seconds <= 0:
            raise ValueError("breaker within_seconds must be above 0")


class Breaker:
    """The only owner of one target's era. ``jitter``: 0 to 1, different in each worker."""

    __slots__ = (
        "_failed_at", "_interval", "_jitter", "_opened_alone_at", "_settings", "_wait_until", "closed",
        "era", "probe_at", "reason", "since", "until",
    )  # fmt: skip

    def __init__(self, settings: BreakerSettings, jitter: float = 0.0) -> None:
        self._settings = settings
        self._jitter = jitter * JITTER
        self._failed_at: deque[float] = deque(maxlen=max(settings.failures, 1))
        self._wait_until = 0.0  # the latest Retry-After of the failures in a row
        self._interval = settings.open_seconds
        self._opened_alone_at: float | None = None  # by failures seen here, not by another's word
        self.closed = True
        self.era = 0
        self.since = 0.0
        self.until = 0.0  # as others are told
        self.probe_at = 0.0  # as we do it: later by our jitter
        self.reason = ""

    @property
    def troubled(self) -> bool:
        """A success has something to change."""
        return not self.closed or bool(self._failed_at)

    def phase(self, now: float) -> Phase:
        if self.closed:
            return "closed"
        return "open" if now < self.until else "half-open"

    def refuses(self, now: float) -> bool:
        """A call that came now would not be made."""
        return not self.closed and now < self.probe_at

    def left(self, now: float) -> float:
        """Seconds after which to ask again. While a probe is out its answer comes sooner than the
        next probe, and whoever asks again after the shortest interval has it."""
        left = max(self.probe_at - now, 0.001)
        return left if now < self.until else min(left, self._settings.open_seconds)

    def admit(self, now: float) -> int | None:
        """The era the call belongs to; None: it is not to be made."""
        if self.closed:
            return self.era
        if now < self.probe_at:
            return None
        self.probe_at = now + self._interval
        return self.era

    def answered(self, era: int) -> bool:
        """The service works. True: it was open, and is closed by this."""
        if era != self.era:
            return False
        self._failed_at.clear()
        self._wait_until = 0.0
        if self.closed:
            return False
        self._close()
        return True

    def failed(self, era: int, now: float, reason: str, retry_after: float | None = None) -> bool:
        """The service does not. True: it is open by this, for the first time or again."""
        if era != self.era or not self._settings.failures:
            return False
        if retry_after is not None:
            self._wait_until = max(self._wait_until, now + retry_after)
        if not self.closed:
            self._interval = min(self._interval * 2, self._settings.longest_seconds)
            self._open(now, reason)
            return True
        seen = self._failed_at
        seen.append(now)
        if len(seen) < self._settings.failures or seen[0] < now - self._settings.within_seconds:
            return False
        self._interval = self._settings.open_seconds
        self._opened_alone_at = self.since = now
        self._open(now, reason)
        return True

    def heard_open(self, now: float, left: float, interval: float, ago: float, reason: str) -> bool:
        """Another worker says so: for ``left`` s more, ``ago`` s ago, when it meant to wait
        ``interval`` s. True: that is news."""
        longest = self._settings.longest_seconds
        until = now + min(left, longest)
        if left <= 0 or not self._settings.failures or (not self.closed and until <= self.until):
            return False
        interval = min(max(interval, self._settings.open_seconds), longest)
        if self.closed:
            self.era += 1
            self.closed = False
            self._failed_at.clear()
            self._interval = interval
            self.since = now - max(ago, 0.0)
            self.probe_at = 0.0
        self._interval = max(self._interval, interval)
        self.until, self.reason = until, reason
        self.probe_at = max(self.probe_at, until + self._interval * self._jitter)
        return True

    def heard_closed(self) -> bool:
        """A probe of another worker was answered. True: that is news."""
        if self.closed:
            return False
        self._close()
        return True

    def take_back(self, since: float) -> bool:
        """Forget the failures from then on: they were our own. True: it is closed by this."""
        while self._failed_at and self._failed_at[-1] >= since:
            self._failed_at.pop()
        if self.closed or self._opened_alone_at is None or self._opened_alone_at < since:
            return False
        self._close()
        return True

    def _open(self, now: float, reason: str) -> None:
        asked = min(self._wait_until - now, self._settings.longest_seconds)
        self.era += 1
        self.closed = False
        self.reason = reason
        self.until = now + max(self._interval, asked)
        self.probe_at = self.until + self._interval * self._jitter
        self._failed_at.clear()
        self._wait_until = 0.0

    def _close(self) -> None:
        self.era += 1
        self.closed = True
        self._opened_alone_at = None
        self._failed_at.clear()
        self._wait_until = 0.0
