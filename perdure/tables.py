"""What the compacted topics stand for, and the answer to one request; what can't be read is left out.

Apart from `perdure.reading`, which needs the core: a client imports this at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import (
    AgentSpec,
    ApprovalRequest,
    BreakerState,
    Outcome,
    ToolSpec,
    Verdict,
)

from .topics_reader import Raw, Scanner


def questions(scanner: Scanner) -> dict[str, ApprovalRequest]:
    """The open questions by approval id."""
    found: dict[str, ApprovalRequest] = {}
    for raw in scanner.scan([topics.PENDING]):
        if raw is not None:
            _into(found, raw, "", ApprovalRequest)
    return found


def catalog(scanner: Scanner) -> tuple[dict[str, ToolSpec], dict[str, AgentSpec]]:
    """The announced tools and the agents in force, by name."""
    tools: dict[str, ToolSpec] = {}
    agents: dict[str, AgentSpec] = {}
    for raw in scanner.scan([topics.CATALOG]):
        if raw is not None:
            _into(tools, raw, "tool/", ToolSpec)
            _into(agents, raw, "agent/", AgentSpec)
    return tools, agents


def breakers(scanner: Scanner) -> dict[str, BreakerState]:
    """What the workers last said of targets, by target."""
    found: dict[str, BreakerState] = {}
    for raw in scanner.scan([topics.BREAKERS]):
        if raw is not None:
            _into(found, raw, "", BreakerState)
    return found


def _into(found: dict[str, Any], raw: Raw, start: str, kind: type[msgspec.Struct]) -> None:
    """One record of a compacted topic into the table it stands for; what can't be read is left out."""
    key = (raw.key or b"").decode("utf-8", "replace")
    if not key.startswith(start):
        return
    name = key.removeprefix(start)
    if raw.value is None:
        found.pop(name, None)
        return
    try:
        found[name] = codec.decode(raw.value, kind)
    except RecordError:
        return


def outcome(scanner: Scanner, run_id: str) -> Outcome | None:
    """How a run ended, or None where that is not known (yet)."""
    found: bytes | None = None
    for raw in scanner.scan([topics.OUTCOMES], run_id=run_id):
        if raw is not None and raw.key == run_id.encode():
            found = raw.value
    try:
        return None if found is None else codec.decode(found, Outcome)
    except RecordError:
        return None


def verdict(
    scanner: Scanner,
    run_id: str,
    request_id: str,
    timeout: float,
    since: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Verdict | None:
    """The verdict on a request, or None if none came within ``timeout`` s.

    ``since`` (ms): when the request was made, or earlier; older verdicts are not looked through.
    """
    wanted = run_id.encode()
    every = scanner.scan(
        [topics.VERDICTS],
        run_id=run_id,
        follow=True,
        timeout=timeout,
        since=since,
        stopped=stopped,
    )
    for raw in every:
        if raw is None or raw.key != wanted or raw.value is None:
            continue
        try:
            made = codec.decode(raw.value, Verdict)
        except RecordError:
            continue
        if made.request_id == request_id:
            return made
    return None
