"""The inputs of the failure cases, as they were collected: `data/cases.json`, a table of id -> input.

Records name an agent `demo`; `of` may give another, because a model's replies are played per agent.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLE: dict[str, dict[str, Any]] = {
    entry["id"]: entry["input"]
    for entry in json.loads((Path(__file__).parent / "data" / "cases.json").read_text())
}


@dataclass(frozen=True)
class Sent:
    """One record as a producer sends it."""

    value: bytes | None
    key: str | bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None


def ids(case: str) -> list[str]:
    """The ids of a case that have an input."""
    return [name for name in _TABLE if name.split(".")[0] == case]


def of(name: str) -> dict[str, Any]:
    """The input of an id, each time a new copy."""
    return json.loads(json.dumps(_TABLE[name]))  # type: ignore[no-any-return]


def task(name: str, **changes: Any) -> dict[str, Any]:
    """The task of an id whose input is one task."""
    return {**of(name)["task"], **changes}


def replies(name: str) -> list[dict[str, Any]]:
    """A model's replies, with the generated arguments written out."""
    made = of(name)["replies"]
    for reply in made:
        for call in reply.get("tool_calls", ()):
            if "arguments_gen" in call:
                call["arguments"] = generated(call.pop("arguments_gen"))
    return made  # type: ignore[no-any-return]


def written(input: Any, **names: str) -> Any:
    """An input with the names of its places (`$APPROVAL`, ...) written out."""
    text = json.dumps(input)
    for name, value in names.items():
        text = text.replace(name, json.dumps(value)[1:-1])
    return json.loads(text)


def records(name: str) -> list[Sent]:
    """The records of an id, repeated ones as often as it says."""
    return [
        Sent(_value(made), made.get("key"), _headers(made))
        for made in of(name)["records"]
        for _ in range(made.get("repeat", 1))
    ]


def produced(name: str) -> list[dict[str, Any]]:
    """The tasks that the steps of an id produce."""
    return [step[2] for step in of(name)["steps"] if step[0] == "produce"]


def generated(expression: str) -> Any:
    """The value of a Python expression of the table (ours, committed)."""
    return eval(expression, {"json": json})


def _value(made: dict[str, Any]) -> bytes | None:
    if made.get("null"):
        return None
    if "raw" in made:
        return str(made["raw"]).encode()
    if "b64" in made:
        return base64.b64decode(made["b64"])
    if "gen" in made:
        return str(generated(made["gen"])).encode()
    return json.dumps(made["value"]).encode()


def _headers(made: dict[str, Any]) -> list[tuple[str, bytes | None]] | None:
    if "headers" not in made:
        return None
    return [(name, None if text is None else text.encode()) for name, text in made["headers"]]
