"""Tools of the end-to-end tests: each writes what it did into a file, once per real effect."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import BusinessError, tool

EFFECTS = Path(os.environ.get("E2E_EFFECTS", "effects.txt"))


def _note(text: str) -> None:
    with EFFECTS.open("a") as out:
        out.write(text + "\n")


@tool("look", effect="read_only")
async def look(word: str) -> dict[str, int]:
    """Count the letters of a word."""
    if word == "missing":
        raise BusinessError("there is no such word")
    return {"letters": len(word)}


@tool("pay", effect="external", approval="arguments.amount > 100", title="Pay {amount}")
async def pay(amount: float) -> dict[str, float]:
    """Pay an amount."""
    _note(f"pay {amount}")
    return {"paid": amount}
