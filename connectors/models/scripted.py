"""A model that says what its script says: for tests, demos and benchmarks, at no cost.

Anywhere in a reply's content and arguments an object whose only key is ``$`` is replaced by the
value of that CEL expression over ``input`` (the task's) and ``last`` (the last tool's result).
"""

from __future__ import annotations

import functools
import json
from typing import Any

import cel

from .provider import ModelContext, ModelError, Reply, ToolCall, object_of, text_of, usage_of


@functools.lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    return cel.compile(expression)


class Scripted:
    """Replies from ``request["reply"]``, which the engine picked by the turn."""

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        template = request.get("reply")
        turn = request.get("turn", 0)
        if template is None:
            raise ModelError("model_invalid", "script_ended", f"the script has no reply {turn}")
        if not isinstance(template, dict):
            raise ModelError(
                "model_invalid",
                "script_invalid",
                f"reply {turn} must be an object with content or tool_calls",
            )
        scope: dict[str, Any] | None = None

        def fill(value: Any) -> Any:
            nonlocal scope
            if isinstance(value, dict):
                if value.keys() == {"$"} and isinstance(value["$"], str):
                    if scope is None:
                        last = _last(request.get("messages") or [])
                        scope = {"input": request.get("input"), "last": last}
                    return _evaluate(value["$"], scope, turn)
                return {name: fill(inner) for name, inner in value.items()}
            return [fill(inner) for inner in value] if isinstance(value, list) else value

        calls = []
        proposed = template.get("tool_calls") or []
        if not isinstance(proposed, list) or not all(isinstance(made, dict) for made in proposed):
            raise ModelError(
                "model_invalid",
                "script_invalid",
                f"reply {turn} of the script: tool_calls must be a list of objects",
            )
        for index, made in enumerate(proposed):
            arguments, raw = object_of(fill(made.get("arguments")))
            given = made.get("id")
            calls.append(
                ToolCall(
                    f"call_{turn}_{index}" if given is None else given,
                    str(made.get("name", "")),
                    arguments,
                    raw,
                )
            )
        return Reply(
            content=text_of(fill(template.get("content"))),
            tool_calls=calls,
            finish_reason=template.get("finish_reason") or ("tool_calls" if calls else "stop"),
            model=(request.get("model") or {}).get("name") or "scripted",
            usage=usage_of(template.get("usage")),
        )


def _evaluate(expression: str, scope: dict[str, Any], turn: Any) -> Any:
    try:
        return _program(expression).execute(scope)
    except Exception as error:  # whatever the CEL library raises, the script is at fault
        raise ModelError(
            "model_invalid",
            "script_invalid",
            f"reply {turn} of the script: {expression!r}: {error}",
        ) from None


def _last(messages: list[Any]) -> Any:
    """The content of the last tool message, as JSON if it is."""
    for message in reversed(messages):
        if message.get("role") == "tool":
            content = message.get("content")
            if not isinstance(content, str):
                return content
            try:
                return json.loads(content)
            except ValueError:
                return content
    return None
