"""What any client of a simulated world can do and see: produce, submit, read."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.schemas import codec, topics
from perdure.schemas.records import AgentSpec

from .broker import Broker, Seen


class Clients:
    """Outside of all processes; a broker that is down raises `BrokerDown`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._submitted = 0

    def produce(self, topic: str, value: Any, key: str | None = None) -> None:
        """Any client; raises `BrokerDown`."""
        raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
        self.broker.produce(topic, None if key is None else key.encode(), raw)

    def apply(self, *agents: AgentSpec) -> None:
        """Write agents to the catalog."""
        for agent in agents:
            self.broker.produce(topics.CATALOG, f"agent/{agent.name}".encode(), codec.encode(agent))

    def submit(self, task_id: str | None = None, **task: Any) -> str:
        """Put a task on ``agent.tasks``; its run's id (``run-<n>`` if none is given)."""
        if task_id is None:
            self._submitted += 1
            task_id = f"run-{self._submitted}"
        self.produce(topics.TASKS, {"task_id": task_id, **task}, task_id)
        return task_id

    def records(self, topic: str) -> list[Seen]:
        """What a read_committed reader of the whole topic has seen by now."""
        found: list[Seen] = []
        for partition in range(self.broker.partition_count(topic)):
            found += self.broker.read(topic, partition)
        return found

    def documents(self, topic: str, key: str | None = None) -> list[Any]:
        """The JSON of `records`, those of one key if it is given."""
        wanted = None if key is None else key.encode()
        return [
            None if record.value is None else msgspec.json.decode(record.value)
            for record in self.records(topic)
            if wanted is None or record.key == wanted
        ]

    def outcome(self, run_id: str) -> Any | None:
        """The run's last outcome as plain JSON, or None."""
        found = self.documents(topics.OUTCOMES, run_id)
        return found[-1] if found else None

    def questions(self) -> dict[str, Any]:
        """The open questions by approval id."""
        open_now: dict[str, Any] = {}
        for record in self.records(topics.PENDING):
            key = (record.key or b"").decode()
            if record.value is None:
                open_now.pop(key, None)
            else:
                open_now[key] = msgspec.json.decode(record.value)
        return open_now
