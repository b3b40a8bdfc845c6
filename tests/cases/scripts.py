"""Short scripts for the model of a case."""

from __future__ import annotations

import json
from typing import Any

Reply = dict[str, Any]
END: Reply = {"content": "done", "finish_reason": "stop"}


def asks(*calls: tuple[str, Any]) -> Reply:
    """A reply with these calls; arguments that are a text go out as they are."""
    made = [
        {
            "id": f"c{n}",
            "name": tool,
            "arguments": given if isinstance(given, str) else _json(given),
        }
        for n, (tool, given) in enumerate(calls)
    ]
    return {"tool_calls": made, "finish_reason": "tool_calls"}


def call(tool: str, arguments: Any) -> list[Reply]:
    """One call, then the end."""
    return [asks((tool, arguments)), END]


def _json(value: Any) -> str:
    return json.dumps(value)
