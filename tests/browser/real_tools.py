"""A carrier that does not answer until a file is there: what a person takes over."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import TransientError, tool

REACHABLE = Path(os.environ.get("REAL_REACHABLE", "reachable"))


@tool("ship", effect="idempotent")
async def ship(parcel: str) -> dict[str, str]:
    """Ship a parcel."""
    if not REACHABLE.exists():
        raise TransientError("the carrier does not answer", code="http_503")
    return {"shipped": parcel}
