"""The example's model: a Python function in place of a language model, so that no key is needed.

It does what a model that retrieves does: searches for the question, reads the document of the best
passage, and answers out of what it was given, which is all in its messages. It keeps nothing.
While the file that RETRIEVAL_HOLD names is there, it thinks about its answer: time to kill -9.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from diary import note
from ranking import Section


async def answer(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
    """The next turn: `docs.search`, `docs.read`, then a text."""
    note("model", messages=messages)
    question = next(m["content"] for m in messages if m["role"] == "user")
    results = [m["content"] for m in messages if m["role"] == "tool"]
    if not results:
        return _call("docs.search", query=question)
    passages = _passages(results[0])
    if not passages:
        return "Our documents say nothing about that."
    if len(results) == 1:
        return _call("docs.read", document=passages[0].document)
    await _while_held()
    best = passages[0]
    return f"{_as_read(results[1], best)} ({best.document}, {best.title})"


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def _passages(result: str) -> list[Section]:
    try:
        found = json.loads(result)["passages"]
    except (ValueError, KeyError, TypeError):
        return []  # the search failed: its result says why
    return [Section(each["document"], each["title"], each["text"]) for each in found]


def _as_read(result: str, passage: Section) -> str:
    """The passage's section in the whole document, or the passage itself if that can't be read."""
    try:
        _, _, found = json.loads(result)["text"].partition(f"## {passage.title.partition(': ')[2]}")
    except (ValueError, KeyError, TypeError):
        found = ""
    return found.partition("## ")[0].strip() or passage.text


async def _while_held() -> None:
    held = os.environ.get("RETRIEVAL_HOLD")
    while held and Path(held).exists():
        await asyncio.sleep(0.05)
