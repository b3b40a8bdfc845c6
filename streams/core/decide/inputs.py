"""The messages a run is decided on. `ActionResult` is used as it comes off its topic, unless what it
holds can't be read."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from perdure.schemas.records import ActionResult, ApprovalDecision, ControlRequest, Task


class StartTask(Struct):
    """A task that starts a run. ``task`` has its defaults filled in; large values are references."""

    task: Task
    run_id: str
    nonce: str
    digest: str
    origin: dict[str, Any]


class Decided(Struct):
    """A person's decision. ``at`` is the broker's time of the record (ms)."""

    decision: ApprovalDecision
    request_id: str
    at: int
    verified: str = "none"
    refused: str | None = None
    """Why it proves nothing, where it claims to."""
    again: bool = False
    """Its default id was accepted before: a record that came twice, or another decision in the same words."""


class Control(Struct):
    """A request to a run."""

    request: ControlRequest
    request_id: str


class Unusable(Struct):
    """A call that succeeded, with a result that can't be used, and why."""

    result: ActionResult
    why: str


class Timer(Struct):
    """A run's timer that came due: ``act/<n>``, ``ask/<n>`` or ``deadline``."""

    name: str
