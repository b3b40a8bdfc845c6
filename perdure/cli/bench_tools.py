"""The tools that ``perdure bench`` calls: they do nothing, through the whole path."""

from __future__ import annotations

from perdure.connectors.tool import tool


@tool("bench.read", effect="read_only")
async def read(size: int) -> dict[str, str]:
    """Return ``size`` bytes."""
    return {"data": "x" * size}


@tool("bench.write", effect="external", approval="never")
async def write(size: int) -> dict[str, str]:
    """Return ``size`` bytes, declared as external: the path through the ledger."""
    return {"data": "x" * size}


@tool("bench.hold", effect="read_only", approval="always")
async def hold() -> None:
    """Never called: its question is where a run is left."""
