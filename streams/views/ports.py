"""What the API needs of the rest of the world; each has a fake of a few lines in the tests."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.schemas.records import (
    ApprovalDecision,
    ControlRequest,
    Outcome,
    RunEvent,
    Task,
    Verdict,
)


class Elsewhere(LookupError):
    """The run is another process's, at ``address``; None: on its way, ask again."""

    def __init__(self, address: str | None) -> None:
        super().__init__(address)
        self.address = address


class Histories(Protocol):
    """The tables of this process."""

    def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        """A run's events above a version, oldest first. Raises `Elsewhere`."""
        ...

    def outcome(self, run_id: str) -> Outcome | None:
        """How it ended. Raises `Elsewhere`."""
        ...

    def owner(self, run_id: str) -> str | None:
        """The address of the process that holds the run; None: this one."""
        ...

    def others(self) -> list[str]:
        """The addresses of the other view processes."""
        ...

    def instances(self) -> list[dict[str, Any]]:
        """``[{instance, partitions}]`` of every view process."""
        ...

    def ready(self) -> bool: ...

    def whole(self) -> bool:
        """Every partition that this process was given is read: its lists have no holes."""
        ...


class Door(Protocol):
    """The write path: it only produces to the inbound topics. Everything here blocks."""

    def submit(self, task: Task) -> str: ...

    def decide(self, decision: ApprovalDecision) -> str:
        """Signed on that person's behalf where the door has a key; returns the request id."""
        ...

    def control(self, request: ControlRequest) -> str: ...

    def verdict(self, run_id: str, request_id: str, wait: float) -> Verdict | None: ...


class Watch(Protocol):
    """How the processors keep up. Blocks; asked at most once in two seconds."""

    def look(self) -> dict[str, Any]:
        """``{lag, processors, dead_letters, oldest_task_age_seconds}``."""
        ...


class Unavailable(Exception):
    """Kafka did not take or answer something; the text says what to do."""
