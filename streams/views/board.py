"""What every view process holds whole: open questions, the catalog, breakers. Small compacted topics.

Not Faust's: a group would give each topic's one partition to one process, and all must show it. Fed
from the topics' beginning at each start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import AgentSpec, ApprovalRequest, BreakerState, ToolSpec

T = TypeVar("T", bound=msgspec.Struct)


class Board:
    """``asked`` hears of a question that opens (True) or closes (False)."""

    def __init__(
        self, asked: Callable[[str, bool], None] = lambda approval_id, is_open: None
    ) -> None:
        self._lock = threading.Lock()
        self._asked = asked
        self._questions: dict[str, ApprovalRequest] = {}
        self._agents: dict[str, AgentSpec] = {}
        self._tools: dict[str, ToolSpec] = {}
        self._marked: dict[str, frozenset[str]] = {}
        self._breakers: dict[str, BreakerState] = {}
        self.caught_up = threading.Event()

    def take(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """One record of the pending, catalog or breakers topic; what can't be read is left out."""
        name = (key or b"").decode("utf-8", "replace")
        if topic == topics.PENDING:
            with self._lock:
                _into(self._questions, name, value, ApprovalRequest)
                is_open = name in self._questions
            self._asked(name, is_open)
            return
        with self._lock:
            if topic == topics.BREAKERS:
                _into(self._breakers, name, value, BreakerState)
            elif name.startswith("agent/"):
                _into(self._agents, name.removeprefix("agent/"), value, AgentSpec)
            elif name.startswith("tool/"):
                tool = name.removeprefix("tool/")
                _into(self._tools, tool, value, ToolSpec)
                if tool in self._tools:
                    marked = frozenset(self._tools[tool].sensitive)
                    self._marked[tool] = self._marked.get(tool, frozenset()) | marked

    def questions(self) -> list[ApprovalRequest]:
        """The open questions, those that expire first at the front."""
        with self._lock:
            found = list(self._questions.values())
        return sorted(found, key=lambda asked: (asked.expires_at, asked.approval_id))

    def question(self, approval_id: str) -> ApprovalRequest | None:
        with self._lock:
            return self._questions.get(approval_id)

    def agents(self) -> dict[str, AgentSpec]:
        with self._lock:
            return dict(self._agents)

    def tools(self) -> dict[str, ToolSpec]:
        with self._lock:
            return dict(self._tools)

    def sensitive(self, tool: str | None) -> frozenset[str]:
        """All that any version of the tool has marked, also of one that is gone: a question was
        asked under one of them."""
        with self._lock:
            return self._marked.get(tool or "", frozenset())

    def all_sensitive(self) -> frozenset[str]:
        with self._lock:
            return frozenset().union(*self._marked.values())

    def breakers(self) -> dict[str, BreakerState]:
        with self._lock:
            return dict(self._breakers)


def _into(
    table: dict[str, Any], name: str, value: bytes | None, kind: type[msgspec.Struct]
) -> None:
    if value is None:
        table.pop(name, None)
        return
    try:
        made: Any = codec.decode(value, kind)
    except RecordError:
        return
    known = table.get(name)
    older = isinstance(made, ToolSpec | AgentSpec) and known and made.version < known.version
    if not older:  # as the engine takes it: a lower version never replaces a higher
        table[name] = made
