"""Questions. With a `random.Random` an answer takes a moment, and is of any moment of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from perdure.streams.runtime.errors import KafkaUnreachable, Unanswered
from perdure.streams.runtime.ports import Position, Spot

if TYPE_CHECKING:
    from .process import Process

T = TypeVar("T")

_TIMEOUT = 5.0
_MIN_SESSION = 3.0
"""As the embedded broker has it."""


class _Question(Generic[T]):
    """An `Answer`. It is fixed at a moment between the question and ``_due``."""

    __slots__ = ("_answer", "_ask", "_asked", "_due", "_error", "_known", "_process")

    def __init__(self, process: Process, ask: Callable[[], T]) -> None:
        broker = process.broker
        self._process = process
        self._ask = ask
        self._known = False
        self._answer: T | None = None
        self._error = ""
        self._asked = self._due = broker.now()
        rng = broker.random
        if rng is not None and rng.random() < 0.5:
            self._due += rng.uniform(0, 0.02)
            early = rng.random() < 0.5
        else:
            early = True
        if early and process.reachable:
            self._fix()

    def _fix(self) -> None:
        self._known = True
        try:
            self._answer = self._ask()
        except Unanswered as e:
            self._error = str(e)

    def done(self) -> bool:
        process = self._process
        now = process.broker.now()
        if now < self._due:
            return False
        if self._known:
            return True
        process.broker.catch_up()
        if process.reachable:
            self._fix()
        elif now >= self._asked + _TIMEOUT:
            self._known, self._error = True, "Kafka has not answered"
        return self._known

    def result(self) -> T:
        if not self._known:
            process = self._process
            if not process.reachable:
                process.wait(_TIMEOUT)
            if process.reachable:
                self._fix()
            else:
                raise Unanswered("Kafka has not answered")
        if self._error:
            raise Unanswered(self._error)
        return self._answer  # type: ignore[return-value]


class SimulatedAdmin:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._broker = process.broker

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        process = self._process
        process.enter("admin.partition_counts")
        if not process.reachable:
            process.wait(process.connect_timeout)
            if not process.reachable:
                raise KafkaUnreachable("Kafka does not answer; is it running?")
        known = self._broker.topics
        counts = {t: len(known[t].logs) for t in topics if t in known}
        process.leave("admin.partition_counts")
        return counts

    def set_group_timeouts(self, group: str, session_ms: int, heartbeat_ms: int) -> None:
        process = self._process
        process.enter("admin.set_group_timeouts")
        if process.reachable and session_ms / 1000 >= _MIN_SESSION:
            known = self._broker.group(group)
            known.session, known.heartbeat = session_ms / 1000, heartbeat_ms / 1000
        process.leave("admin.set_group_timeouts")

    def committed(
        self, group: str, spots: Sequence[Spot], stable: bool
    ) -> _Question[Mapping[Spot, Position]]:
        def ask() -> Mapping[Spot, Position]:
            known = self._broker.group(group)
            if stable and not known.stable(spots):
                raise Unanswered("UNSTABLE_OFFSET_COMMIT: there are unstable offsets")
            offsets = known.offsets
            return {s: offsets[s] for s in spots if s in offsets}

        return self._asked("admin.committed", ask)

    def ends(self, spots: Sequence[Spot]) -> _Question[Mapping[Spot, int]]:
        return self._asked("admin.ends", lambda: {s: self._broker.found(s).end for s in spots})

    def starts(self, spots: Sequence[Spot]) -> _Question[Mapping[Spot, int]]:
        return self._asked("admin.starts", lambda: {s: self._broker.found(s).start for s in spots})

    def topic_ids(self, topics: Sequence[str]) -> _Question[Mapping[str, str]]:
        def ask() -> Mapping[str, str]:
            known = self._broker.topics
            for topic in topics:
                if topic not in known:
                    raise Unanswered(f"UNKNOWN_TOPIC_OR_PART: {topic}")
            return {t: known[t].id for t in topics}

        return self._asked("admin.topic_ids", ask)

    def _asked(self, operation: str, ask: Callable[[], T]) -> _Question[T]:
        self._process.enter(operation)
        question = _Question(self._process, ask)
        self._process.leave(operation)
        return question

    def close(self) -> None:
        """Nothing is held."""
