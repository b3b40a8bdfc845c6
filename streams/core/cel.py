"""Conditions and expressions in CEL. Compiled once, evaluated on plain JSON values."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final

import cel


class ExpressionError(ValueError):
    """The expression can't be compiled, or has no value for this input."""


MAX_LENGTH = 4_000
MAX_NESTING = 50
_MACRO = re.compile(r"\.\s*(?:map|filter|all|exists|exists_one)\s*\(")


@lru_cache(maxsize=4096)
def _program(expression: str) -> Any:
    """Compile what can't harm: the library recurses without a bound, and a crash in its native
    code or a nested loop over large lists would stop the engine, again after each restart."""
    if not isinstance(expression, str):
        raise ExpressionError(f"an expression is a text, not {_short(expression)}")
    if len(expression) > MAX_LENGTH:
        raise ExpressionError(
            f"{_short(expression)}: has {len(expression)} characters; at most {MAX_LENGTH} are taken"
        )
    if _nesting(expression) > MAX_NESTING:
        raise ExpressionError(f"{_short(expression)}: nested deeper than {MAX_NESTING}")
    if len(_MACRO.findall(expression)) > 1:
        raise ExpressionError(
            f"{_short(expression)}: at most one of map, filter, all, exists and exists_one is taken"
        )
    try:
        return cel.compile(expression)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native code is no Exception
        raise ExpressionError(f"{_short(expression)} is not CEL: {_first_line(error)}") from error


def _nesting(expression: str) -> int:
    """How deep brackets go; a run of prefix operators counts as nesting too."""
    depth = deepest = run = longest = 0
    for character in expression:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
        run = run + 1 if character in "!-?" else run if character.isspace() else 0
        longest = max(longest, run)
    return max(deepest, longest)


def _short(expression: Any) -> str:
    text = repr(expression)
    return text if len(text) <= 200 else f"{text[:200]}..."


def check(expression: str) -> None:
    """Raise `ExpressionError` unless ``expression`` compiles."""
    _program(expression)


def evaluate(expression: str, variables: dict[str, Any]) -> Any:
    """The value of an expression. Raises `ExpressionError` for missing fields and wrong types."""
    try:
        return _program(expression).execute(variables)
    except ExpressionError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # KeyError, TypeError, ... by the kind of fault; or a panic
        raise ExpressionError(
            f"{_short(expression)}: {type(error).__name__}: {_first_line(error)}"
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


def arguments(given: Any, variables: dict[str, Any]) -> dict[str, Any]:
    """`fill` of a call's arguments, which may be one expression and must come to an object."""
    made = fill(given, variables)
    if isinstance(made, dict):
        return made
    raise ExpressionError(f"arguments must come to an object, not to a {type(made).__name__}")


_PART = re.compile(
    r"""\.?([A-Za-z_]\w*)|\[(\d{1,9})\]|\['([^'\\\r\n]*)'\]|\["([^"\\\r\n]*)"\]""", re.ASCII
)
_PATH = re.compile(rf"[A-Za-z_]\w*(?:(?=[.\[])(?:{_PART.pattern}))*", re.ASCII)


def _filled(expression: Any, variables: dict[str, Any]) -> Any:
    """A plain path is read as it is, the rest by CEL, whose integers have 64 bits: ours are exact
    beyond."""
    if isinstance(expression, str) and _PATH.fullmatch(expression):
        try:
            return _at(expression, variables)
        except LookupError:
            pass  # CEL says best what is missing
    return _plain(_exactly(expression, variables), expression)


def _at(path: str, variables: dict[str, Any]) -> Any:
    """What stands at a path: names, indexes and keys in brackets. Raises `LookupError`."""
    found: Any = variables
    for part in _PART.finditer(path):
        name = part[part.lastindex or 0]
        if part.lastindex == _INDEX and isinstance(found, list):
            found = found[int(name)]
        elif part.lastindex != _INDEX and isinstance(found, dict):
            found = found[name]
        else:
            raise LookupError(path)
    return found


_INDEX: Final = 2
"""The group of `_PART` that is a list's index."""


def _exactly(expression: str, variables: dict[str, Any]) -> Any:
    """The expression's value, with integers that CEL would make floats kept out of its reach.

    It sees something opaque in their place, which it can hand on but not compute with: rounded, they
    would be another order's id.
    """
    held: dict[str, int] = {}
    if not _too_long(variables):
        return evaluate(expression, variables)
    covered = _hold(variables, held)
    try:
        return _released(evaluate(expression, covered), held)
    except ExpressionError:
        evaluate(expression, variables)  # what is wrong with it whatever the numbers, is said so
    raise ExpressionError(
        f"{_short(expression)} computes with an integer beyond 64 bits, which would be rounded: "
        "such a one can only be handed on as it is"
    )


_HELD: Final = "\0integer"


def _too_long(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_too_long, value.values()))
    if isinstance(value, list):
        return any(map(_too_long, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _hold(value: Any, held: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _hold(inner, held) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hold(inner, held) for inner in value]
    if not _too_long(value):
        return value
    held[str(value)] = value
    return {_HELD: str(value)}


def _released(value: Any, held: dict[str, int]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_HELD} and value[_HELD] in held:
            return held[value[_HELD]]
        return {key: _released(inner, held) for key, inner in value.items()}
    return [_released(inner, held) for inner in value] if isinstance(value, list) else value


def _plain(value: Any, expression: str) -> Any:
    """``value`` if it is JSON: a timestamp or NaN in an event would fold to something else."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ExpressionError(f"{_short(expression)} gives {value}, which is not JSON")
    if isinstance(value, list):
        return [_plain(inner, expression) for inner in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(inner, expression) for key, inner in value.items()}
    raise ExpressionError(f"{_short(expression)} gives a {type(value).__name__}, which is not JSON")


def expressions(value: Any) -> list[str]:
    """Every expression that `fill` would evaluate, for checking a plan before it starts."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("$"), str):
            return [value["$"]]
        return [found for inner in value.values() for found in expressions(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in expressions(inner)]
    return []


def _first_line(error: BaseException) -> str:
    text = str(error).split("\n", 1)[0]
    return text[:200]
