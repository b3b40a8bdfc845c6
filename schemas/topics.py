"""The table of topics (contract section 2): the one place that names them and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field

DAY_MS = 86_400_000

TASKS = "agent.tasks"
RESULTS = "agent.results"
APPROVALS = "agent.approvals"
CONTROL = "agent.control"
FORWARDED = "agent.forwarded"
EVENTS = "agent.events"
VERDICTS = "agent.verdicts"
OUTCOMES = "agent.outcomes"
PENDING = "agent.approvals.pending"
BREAKERS = "agent.breakers"
CATALOG = "agent.catalog"
DEAD_LETTERS = "agent.dead-letters"

MAX_INBOUND_BYTES = 4_000_000
"""What a user may put on an inbound topic (and so what a forwarded record may weigh)."""
MAX_RECORD_BYTES = 1_000_000
"""Everything we write stays under this with key and headers, but for forwarded records."""


def commands(queue: str) -> str:
    """The topic a queue's connectors take their commands from."""
    return f"agent.commands.{queue}"


def changelog(processor: str) -> str:
    return f"agent.{processor}.changelog"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the contract describes it.

    ``partitions`` is None where the topic has the deployment's count (all run-keyed topics),
    else its own fixed count.
    """

    name: str
    key: str
    value: str
    cleanup: str
    written_by: str
    read_by: str
    retention_ms: int | None = None
    partitions: int | None = None
    append_time: bool = False
    max_message_bytes: int = 1_048_588
    extra: dict[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, str]:
        """The topic's settings as Kafka names them; `perdure topics check` compares these."""
        settings = {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(self.max_message_bytes),
        }
        if self.cleanup == "delete":
            settings["retention.ms"] = str(-1 if self.retention_ms is None else self.retention_ms)
        if self.append_time:
            settings["message.timestamp.type"] = "LogAppendTime"
        return settings | self.extra


_INBOUND = MAX_INBOUND_BYTES + 200_000  # batch and header overhead on top of the record

TOPICS: tuple[Topic, ...] = (
    Topic(TASKS, "run_id", "Task", "delete", "users", "engine", 7 * DAY_MS, max_message_bytes=_INBOUND),
    Topic(RESULTS, "run_id", "ActionResult", "delete", "connectors", "engine", 7 * DAY_MS, max_message_bytes=_INBOUND),
    Topic(
        APPROVALS, "run_id", "ApprovalDecision", "delete", "people, any client", "engine", 30 * DAY_MS,
        append_time=True, max_message_bytes=_INBOUND,
    ),
    Topic(CONTROL, "run_id", "ControlRequest", "delete", "people", "engine", 7 * DAY_MS, append_time=True, max_message_bytes=_INBOUND),
    Topic(EVENTS, "run_id", "RunEvent", "delete", "engine", "views, audit, evaluation"),
    Topic(VERDICTS, "run_id", "Verdict", "delete", "engine", "whoever asked", 7 * DAY_MS),
    Topic(OUTCOMES, "run_id", "Outcome", "compact", "engine", "users, views"),
    Topic(PENDING, "approval_id", "ApprovalRequest", "compact", "engine", "people, views", partitions=1),
    Topic(BREAKERS, "target", "BreakerState", "compact", "workers", "workers, views", partitions=1),
    Topic(CATALOG, "tool/<name>, agent/<name>", "ToolSpec, AgentSpec", "compact", "connectors, `perdure apply`", "engine, views", partitions=1),
    Topic(DEAD_LETTERS, "as it came", "the bytes as they came", "delete", "every processor", "operators, views", 30 * DAY_MS, partitions=1, max_message_bytes=_INBOUND),
    Topic(FORWARDED, "run_id", "inbound records on their way to their owner", "delete", "engine only", "engine", 7 * DAY_MS, max_message_bytes=_INBOUND),
)  # fmt: skip

_CHANGELOG_EXTRA = {
    "delete.retention.ms": str(7 * DAY_MS),
    "min.cleanable.dirty.ratio": "0.3",
    # The newest segment is never compacted: its size bounds what a restore reads for nothing.
    "segment.bytes": str(64 * 1024 * 1024),
}


def command_topic(queue: str) -> Topic:
    return Topic(
        commands(queue),
        "run_id",
        "ActionCommand",
        "delete",
        "engine",
        f"connectors of `{queue}`",
        7 * DAY_MS,
    )


def changelog_topic(processor: str) -> Topic:
    return Topic(
        changelog(processor),
        "private",
        "private",
        "compact",
        processor,
        processor,
        extra=_CHANGELOG_EXTRA,
    )


QUEUES = ("tools", "models")
"""The queues every deployment has; users add their own."""
ENGINE = "engine"


def worker(queue: str) -> str:
    """The name of the processor that serves a queue."""
    return f"worker.{queue}"


PROCESSORS = (ENGINE, *map(worker, QUEUES))
VIEWS = "views"
VIEW_TABLES = ("views.runs", "views.history", "views.outcomes")
"""The tables of the views, as processors: each has a changelog, all are read by the group `VIEWS`."""


def all_topics(
    queues: tuple[str, ...] = QUEUES, processors: tuple[str, ...] = PROCESSORS
) -> tuple[Topic, ...]:
    """Every topic of a deployment with these queues and processors."""
    return (*TOPICS, *map(command_topic, queues), *map(changelog_topic, processors))


def group_id(prefix: str, processor: str) -> str:
    """The consumer group of a processor; its members share one subscription."""
    return f"{prefix}perdure.{processor}"


def transactional_id(prefix: str, processor: str, instance_id: str) -> str:
    """Stable over restarts: a new process of the same instance aborts what the old one left."""
    return f"{prefix}{processor}.{instance_id}"
