"""What this worker can reach: a breaker for each target, shared with the other workers, and
whether the worker itself has lost the network.

One for a process, whatever queues it serves. Calls ask from the loop, cycles read the topic,
/metrics looks in: one lock, which a call to a healthy target never takes.

A worker that opens a breaker says so on `agent.breakers`; the others then call the target no
more, and each probes by itself once the time has passed. Which worker's probe succeeds says
closed, and the others close. The topic's order decides; a state past its ``open_until`` is none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ActionCommand, BreakerState
from perdure.streams.runtime.ports import PlainProducer
from perdure.streams.runtime.processor import Record

from .breaker import Breaker, BreakerSettings
from .errors import Failure
from .executor import Executor
from .offline import Offline, OfflineSettings
from .outage import OUTAGES, REACHED, Said, said_by
from .target import host_of

log = logging.getLogger(__name__)

_HEADERS = (("perdure-type", b"BreakerState"),)
_FAR_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ReachSnapshot:
    """For /metrics and /ready."""

    open: dict[str, str] = field(default_factory=dict)
    """Targets that are not called now, and why."""
    closed: tuple[str, ...] = ()
    """Targets that were open in this process, and are called again."""
    offline: str | None = None
    """Why this worker takes nothing, and since when."""
    bad_records: int = 0
    """Records of agent.breakers that could not be read."""


class Reach:
    """The only owner of the breakers of a process, and of its being offline."""

    def __init__(
        self,
        worker: str,
        producer: PlainProducer,
        executor: Executor,
        breaker: BreakerSettings,
        offline: OfflineSettings,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._producer = producer
        self._executor = executor
        self._settings = breaker
        self._first_wait = offline.first_wait_seconds
        self._within = offline.within_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._breakers: dict[str, Breaker] = {}
        self._opened: set[str] = set()  # ever, in this process
        self._offline = Offline(offline)
        self._hosts: dict[str, str] = {}  # of targets that were not reached
        self._wakers: list[Callable[[], None]] = []
        self._began_at = clock()
        self._read_until: dict[int, int] = {}
        self._bad_records = 0

    # --- calls ---------------------------------------------------------------------------------

    def refusal(self, target: str) -> Failure | None:
        """Why a call that came now would not be made. Asking uses up no probe."""
        breaker = self._breakers.get(target)
        if breaker is None or breaker.closed:
            return None
        with self._lock:
            now = self._monotonic()
            return self._refused(target, breaker, now) if breaker.refuses(now) else None

    def begin(self, target: str) -> int | Failure:
        """The era a call belongs to, to be given back with its end; or why it is not made."""
        breaker = self._breakers.get(target)
        if breaker is None:
            return 0
        if breaker.closed:
            return breaker.era
        with self._lock:
            now = self._monotonic()
            era = breaker.admit(now)
            if era is None:
                return self._refused(target, breaker, now)
            if not breaker.closed:
                log.info("%s is called once, to see whether it is back", target)
            return era

    def succeeded(self, target: str, era: int) -> None:
        """The call has its result."""
        breaker = self._breakers.get(target)
        if self._offline.troubled or (breaker is not None and breaker.troubled):
            self._answered(target, era)

    def ended(
        self, target: str, era: int, why: Failure, error: BaseException | None, of: ActionCommand
    ) -> None:
        """The call has failed."""
        said = said_by(why, error)
        if said is Said.ANSWERED:
            return self.succeeded(target, era)
        if said in REACHED:
            self._reached(target)
        if said not in OUTAGES:
            return None
        with self._lock:
            now = self._monotonic()
            went = False
            if said is Said.UNREACHED:
                host = self._hosts[target] = host_of(error, of)
                went = self._offline.unreached(host, now)
            breaker = self._breakers.get(target)
            if breaker is None:
                breaker = self._breakers[target] = Breaker(self._settings, self._jitter(target))
            if self._offline.since is None:
                reason = f"{self._settings.failures} failures in a row, the last: {why.code}"
                if not breaker.closed:
                    reason = f"still {why.code}"
                if breaker.failed(era, now, reason, why.retry_after_seconds):
                    self._opens(target, breaker, now)
            elif went:
                self._goes_offline(now)
        if went:
            self._executor.spawn(self._look_again)
        return None

    def _answered(self, target: str, era: int) -> None:
        self._reached(target)
        with self._lock:
            breaker = self._breakers.get(target)
            if breaker is not None and breaker.answered(era):
                self._closes(target, breaker, "it answers again")

    def _refused(self, target: str, breaker: Breaker, now: float) -> Failure:
        left = breaker.left(now)
        text = (
            f"{target} is not called since {self._at(breaker.since - now)}: {breaker.reason}. "
            f"Nothing was sent; try again in {left:.1f} s"
        )
        return Failure("unavailable", "BREAKER_OPEN", text, round(left, 3))

    def _jitter(self, target: str) -> float:
        """0 to 1: the workers do not probe all at once."""
        return zlib.crc32(f"{self._worker} {target}".encode()) / 2**32

    def _at(self, seconds: float) -> str:
        """So many seconds from now, for people."""
        at = time.gmtime(self._clock() / 1000 + seconds)
        return time.strftime("%H:%M:%S UTC", at)

    # --- told to the other workers, and by them --------------------------------------------------

    def _opens(self, target: str, breaker: Breaker, now: float) -> None:
        left = breaker.until - now
        log.warning("%s is not called for %.0f s: %s", target, left, breaker.reason)
        self._opened.add(target)
        open_until = self._clock() + int(left * 1000)
        self._tell(
            BreakerState(
                target=target,
                state="open",
                open_until=open_until,
                worker=self._worker,
                reason=breaker.reason,
            )
        )

    def _closes(self, target: str, breaker: Breaker, reason: str) -> None:
        log.warning("%s is called again: %s", target, reason)
        self._tell(BreakerState(target=target, state="closed", worker=self._worker, reason=reason))

    def _tell(self, state: BreakerState) -> None:
        def told(error: Exception | None) -> None:
            if error is not None:
                log.warning("agent.breakers: %s could not be told: %s", state.target, error)

        try:
            key = state.target.encode()
            self._producer.send(topics.BREAKERS, key, codec.encode(state), _HEADERS, None, told)
        except Exception as error:  # a call must not end otherwise because nobody can be told
            told(error)

    def heard(self, record: Record) -> None:
        """A record of `agent.breakers`; read once, though each queue of this process reads it."""
        with self._lock:
            if record.offset < self._read_until.get(record.partition, 0):
                return
            self._read_until[record.partition] = record.offset + 1
            try:
                state = _state(record)
            except (RecordError, UnicodeDecodeError) as error:
                self._bad_records += 1
                log.warning("agent.breakers: offset %d can't be read: %s", record.offset, error)
                return
            if state.worker != self._worker or record.timestamp < self._began_at:
                self._take(state, record.timestamp)

    def _take(self, state: BreakerState, said_at: int) -> None:
        target, breaker = state.target, self._breakers.get(state.target)
        if state.state == "closed":
            if breaker is not None and breaker.heard_closed():
                log.warning("%s is called again: worker %s says so", target, state.worker)
            return
        clock, now = self._clock(), self._monotonic()
        open_until = min(state.open_until, clock + _FAR_MS)  # it may say anything
        left = (open_until - clock) / 1000
        if left <= 0:
            return
        if breaker is None:
            breaker = self._breakers[target] = Breaker(self._settings, self._jitter(target))
        was_closed = breaker.closed
        interval = (open_until - said_at) / 1000
        if not breaker.heard_open(now, left, interval, (clock - said_at) / 1000, state.reason):
            return
        self._opened.add(target)
        if was_closed:
            log.warning(
                "%s is not called for %.0f s, worker %s says so: %s",
                target, breaker.until - now, state.worker, state.reason,
            )  # fmt: skip

    # --- the network ---------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether commands are taken at all: always, but for a worker that is offline."""
        return self._offline.since is None or self._monotonic() >= self._offline.next_at

    def may_begin(self) -> bool:
        """Whether the gate may let a call in."""
        if self._offline.since is None:
            return True
        with self._lock:
            return self._offline.may_begin(self._monotonic())

    def wakes(self, waker: Callable[[], None]) -> None:
        """``waker`` is called when calls that wait may begin."""
        self._wakers.append(waker)

    def _reached(self, target: str) -> None:
        with self._lock:
            host = self._hosts.get(target, target)
            since = self._offline.since
            back = self._offline.answered(host)
            if back and since is not None:
                seconds = self._monotonic() - since
                log.warning("online again after %.0f s: %s answers", seconds, target)
        if back:
            self._wake()

    def _goes_offline(self, now: float) -> None:
        log.warning(
            "this worker is offline: %s can't be reached. It takes no more commands until a call "
            "gets an answer: look at its network",
            self._named(),
        )
        for target, breaker in self._breakers.items():
            if breaker.take_back(now - self._within):
                self._closes(target, breaker, "the worker that said so is offline itself")

    async def _look_again(self) -> None:
        while True:
            with self._lock:
                if self._offline.since is None:
                    return
                left = self._offline.next_at - self._monotonic()
            if left <= 0:
                self._wake()
            await asyncio.sleep(max(left, self._first_wait))

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()

    def _named(self) -> str:
        return " and ".join(sorted(self._offline.hosts))

    # --- looked at -----------------------------------------------------------------------------

    def snapshot(self) -> ReachSnapshot:
        """From any thread."""
        with self._lock:
            now = self._monotonic()
            refusing = {
                target: f"since {self._at(b.since - now)}: {b.reason}"
                for target, b in self._breakers.items()
                if b.refuses(now)
            }
            since = self._offline.since
            offline = None
            if since is not None:
                offline = f"since {self._at(since - now)}: {self._named()} can't be reached"
            closed = tuple(sorted(self._opened - refusing.keys()))
            return ReachSnapshot(refusing, closed, offline, self._bad_records)


def _state(record: Record) -> BreakerState:
    if record.value is None:  # taken off the topic: nobody says anything any more
        return BreakerState(
            target=(record.key or b"").decode(), state="closed", worker="an operator"
        )
    return codec.decode(record.value, BreakerState)
