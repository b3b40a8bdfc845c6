"""Whether arguments may be a tool's: no reserved key in them, and they fit its schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import jsonschema
import msgspec
from perdure.schemas.records import ToolSpec
from referencing.jsonschema import EMPTY_REGISTRY

_json = msgspec.json.Encoder(order="sorted")


RESERVED: Final = "$blob"
"""The key of references to large values. In anybody's own value it would be taken for one."""
RESERVED_TEXT: Final = (
    f"the key {RESERVED} is reserved for references that Perdure makes: use another"
)


def holds_reserved(value: Any) -> bool:
    """Whether the reserved key stands anywhere in a value."""
    if isinstance(value, dict):
        return RESERVED in value or any(map(holds_reserved, value.values()))
    return isinstance(value, list) and any(map(holds_reserved, value))


def properties(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a tool's schema names: none where something else stands in their place.
    Any connector may announce any JSON; `argument_error` says it of a call."""
    found = parameters.get("properties")
    return found if isinstance(found, dict) else {}


def required(parameters: dict[str, Any]) -> list[Any]:
    """Those that a call must have."""
    found = parameters.get("required")
    return found if isinstance(found, list) else []


def argument_error(tool: ToolSpec, arguments: dict[str, Any]) -> str | None:
    """Why arguments can't be the tool's: they hold the reserved key, or break its schema. Or None."""
    if holds_reserved(arguments):
        return RESERVED_TEXT
    if not tool.parameters:
        return None
    try:
        found = next(_validator(_json.encode(tool.parameters)).iter_errors(arguments), None)
    except Exception as error:  # any connector may announce a schema that no validator can use
        return f"the schema of {tool.name} can't be used ({type(error).__name__}); its connector must mend it"
    if found is None:
        return None
    where = ".".join(str(part) for part in found.absolute_path)
    return f"{where}: {found.message[:300]}" if where else str(found.message[:300])


@lru_cache(maxsize=1024)
def _validator(schema: bytes) -> Any:
    """A validator that knows this schema alone and fetches nothing."""
    return jsonschema.Draft202012Validator(msgspec.json.decode(schema), registry=EMPTY_REGISTRY)
