"""A tool's arguments: the JSON Schema of its type hints, and the check against them.

Strict: a text is never taken for a number nor a number for a text; what JSON can't say itself
(dates, sets, enums, models) is read from its JSON form. An unknown argument is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NotRequired, get_type_hints

import msgspec
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from .errors import InvalidArguments


class DefinitionError(ValueError):
    """A tool is declared wrongly; the text says what to change."""


_encode = msgspec.json.Encoder().encode
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The arguments of one function, its context left out."""

    def __init__(self, function: Callable[..., Any], context_type: type, label: str) -> None:
        hints = _hints(function, label)
        self.context: str | None = None
        fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for position, parameter in enumerate(inspect.signature(function).parameters.values()):
            name = parameter.name
            hint = hints.get(name, inspect.Parameter.empty)
            if parameter.kind not in _NAMED:
                raise DefinitionError(
                    f"{label}: parameter `{parameter}` can't be described to a model; name every argument"
                )
            if hint is context_type or (position == 0 and name in ("context", "ctx")):
                self.context = name
                continue
            if hint is inspect.Parameter.empty:
                raise DefinitionError(
                    f"{label}: parameter `{name}` has no type hint; write `{name}: str` or what it is"
                )
            if parameter.default is not inspect.Parameter.empty:
                defaults[name] = parameter.default
                hint = NotRequired[hint]
            fields[name] = hint
        self.names = tuple(fields)
        self.required = tuple(name for name in fields if name not in defaults)
        self._read, self.schema = _adapter(fields, defaults, label)

    def check(self, arguments: Any) -> dict[str, Any]:
        """The keyword arguments for the call. Raises `InvalidArguments` that names each fault."""
        if arguments is None:
            arguments = {}
        try:
            return self._read(_encode(arguments), strict=True)
        except ValidationError as error:
            raise InvalidArguments(_explain(error), code="schema") from None


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{label}: a type hint can't be read: {error}; types of a tool must stand at the module's top level"
        ) from error


def _adapter(
    fields: dict[str, Any], defaults: dict[str, Any], label: str
) -> tuple[Callable[..., dict[str, Any]], dict[str, Any]]:
    make: Any = TypedDict  # made at run time, which a type checker can't follow
    arguments = make("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(arguments)
        schema = adapter.json_schema()
    except (PydanticUserError, TypeError) as error:
        text = str(error).split("\n")[0]
        raise DefinitionError(f"{label}: the type hints give no JSON Schema: {text}") from error
    _untitle(schema)
    for name, value in defaults.items():
        try:
            schema["properties"][name].setdefault("default", to_jsonable_python(value))
        except PydanticSerializationError:
            continue  # a default that JSON can't show is still the default
    schema.setdefault("properties", {})
    return adapter.validator.validate_json, schema


def _untitle(schema: Any) -> None:
    """Drop pydantic's generated titles: tokens a model would read for nothing."""
    if isinstance(schema, list):
        for inner in schema:
            _untitle(inner)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for word, inner in schema.items():
            if word in ("properties", "$defs", "patternProperties"):
                for member in inner.values():
                    _untitle(member)
            elif word not in ("default", "const", "enum", "examples"):
                _untitle(inner)


def _explain(error: ValidationError) -> str:
    parts = []
    for fault in error.errors(include_url=False, include_context=False):
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fault["loc"])
        kind, text = fault["type"], str(fault["msg"])
        if kind == "extra_forbidden":
            text = "is no argument of this tool"
        elif kind == "missing":
            text = "is required"
        else:
            given = repr(fault["input"])
            text = text[0].lower() + text[1:] + (f", not {given}" if len(given) <= 60 else "")
        parts.append(f"arguments{place}: {text}")
    return "; ".join(parts[:10]) + (f"; and {len(parts) - 10} more" if len(parts) > 10 else "")


def documentation(function: Callable[..., Any]) -> str:
    """What the model reads: the docstring."""
    return inspect.cleandoc(function.__doc__ or "")


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
