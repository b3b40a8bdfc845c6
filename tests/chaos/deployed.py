"""One deployment under a prefix of its own, seen with nothing but plain Kafka clients."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka.world import until

from .fake_service import FakeService
from .role import Role

HERE = Path(__file__).parent
TASKS, RESULTS, CONTROL = "agent.tasks", "agent.results", "agent.control"
DECISIONS, PENDING = "agent.approvals", "agent.approvals.pending"
EVENTS, OUTCOMES, VERDICTS = "agent.events", "agent.outcomes", "agent.verdicts"
COMMANDS, LETTERS = "agent.commands.tools", "agent.dead-letters"
WATCHED = (EVENTS, OUTCOMES, PENDING, COMMANDS, VERDICTS, LETTERS)
TOOLS = ("look", "put", "keep", "pay", "wire", "gift", "down")


class Seen(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    at: int  # the broker's or the sender's, ms
    key: str
    value: Any
    raw: bytes | None


class Watch:
    """Reads topics from their beginning, outside of any group, on one isolation level."""

    def __init__(self, site: Site, isolation: str, topics: Iterable[str] = WATCHED) -> None:
        self.by_topic: dict[str, list[Seen]] = defaultdict(list)
        self.by_key: dict[tuple[str, str], list[Seen]] = defaultdict(list)
        self._prefix = site.prefix
        self._isolation = isolation
        self._admin = AdminClient({"bootstrap.servers": site.bootstrap, "log_level": 0})
        self._reached: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": site.bootstrap, "group.id": f"{site.prefix}watch.{isolation}",
                "isolation.level": isolation, "enable.auto.commit": False,
                "enable.partition.eof": True, "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50, "log_level": 0,
            }
        )  # fmt: skip
        known = self._consumer.list_topics(timeout=20).topics
        self._partitions = [
            TopicPartition(self._prefix + topic, number, 0)
            for topic in topics
            for number in known[self._prefix + topic].partitions
        ]
        self._consumer.assign(self._partitions)

    def pump(self, timeout: float = 0.05) -> None:
        """Take what is there."""
        for message in self._consumer.consume(500, timeout):
            at = (message.topic(), message.partition())
            if message.error() is not None:
                if message.offset() is not None and message.offset() >= 0:
                    self._reached[at] = max(self._reached.get(at, 0), message.offset())
                continue
            self._reached[at] = message.offset() + 1
            raw = message.value()
            try:
                value = None if raw is None else json.loads(raw)
            except ValueError:
                value = raw
            seen = Seen(
                message.topic()[len(self._prefix) :], message.partition(), message.offset(),
                message.timestamp()[1], (message.key() or b"").decode(errors="replace"), value, raw,
            )  # fmt: skip
            self.by_topic[seen.topic].append(seen)
            self.by_key[seen.topic, seen.key].append(seen)

    def ends(self) -> dict[tuple[str, int], int]:
        """As this isolation level sees them."""
        level = getattr(IsolationLevel, self._isolation.upper())
        asked = {
            TopicPartition(p.topic, p.partition): OffsetSpec.latest() for p in self._partitions
        }
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=20)
        return {(p.topic, p.partition): answer.result().offset for p, answer in answers.items()}

    def read_up(self, seconds: float = 20) -> None:
        """To the ends as they are now."""
        ends = self.ends()

        def reached() -> bool:
            return all(self._reached.get(at, 0) >= end for at, end in ends.items())

        until(reached, "topics read to their ends", seconds, self.pump)

    def close(self) -> None:
        self._consumer.close()

    # what the records say

    def latest(self, topic: str, key: str) -> Any:
        found = self.by_key[topic, key]
        return found[-1].value if found else None

    def outcome(self, run_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.latest(OUTCOMES, run_id)
        return found

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return [seen.value for seen in self.by_key[EVENTS, run_id]]

    def questions(self) -> dict[str, dict[str, Any]]:
        """The open ones by approval id."""
        latest = {seen.key: seen.value for seen in self.by_topic[PENDING]}
        return {key: value for key, value in latest.items() if value is not None}


class Site:
    """Topics, roles and people of one deployment."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path, service: FakeService) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.directory = directory
        self.service = service
        self.roles: list[Role] = []
        self.drain_seconds = 10.0
        directory.mkdir(parents=True, exist_ok=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "acks": "all",
                "linger.ms": 2, "log_level": 0,
            }
        )  # fmt: skip
        self._watch: Watch | None = None

    def role(
        self,
        name: str,
        instance: str = "one",
        *,
        crashing: bool = False,
        data: Path | None = None,
        bootstrap: str | None = None,
        level: str = "INFO",
        flags: Sequence[str] = (),
    ) -> Role:
        """A role of this deployment, not started yet."""
        arguments = [name, *flags, "--bootstrap-servers", bootstrap or self.bootstrap]
        arguments += ["--topic-prefix", self.prefix, "--instance-id", instance]
        arguments += ["--data-dir", str(data or self.directory / "data"), "--log-level", level]
        if name == "worker":
            arguments += ["--tools", str(HERE / "chaos_tools.py")]
        environment = {
            "CHAOS_SERVICE": self.service.address,
            "PERDURE_DRAIN_SECONDS": str(self.drain_seconds),
        }
        stem = f"{name}-{instance}"
        plan = self.directory / f"{stem}.plan" if crashing else None
        made = Role(arguments, self.directory / f"{stem}.log", environment, plan)
        self.roles.append(made)
        return made

    def close(self) -> None:
        for role in self.roles:
            role.kill()
        if self._watch is not None:
            self._watch.close()

    def logs(self, lines: int = 25) -> str:
        return "\n".join(role.tail(lines) for role in self.roles)

    # what plain clients do

    @property
    def watch(self) -> Watch:
        """A read_committed reader of all that is public."""
        if self._watch is None:
            self._watch = Watch(self, "read_committed")
        return self._watch

    def produce(
        self,
        topic: str,
        *values: dict[str, Any],
        key: Callable[[dict[str, Any]], str] = lambda value: value.get("run_id", ""),
        partition: int | None = None,
    ) -> None:
        where = {} if partition is None else {"partition": partition}
        for value in values:
            name = key(value) or None
            self._producer.produce(self.prefix + topic, json.dumps(value), name, **where)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0, f"{topic}: not acknowledged"

    def submit(self, *tasks: dict[str, Any], partition: int | None = None) -> None:
        self.produce(TASKS, *tasks, key=lambda task: task["task_id"], partition=partition)

    def decide(self, question: dict[str, Any], decision: str, **more: Any) -> None:
        self.produce(
            DECISIONS,
            {
                "approval_id": question["approval_id"], "run_id": question["run_id"],
                "decision": decision, "approver": "ann", "digest": question["digest"], **more,
            },
        )  # fmt: skip

    def ready(self, seconds: float = 40) -> None:
        """Wait until the topics are there and the tools announced; then make the agent known."""
        admin = self._consumer_of_metadata()
        wanted = {self.prefix + topic for topic in (*WATCHED, TASKS, "agent.catalog")}
        try:
            until(
                lambda: self._alive() and wanted <= set(admin.list_topics(timeout=5).topics),
                "topics made", seconds, lambda: time.sleep(0.1),
            )  # fmt: skip
        finally:
            admin.close()
        catalog = Watch(self, "read_uncommitted", ["agent.catalog"])
        names = {f"tool/{name}" for name in TOOLS}
        until(
            lambda: self._alive() and names <= {s.key for s in catalog.by_topic["agent.catalog"]},
            "tools announced", seconds, catalog.pump,
        )  # fmt: skip
        catalog.close()
        people = {
            "name": "agent", "tools": list(TOOLS), "approvals": [
                {"approvers": ["ann"], "within_seconds": 600, "on_timeout": "cancel_run"},
            ], "people": {},
        }  # fmt: skip
        self.agent(people)

    def agent(self, spec: dict[str, Any]) -> None:
        self.produce("agent.catalog", spec, key=lambda value: f"agent/{value['name']}")

    def _alive(self) -> bool:
        for role in self.roles:
            assert role.starts == 0 or role.running(), (
                f"{role.name} ended with {role.exit_code}:\n{role.tail()}"
            )
        return True

    def _consumer_of_metadata(self) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"{self.prefix}meta", "log_level": 0}
        )

    def until(
        self,
        done: Callable[[], Any],
        what: str,
        seconds: float = 60,
        also: Callable[[], None] = lambda: None,
    ) -> Any:
        """Read on until ``done()``; a failure prints the roles' last lines."""

        def step() -> None:
            self.watch.pump()
            also()

        try:
            return until(done, what, seconds, step)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def outcome(
        self, run_id: str, seconds: float = 60, also: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        found: dict[str, Any] = self.until(
            lambda: self.watch.outcome(run_id), f"outcome of {run_id}", seconds, also
        )
        return found

    def question(self, run_id: str, seconds: float = 60) -> dict[str, Any]:
        """The open question of a run."""

        def found() -> dict[str, Any] | None:
            return next((q for q in self.watch.questions().values() if q["run_id"] == run_id), None)

        asked: dict[str, Any] = self.until(found, f"question of {run_id}", seconds)
        return asked


def plan_of(run_id: str, *tools: str, parallel: bool = False, **arguments: Any) -> dict[str, Any]:
    """A task that calls these tools, in order or side by side."""
    steps = [
        {
            "id": f"s{number}", "tool": tool, "arguments": {"ref": run_id, **arguments},
            **({"depends_on": []} if parallel else {}),
        }
        for number, tool in enumerate(tools, 1)
    ]  # fmt: skip
    return {"task_id": run_id, "agent": "agent", "plan": steps, "user_id": "kim"}
