"""How far every processor of a deployment is behind, for the page's health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from perdure.schemas import topics
from perdure.streams.cluster.errors import ClusterError
from perdure.streams.runtime.errors import KafkaUnreachable, Unanswered
from perdure.streams.runtime.ports import Admin, Kafka
from perdure.streams.views.ports import Unavailable

from .backlog import Backlog, Behind, Input

_ENGINE: Final = (
    topics.TASKS, topics.RESULTS, topics.APPROVALS, topics.CONTROL, topics.FORWARDED,
)  # fmt: skip


class KafkaWatch:
    """Of all processors, whoever runs them. ``letters``: how many dead letters there are. ``queues``:
    those there are now; whoever has a queue of their own wants to know that nobody serves it."""

    def __init__(
        self,
        kafka: Kafka,
        group_of: Callable[[str], str],
        letters: Callable[[], int],
        queues: Callable[[], Iterable[str]] = lambda: (),
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._kafka = kafka
        self._admin: Admin | None = None
        self._letters = letters
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._group_of = group_of
        self._queues = queues
        self._inputs = {
            topics.ENGINE: Input(group_of(topics.ENGINE), _ENGINE),
            topics.VIEWS: Input(group_of(topics.VIEWS), (topics.EVENTS, topics.OUTCOMES)),
        }
        self._know(topics.QUEUES)
        self._backlog = Backlog(self._partitions, self._inputs, kafka)

    def _know(self, queues: Iterable[str]) -> None:
        for queue in queues:
            name = topics.worker(queue)
            if name not in self._inputs:
                self._inputs[name] = Input(self._group_of(name), (topics.commands(queue),))

    def look(self) -> dict[str, Any]:
        try:
            with self._lock:
                self._know(self._queues())
                rows = self._backlog.ask()
        except (KafkaUnreachable, Unanswered, ClusterError) as error:
            raise Unavailable(f"Kafka does not say how far the processors are: {error}") from error
        lag: dict[str, int] = {}
        processors = {name: {"behind": 0, "started": False} for name in self._inputs}
        for row in rows:
            lag[row.spot.topic] = lag.get(row.spot.topic, 0) + row.records
            of = processors[row.processor]
            of["behind"] += row.records
            of["started"] = of["started"] or row.started
        return {
            "lag": lag,
            "processors": processors,
            "dead_letters": self._letters(),
            "oldest_task_age_seconds": self._oldest_task(rows),
        }

    def _oldest_task(self, rows: list[Behind]) -> float | None:
        """0 where none waits; None where one does and its age can't be read."""
        waiting = [row for row in rows if row.spot.topic == topics.TASKS and row.records]
        if not waiting:
            return 0.0
        ages = [self._now_ms() - row.oldest_at for row in waiting if row.oldest_at is not None]
        return max(ages) / 1000 if ages else None

    def _partitions(self) -> Mapping[str, range]:
        firsts = {name: of.topics[0] for name, of in self._inputs.items()}
        if self._admin is None:
            self._admin = self._kafka.admin()
        counts = self._admin.partition_counts([*firsts.values()])
        return {name: range(counts.get(first, 0)) for name, first in firsts.items()}


def queues_of(names: Iterable[str], prefix: str) -> list[str]:
    """The queues among a cluster's topics."""
    before = prefix + topics.commands("")
    return sorted(name.removeprefix(before) for name in names if name.startswith(before))
