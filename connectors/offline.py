"""Whether this worker itself has lost the network. Pure; seconds come in as an argument.

Two different hosts that can't be reached within ten seconds, and none that answers between: that
is hardly two services, it is us. Then nothing is begun but one call now and then, and the first
that gets an answer ends it. A host that stays unreachable while another answers is dead by
itself: from then on its failures say nothing about the network, until it answers once.
"""

from __future__ import annotations

from dataclasses import dataclass

HOSTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """When a worker says that it is offline, and how it finds back."""

    within_seconds: float = 10.0
    """Two hosts that can't be reached within this are a lost network; 0: never offline."""
    first_wait_seconds: float = 1.0
    """Until one call is let through; twice as long each time."""
    longest_wait_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.within_seconds < 0:
            raise ValueError("offline within_seconds must be at least 0 (0: never offline)")
        if not 0 < self.first_wait_seconds <= self.longest_wait_seconds:
            raise ValueError("offline first_wait_seconds must be above 0 and at most the longest")


class Offline:
    """The only owner of the answer."""

    __slots__ = ("_dead", "_failing", "_settings", "_suspects", "_wait", "next_at", "since")

    def __init__(self, settings: OfflineSettings) -> None:
        self._settings = settings
        self._failing: dict[str, float] = {}  # hosts that were not reached, and when
        self._suspects: frozenset[str] = frozenset()
        self._dead: set[str] = set()  # not reached while others were
        self._wait = 0.0
        self.since: float | None = None
        self.next_at = 0.0  # when one call may begin

    @property
    def troubled(self) -> bool:
        """An answer has something to change."""
        return bool(self._failing or self._dead) or self.since is not None

    @property
    def hosts(self) -> frozenset[str]:
        """Those that were not reached."""
        return self._suspects

    def unreached(self, host: str, now: float) -> bool:
        """True: offline from now on."""
        settings = self._settings
        if self.since is not None or not settings.within_seconds or host in self._dead:
            return False
        self._failing[host] = now
        start = now - settings.within_seconds
        self._failing = {name: at for name, at in self._failing.items() if at >= start}
        if len(self._failing) < HOSTS:
            return False
        self._suspects = frozenset(self._failing)
        self.since = now
        self._wait = settings.first_wait_seconds
        self.next_at = now + self._wait
        return True

    def answered(self, host: str) -> bool:
        """A host was reached. True: that ends it."""
        self._failing.clear()
        self._dead.discard(host)
        if self.since is None:
            return False
        self.since = None
        self._dead = set(self._suspects - {host})
        return True

    def may_begin(self, now: float) -> bool:
        """Whether a call may begin; offline that is one, and the next after a longer wait."""
        if self.since is None:
            return True
        if now < self.next_at:
            return False
        self._wait = min(self._wait * 2, self._settings.longest_wait_seconds)
        self.next_at = now + self._wait
        return True
