"""Tools whose secrets nobody may find in a log, a figure or a trace."""

from __future__ import annotations

import os
from typing import Any

from perdure import ToolContext, TransientError, tool


def _secret() -> str:
    return os.environ["OBSERVED_SECRET"]


@tool("charge", effect="idempotent", sensitive=["card"])
async def charge(context: ToolContext, card: str) -> dict[str, Any]:
    """Fails once, and says what nobody may read."""
    if context.attempt == 1:
        raise TransientError(f"{card} is busy at {_secret()}")
    return {"card": card, "with": _secret()}


@tool("explode", effect="read_only")
async def explode(card: str) -> None:
    """Raises what is in no table."""
    raise RuntimeError(f"{card} with {_secret()}")


@tool("gone", effect="read_only")
async def gone(card: str) -> None:
    """Its service does not answer."""
    raise TransientError(f"{_secret()} is not there", code="connect_refused")
