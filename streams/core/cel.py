"""Conditions and expressions in CEL. Compiled once, evaluated on plain JSON values."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import cel


class ExpressionError(ValueError):
    """The expression can't be compiled, or has no value for this input."""


@lru_cache(maxsize=4096)
def _program(expression: str) -> Any:
    try:
        return cel.compile(expression)
    except Exception as error:  # the library raises ValueError subclasses and its own
        raise ExpressionError(f"{expression!r} is not CEL: {_first_line(error)}") from error


def check(expression: str) -> None:
    """Raise `ExpressionError` unless ``expression`` compiles."""
    _program(expression)


def evaluate(expression: str, variables: dict[str, Any]) -> Any:
    """The value of an expression. Raises `ExpressionError` for missing fields and wrong types."""
    try:
        return _program(expression).execute(variables)
    except ExpressionError:
        raise
    except Exception as error:  # KeyError, TypeError, ValueError, RuntimeError by the kind of fault
        raise ExpressionError(
            f"{expression!r}: {type(error).__name__}: {_first_line(error)}"
        ) from error


def fill(value: Any, variables: dict[str, Any]) -> Any:
    """``value`` with every object whose only key is ``$`` replaced by its expression's value."""
    if isinstance(value, dict):
        if len(value) == 1 and "$" in value:
            return _filled(value["$"], variables)
        return {key: fill(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, variables) for inner in value]
    return value


_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


def _filled(expression: Any, variables: dict[str, Any]) -> Any:
    """A plain path is read as it is: CEL's integers have 64 bits, ours are exact beyond."""
    if isinstance(expression, str) and _PATH.fullmatch(expression):
        found: Any = variables
        for name in expression.split("."):
            if not isinstance(found, dict) or name not in found:
                break  # CEL says best what is missing
            found = found[name]
        else:
            return found
    return _plain(evaluate(expression, variables), expression)


def _plain(value: Any, expression: str) -> Any:
    """``value`` if it is JSON: a timestamp or NaN in an event would fold to something else."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ExpressionError(f"{expression!r} gives {value}, which is not JSON")
    if isinstance(value, list):
        return [_plain(inner, expression) for inner in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(inner, expression) for key, inner in value.items()}
    raise ExpressionError(f"{expression!r} gives a {type(value).__name__}, which is not JSON")


def expressions(value: Any) -> list[str]:
    """Every expression that `fill` would evaluate, for checking a plan before it starts."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("$"), str):
            return [value["$"]]
        return [found for inner in value.values() for found in expressions(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in expressions(inner)]
    return []


def _first_line(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return text[:200]
