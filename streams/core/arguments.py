"""Whether arguments fit a tool's schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema
import msgspec
from perdure.schemas.records import ToolSpec
from referencing.jsonschema import EMPTY_REGISTRY

_json = msgspec.json.Encoder(order="sorted")


def argument_error(tool: ToolSpec, arguments: dict[str, Any]) -> str | None:
    """Why arguments break the tool's schema, or None."""
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
