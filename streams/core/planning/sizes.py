"""How many tokens a value weighs before anybody has counted them, and how a text is shortened.

The estimate is three bytes of JSON a token: more than most text has, so that the first request of a
run errs on the safe side. What a provider reports corrects it (``Header.scale``, `changes.correct`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

BYTES_A_TOKEN: Final = 3
LEAST_SCALE: Final = 750
"""Thousandths: four bytes a token. No report makes a request larger than that."""
MOST_SCALE: Final = 4_000
_json = msgspec.json.Encoder()


def weigh(value: Any) -> int:
    """Tokens of a value's JSON, before correction."""
    return -(-len(_json.encode(value)) // BYTES_A_TOKEN)


def referred(value: Any) -> int:
    """Tokens that a reference to a large value stands for: whoever sends the request resolves it."""
    if isinstance(value, dict) and "$blob" in value:
        size = value.get("size")
        return -(-size // BYTES_A_TOKEN) if isinstance(size, int) else 0
    return 0


def message(shown: dict[str, Any]) -> int:
    """Tokens of one message as it is sent."""
    calls = shown.get("tool_calls", ())
    if not calls and isinstance(shown["content"], str):
        return weigh(shown)
    by_reference = referred(shown["content"]) + sum(referred(call["arguments"]) for call in calls)
    return weigh(shown) + by_reference


def shares(sizes: Sequence[int], together: int, each: int) -> list[int]:
    """What each of several may take of ``together``, none more than ``each``.

    The small ones get what they need; the large ones share the rest alike.
    """
    if len(sizes) == 1:
        return [min(sizes[0], each, together)]
    given = [0] * len(sizes)
    left, waiting = together, len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        given[index] = min(sizes[index], each, left // waiting)
        left -= given[index]
        waiting -= 1
    return given


def cut(text: str, tokens: int, whole: int | None = None) -> str:
    """The text, or its beginning with a marker, so that its JSON weighs at most ``tokens``.

    ``whole``: how many characters there are in all, where ``text`` is a beginning already.
    """
    room = tokens * BYTES_A_TOKEN - 2  # the quotes
    characters = len(text) if whole is None else whole
    if characters == len(text) and len(text) <= room and _bytes(text) <= room:
        return text
    marker = f"... [shortened: {characters} characters in all]"
    keep = min(len(text), room - len(marker))
    while keep > 0 and (over := _bytes(text[:keep]) + len(marker) - room) > 0:
        keep = min(keep - 1, keep - over // 6)  # no character takes more than six bytes
    return text[:keep] + marker if keep > 0 else "[...]"[: max(room, 0)]


def _bytes(text: str) -> int:
    return len(_json.encode(text)) - 2
