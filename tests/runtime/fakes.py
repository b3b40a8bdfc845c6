"""Kafka as a list of calls: for what the cycle does and in which order, not for how Kafka behaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.streams.runtime.errors import Aborted
from perdure.streams.runtime.ports import End, Listener, Polled, Position, Spot
from perdure.streams.runtime.processor import Headers, Record


class Now:
    """A clock moved by hand; waiting moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.ms += int(seconds * 1000) + 1
        return event.is_set()


class Given:
    def __init__(self, value: Any) -> None:
        self._value = value

    def done(self) -> bool:
        return self._value is not None

    def result(self) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class FakeKafka:
    """One partition of each topic. ``calls`` is what happened, in order."""

    def __init__(self, topics: Sequence[str], changelog: str) -> None:
        self.topics = topics
        self.changelog = changelog
        self.calls: list[tuple[Any, ...]] = []
        self.coming: list[Polled] = []
        self.faults: dict[str, Exception] = {}  # raised by this call, once
        self.committed_offsets: Any = {}
        self.starts_at: dict[Spot, int] = {}
        self.log: list[Record] = []  # the changelog
        self.log_end: int | None = None  # with what is not readable yet
        self.listener: Listener | None = None
        self.positions: dict[Spot, Position] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.fenced: list[str] = []
        self.refused: set[str] = set()  # topics nothing can be sent to
        self.refusal: type[Aborted] = Aborted
        self._reading: dict[Spot, int] = {}
        self._open: list[tuple[Any, ...]] = []
        self._open_positions: dict[Spot, Position] = {}
        self._delivered: list[tuple[Callable[[int], None], int]] = []

    def _call(self, name: str, *what: Any) -> None:
        self.calls.append((name, *what))
        fault = self.faults.pop(name, None)
        if fault is not None:
            raise fault

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def group_consumer(self, group: str, client_id: str) -> Any:
        return _Consumer(self)

    def transactional_producer(self, transactional_id: str) -> Any:
        return _Producer(self)

    def plain_producer(self, client_id: str) -> Any:
        raise AssertionError("not here")

    def reader(self, client_id: str) -> Any:
        return _Reader(self)

    def admin(self) -> Any:
        return _Admin(self)

    def abort_open_transaction(self, transactional_id: str) -> None:
        self.fenced.append(transactional_id)


class _Consumer:
    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._kafka.listener = listener

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        self._kafka._call("poll")
        taken, self._kafka.coming = self._kafka.coming[:limit], self._kafka.coming[limit:]
        return taken

    def pause(self, spots: Sequence[Spot]) -> None:
        self._kafka._call("pause")

    def resume(self, spots: Sequence[Spot]) -> None:
        self._kafka._call("resume")

    def start(self, positions: Mapping[Spot, int]) -> None:
        self._kafka._call("start", dict(positions))

    def commit(self, positions: Mapping[Spot, Position]) -> None:
        self._kafka._call("commit plainly", dict(positions))
        self._kafka.positions.update(positions)

    def membership(self) -> object:
        return "member"

    def close(self) -> None:
        self._kafka._call("leave")


class _Producer:
    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def start(self) -> None:
        self._kafka._call("take the id")

    def begin(self) -> None:
        self._kafka._call("begin")

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers,
        partition: int | None, delivered: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        self._kafka._call("send", topic, key)
        if topic in self._kafka.refused:
            raise self._kafka.refusal(f"not delivered to {topic}")
        self._kafka._open.append((topic, key, value, partition))
        if topic == self._kafka.changelog:
            self._kafka.log.append(Record(topic, 0, len(self._kafka.log), 0, key, value))
        if delivered is not None:
            self._kafka._delivered.append((delivered, len(self._kafka.log) - 1))

    def send_offsets(self, positions: Mapping[Spot, Position], membership: object) -> None:
        self._kafka._call("send offsets", dict(positions))
        self._kafka._open_positions = dict(positions)

    def commit(self) -> None:
        self._kafka._call("commit")
        for delivered, offset in self._kafka._delivered:
            delivered(offset)
        self._kafka.sent += self._kafka._open
        self._kafka.positions.update(self._kafka._open_positions)
        self._clear()

    def abort(self) -> None:
        self._kafka._call("abort")
        self._clear()

    def _clear(self) -> None:
        self._kafka._open, self._kafka._open_positions, self._kafka._delivered = [], {}, []

    def close(self) -> None:
        pass


class _Reader:
    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def add(self, spot: Spot, offset: int) -> None:
        self._kafka._call("read", spot, offset)
        self._kafka._reading[spot] = offset

    def remove(self, spot: Spot) -> None:
        del self._kafka._reading[spot]

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        found: list[Polled] = []
        for spot, at in self._kafka._reading.items():
            found += self._kafka.log[at:]
            found.append(End(spot.topic, spot.partition, len(self._kafka.log)))
            self._kafka._reading[spot] = len(self._kafka.log)
        return found

    def close(self) -> None:
        pass


class _Admin:
    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 1)

    def set_group_timeouts(self, group: str, session_ms: int, heartbeat_ms: int) -> None:
        pass

    def committed(self, group: str, spots: Sequence[Spot], stable: bool) -> Given:
        self._kafka._call("committed", stable)
        return Given(self._kafka.committed_offsets if stable else self._kafka.positions)

    def ends(self, spots: Sequence[Spot]) -> Given:
        self._kafka._call("ends")
        end = len(self._kafka.log) if self._kafka.log_end is None else self._kafka.log_end
        return Given({s: end if s.topic == self._kafka.changelog else 1_000 for s in spots})

    def starts(self, spots: Sequence[Spot]) -> Given:
        return Given({s: self._kafka.starts_at.get(s, 0) for s in spots})

    def topic_ids(self, topics: Sequence[str]) -> Given:
        return Given({t: f"id of {t}" for t in topics})

    def close(self) -> None:
        pass
