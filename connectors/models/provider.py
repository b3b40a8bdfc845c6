"""The port every model provider implements.

``request`` is what the engine put in the command: ``model`` (a ModelSpec as a dict),
``messages``, ``tools``, ``seed``, ``temperature``, ``max_output_tokens``, ``response_schema``,
``turn``; for scripted models also ``reply`` and ``input``. Names carry dots; a provider that
can't take them converts. Whether a reply makes sense (known tools, arguments that fit) is the
core's to judge; a provider only brings it into one shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.schemas import canonical
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Usage

from ..errors import Failure


@dataclass(slots=True)
class ToolCall:
    """One call the model proposes. ``raw``: what it wrote, where that is no JSON object."""

    id: str | None
    name: str
    arguments: dict[str, Any] | None
    raw: str | None = None


@dataclass(slots=True)
class Reply:
    """What a model said."""

    content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str = "stop"
    model: str = ""
    notes: list[str] = field(default_factory=list)
    usage: Usage | None = None

    def as_result(self) -> dict[str, Any]:
        """The ActionResult's ``result``."""
        calls: list[dict[str, Any]] = []
        for call in self.tool_calls:
            made: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": call.arguments}
            if call.raw is not None:
                made["raw"] = call.raw
            calls.append(made)
        return {
            "content": self.content,
            "tool_calls": calls,
            "finish_reason": self.finish_reason,
            "model": self.model,
            "notes": self.notes,
        }


class ModelError(Exception):
    """The call gave no reply the core could use; what it cost counts all the same."""

    def __init__(
        self,
        kind: str,
        code: str,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = Failure(kind, code, message[:4000], retry_after_seconds)
        self.usage = usage


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The call a completion is part of."""

    action_id: str
    timeout_seconds: float
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Run something that blocks."""


class Provider(Protocol):
    """One way to reach models."""

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        """Raises `ModelError`."""


def usage_of(said: Any, read: str = "input_tokens", written: str = "output_tokens") -> Usage | None:
    """What a provider says it counted; what is no count is 0."""
    if not isinstance(said, dict) or not said:
        return None
    usage = Usage(_count(said.get(read)), _count(said.get(written)))
    cost = said.get("cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 < cost < math.inf:
        usage.cost = float(cost)
    return usage


def _count(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53
    return value if whole else 0


def text_of(content: Any) -> str | None:
    """A message's content as the text a model reads."""
    if content is None or isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def object_of(raw: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Arguments as an object, or None and what stood there. Empty and null are ``{}``."""
    if isinstance(raw, dict):
        return raw, None
    if raw is None:
        return {}, None
    text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    if not text.strip():
        return {}, None
    try:
        value = canonical.parse(text)  # strict: two readers must not see two different objects
    except RecordError:
        return None, text
    if value is None:
        return {}, None
    return (value, None) if isinstance(value, dict) else (None, text)
