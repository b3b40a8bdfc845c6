"""Values on their way to and from a browser: JSON numbers there are floats.

An integer beyond ±(2^53 - 1) travels as ``{"$int": "digits"}``; a free-form value that has the only
key ``$int`` itself travels under ``$int_`` (one more ``_`` for each it has already).
"""

from __future__ import annotations

import re
from typing import Any, Final

SAFE: Final = 2**53 - 1
_ESCAPED: Final = re.compile(r"^\$int_*$")
_DIGITS: Final = re.compile(r"^-?[0-9]{1,4000}$")


class NotExact(ValueError):
    """A ``$int`` that holds no digits."""


def outward(value: Any) -> Any:
    """The value as a browser can hold it."""
    if isinstance(value, int):
        return value if isinstance(value, bool) or -SAFE <= value <= SAFE else {"$int": str(value)}
    if isinstance(value, dict):
        if len(value) == 1:
            ((key, inner),) = value.items()
            if isinstance(key, str) and _ESCAPED.match(key):
                return {key + "_": outward(inner)}
        return {key: outward(inner) for key, inner in value.items()}
    return [outward(inner) for inner in value] if isinstance(value, list) else value


def inward(value: Any) -> Any:
    """What `outward` was given. Raises `NotExact`."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((key, inner),) = value.items()
            if key == "$int":
                if not isinstance(inner, str) or not _DIGITS.match(inner):
                    raise NotExact('"$int" must hold the digits of an integer, as a text')
                return int(inner)
            if isinstance(key, str) and _ESCAPED.match(key):
                return {key[:-1]: inward(inner)}
        return {key: inward(inner) for key, inner in value.items()}
    return [inward(inner) for inner in value] if isinstance(value, list) else value


def cut(value: Any, text: int = 400, items: int = 50, depth: int = 6) -> Any:
    """The value with what is long in it shortened: ``{"$cut": characters, "start": ...}``."""
    if isinstance(value, str) and len(value) > text:
        return {"$cut": len(value), "start": value[:text]}
    if isinstance(value, dict | list) and depth == 0:
        return {"$cut": len(value), "start": ""}
    if isinstance(value, dict):
        kept = list(value.items())[:items]
        made: dict[str, Any] = {key: cut(inner, text, items, depth - 1) for key, inner in kept}
        if len(value) > items:
            made["$cut"] = len(value)
        return made
    if isinstance(value, list):
        shown = [cut(inner, text, items, depth - 1) for inner in value[:items]]
        return [*shown, {"$cut": len(value)}] if len(value) > items else shown
    return value
