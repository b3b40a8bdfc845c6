"""The OpenAI-compatible protocol: what a strict service refuses, and a reply as it sends it."""

from __future__ import annotations

import json
import re
from typing import Any

Reply = dict[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_pairing(messages: list[dict[str, Any]]) -> str | None:
    """Why a strict model API would answer 400 to a history, or None."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not waiting or message.get("tool_call_id") != waiting[0]:
                return f"a tool message out of its turn: {message.get('tool_call_id')}"
            if not isinstance(message.get("content"), str):
                return "a tool message whose content is no text"
            del waiting[0]
            continue
        if waiting:
            return f"calls without results: {waiting}"
        calls = message.get("tool_calls") or ()
        waiting = [call["id"] for call in calls]
        if len(set(waiting)) != len(waiting) or "" in waiting:
            return f"call ids twice or empty: {waiting}"
        wrong = next((text for call in calls if (text := _wrong_call(call["function"]))), None)
        if wrong is not None:
            return wrong
        if message.get("content") is None and not waiting:
            return f"a {message['role']} message without content"
    return f"calls without results: {waiting}" if waiting else None


def _wrong_call(function: dict[str, Any]) -> str | None:
    if not _NAME.fullmatch(function["name"]):
        return f"a function's name does not match: {function['name']!r}"
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return f"arguments are broken JSON: {function['arguments']!r}"
    return None if isinstance(arguments, dict) else f"arguments are no object: {arguments!r}"


def completion(reply: Reply, body: dict[str, Any], number: int) -> Reply:
    """The answer to request ``number``: `$seq` makes an id of it; a call may lack its id; a `usage`
    with `max_tokens` says that the reply is as long as the request allows."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.get("content")}
    calls = [_call(call, number) for call in reply.get("tool_calls", ())]
    if calls:
        message["tool_calls"] = calls
    used = {"prompt_tokens": 10, "completion_tokens": 5, **reply.get("usage", {})}
    if used.pop("max_tokens", None) is not None:
        used["completion_tokens"] = body["max_tokens"]
    made = {
        "id": "1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": reply["finish_reason"], "message": message}],
        "usage": {**used, "total_tokens": used["prompt_tokens"] + used["completion_tokens"]},
    }
    return {"status": 200, "body_raw": json.dumps(made)}


def _call(call: dict[str, Any], number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "function"}
    if "id" in call:
        made["id"] = call["id"].replace("$seq", f"call_{number}")
    made["function"] = {"name": call["name"], "arguments": call["arguments"]}
    return made
