"""An Apache Kafka of one node, in memory, single-threaded and deterministic.

Theory of operation. Processes (`Broker.process`) call ports; each call first lets the past happen
(`catch_up`): what was due by the injected clock, such as an expired session, a transaction open too
long, a marker on its way. Nothing moves the clock but waiting for an answer that does not come.
What a real broker leaves open (how much a poll gives, when a heartbeat or a marker comes, what of a
dead process's last request arrives) a `random.Random` decides; without one everything happens at
once and in order. Where this and the real Kafka differ, this is wrong: ``tests/contract`` holds
both to the same tests.

The inspecting side (`read`, `offsets`, `produce`, `foreign_transaction`) is for verifiers and
foreign clients; it uses none of the ports.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Literal, NamedTuple

from perdure.streams.runtime.clock import Clock
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.ports import Position, Spot
from perdure.streams.runtime.processor import Headers

from .errors import BrokerDown, Refused
from .foreign import Foreign
from .groups import Group
from .log import ABORTED, COMMITTED, MARKER, Log, Topic
from .process import Process
from .transactions import Transactions

OnCall = Callable[[str, str, str], None]
Isolation = Literal["read_committed", "read_uncommitted"]
State = Literal["committed", "aborted", "open"]


class Seen(NamedTuple):
    """One record as it lies in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    committed: bool
    state: State


class Broker:
    """``on_call(process, "consumer.poll", "before" | "after")`` stands around every port call; what
    it raises comes out of the call: before it had any effect, or with its effect done."""

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random | None = None,
        on_call: OnCall | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.on_call = on_call
        self.topics: dict[str, Topic] = {}
        self.transactions = Transactions(self)
        self.is_down = False
        self.sick: set[str] = set()
        """Topics with too few replicas: what a processor sends there is not taken."""
        self.version = 0  # raised by whatever a poll could tell
        self._groups: dict[str, Group] = {}
        self._processes: dict[str, Process] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0
        self._names = 0
        self._rotation = 0

    # processes

    def process(
        self,
        name: str,
        *,
        transaction_timeout_ms: int = 10_000,
        commit_patience_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
    ) -> Process:
        """A new process of this name. One that lives under it must be killed first."""
        former = self._processes.get(name)
        if former is not None and former.alive:
            raise ValueError(f"{name} lives; kill it first")
        process = self._processes[name] = Process(
            self,
            name,
            transaction_timeout_ms=transaction_timeout_ms,
            commit_patience_ms=commit_patience_ms,
            connect_timeout_ms=connect_timeout_ms,
        )
        return process

    def kill(self, process: Process | str) -> None:
        """SIGKILL. What it has open stays open; what it had sent may arrive in part."""
        process = self._named(process)
        if not process.alive:
            return
        process.alive = False
        self._silence(process, True)
        if process.reachable and not process.stopped:
            for transactional in process.transactional:
                transactional.killed()
            for plain in process.plain:
                plain.killed()

    def stop(self, process: Process | str) -> None:
        """SIGSTOP: no heartbeats, no answers served, until `resume`."""
        process = self._named(process)
        process.stopped = True
        self._silence(process, True)

    def resume(self, process: Process | str) -> None:
        process = self._named(process)
        self.catch_up()
        process.stopped = False
        self._speak(process)

    def cut(self, process: Process | str) -> None:
        """Its network is gone, both ways, until `heal`: its calls wait in vain."""
        process = self._named(process)
        process.cut = True
        self._silence(process, True)

    def heal(self, process: Process | str) -> None:
        process = self._named(process)
        self.catch_up()
        process.cut = False
        self._speak(process)

    def commit_late(self, process: Process | str, seconds: float) -> None:
        """The commits of its open transactions are on the wire and arrive after ``seconds``, also if
        it is killed now. They are refused if somebody has taken the id by then."""
        for producer in self._named(process).transactional:
            producer.commits_late(seconds)

    def _named(self, process: Process | str) -> Process:
        return self._processes[process] if isinstance(process, str) else process

    def _silence(self, process: Process, silent: bool) -> None:
        for consumer in process.consumers:
            consumer.silence(silent)

    def _speak(self, process: Process) -> None:
        if process.alive and not process.stopped and process.reachable:
            self._silence(process, False)

    # the broker itself

    def down(self) -> None:
        self.is_down = True
        self.version += 1

    def up(self) -> None:
        """Nothing committed is lost. Silent members have a whole session again."""
        self.is_down = False
        self.version += 1
        for process in self._processes.values():
            for consumer in process.consumers:
                consumer.renew()
        self.catch_up()

    def tick(self) -> None:
        """A moment passes: what is due happens, plain producers are served."""
        self.catch_up()
        if self.is_down:
            return
        for process in list(self._processes.values()):
            if process.alive and not process.stopped and not process.cut:
                for plain in process.plain:
                    plain.serve()

    # topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compact: bool = False,
        append_time: bool = False,
        max_bytes: int = 1_048_588,
    ) -> None:
        if name in self.topics:
            raise ValueError(f"{name} exists")
        self.topics[name] = Topic(
            name, self.new_id("topic"), partitions,
            compact=compact, append_time=append_time, max_bytes=max_bytes,
        )  # fmt: skip
        self.version += 1
        for group in self._groups.values():
            if group.wants(name):
                group.rebalance()

    def delete_topic(self, name: str) -> None:
        for log in self.topics.pop(name).logs:
            log.deleted = True
        self.version += 1
        for group in self._groups.values():
            group.forget_topic(name)

    def add_partitions(self, name: str, count: int) -> None:
        logs = self.topics[name].logs
        logs += [Log(name, p) for p in range(len(logs), count)]
        self.version += 1
        for group in self._groups.values():
            if group.wants(name):
                group.rebalance()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """The log starts at ``before`` from now on."""
        self.topics[topic].logs[partition].delete_before(before)
        self.version += 1

    def compact(self, topic: str, *, tombstones: bool = False, markers: bool = False) -> None:
        """``tombstones``: as after ``delete.retention.ms``; ``markers``: theirs go with them, so that
        a log may end in nothing that can be read."""
        for log in self.topics[topic].logs:
            log.compact(tombstones=tombstones, markers=markers)
        self.version += 1

    # the inspecting side

    def read(
        self, topic: str, partition: int, isolation: Isolation = "read_committed"
    ) -> list[Seen]:
        """What is there now; read_uncommitted: also what is open or aborted."""
        self.catch_up()
        log = self.topics[topic].logs[partition]
        committed = isolation == "read_committed"
        stable = log.stable
        found = []
        for entry in log.entries:
            if committed and entry.offset >= stable:
                break
            record, state = entry.record, entry.state
            if state == MARKER or record is None or (committed and state != COMMITTED):
                continue
            said: State = (
                "committed" if state == COMMITTED else "aborted" if state == ABORTED else "open"
            )
            headers = tuple(record.headers)
            at, when, key, value = record.offset, record.timestamp, record.key, record.value
            found.append(Seen(at, when, key, value, headers, state == COMMITTED, said))
        return found

    def start(self, topic: str, partition: int) -> int:
        return self.topics[topic].logs[partition].start

    def end(self, topic: str, partition: int) -> int:
        return self.topics[topic].logs[partition].end

    def stable_end(self, topic: str, partition: int) -> int:
        self.catch_up()
        return self.topics[topic].logs[partition].stable

    def offsets(self, group: str) -> Mapping[Spot, Position]:
        self.catch_up()
        return dict(self.group(group).offsets)

    def members(self, group: str) -> Mapping[str, Iterable[Spot]]:
        """Who holds what, as the coordinator has it."""
        self.catch_up()
        return {m.id: sorted(m.granted) for m in self.group(group).members.values()}

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> tuple[int, int]:
        """As any client would. Returns partition and offset; raises `Refused`, `BrokerDown`."""
        self._ask_from_outside()
        at = self.clock.now_ms() if timestamp is None else timestamp
        return self.put(topic, key, value, tuple(headers), partition, at)

    def foreign_transaction(self, transactional_id: str, timeout: float = 60.0) -> Foreign:
        """Begun by a client that is none of ours."""
        self._ask_from_outside()
        return Foreign(self, transactional_id, self.transactions.take(transactional_id, timeout))

    def _ask_from_outside(self) -> None:
        if self.is_down:
            raise BrokerDown("Kafka does not answer")
        self.catch_up()

    # for the clients

    def now(self) -> float:
        return self.clock.monotonic()

    def at(self, due: float, call: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._due, (due, self._turn, call))

    def after(self, most: float, call: Callable[[], None]) -> None:
        rng = self.random
        if rng is None:
            call()
            return
        self.at(self.now() + rng.uniform(0, most), call)

    def next_due(self) -> float | None:
        """When the broker will do something by itself (as `Clock.monotonic`), if ever."""
        return self._due[0][0] if self._due and not self.is_down else None

    def catch_up(self) -> None:
        """Everything that was due by now happens, in its order."""
        due = self._due
        if not due or self.is_down:
            return
        now = self.clock.monotonic()
        while due and due[0][0] <= now and not self.is_down:
            heapq.heappop(due)[2]()

    def changed(self) -> None:
        self.version += 1

    def new_id(self, kind: str) -> str:
        self._names += 1
        chance = f"{self.random.getrandbits(32):08x}-" if self.random is not None else ""
        return f"{kind}-{chance}{self._names:06d}"

    def group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self, session=5.0, heartbeat=1.0)
        return group

    def partition_count(self, topic: str) -> int:
        known = self.topics.get(topic)
        return 0 if known is None else len(known.logs)

    def log(self, spot: Spot) -> Log | None:
        topic = self.topics.get(spot.topic)
        if topic is None or not 0 <= spot.partition < len(topic.logs):
            return None
        return topic.logs[spot.partition]

    def found(self, spot: Spot) -> Log:
        log = self.log(spot)
        if log is None:
            raise Unanswered(f"UNKNOWN_TOPIC_OR_PART: {spot.topic}-{spot.partition}")
        return log

    def place(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Log:
        """Where a record goes. Raises `Refused`."""
        known = self.topics.get(topic)
        if known is None:
            raise Refused(f"{topic}: UNKNOWN_TOPIC_OR_PART")
        known.check(key, value, headers)
        if partition is None:
            if key is not None:
                partition = known.owner(key)
            elif self.random is not None:
                partition = self.random.randrange(len(known.logs))
            else:
                self._rotation += 1
                partition = self._rotation % len(known.logs)
        if not 0 <= partition < len(known.logs):
            raise Refused(f"{topic}: UNKNOWN_PARTITION: {partition}")
        return known.logs[partition]

    def stamp(self, topic: str, timestamp: int) -> int:
        return self.clock.now_ms() if self.topics[topic].append_time else timestamp

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int,
    ) -> tuple[int, int]:
        log = self.place(topic, partition, key, value, headers)
        entry = log.append(self.stamp(topic, timestamp), key, value, headers)
        self.version += 1
        return log.partition, entry.offset
