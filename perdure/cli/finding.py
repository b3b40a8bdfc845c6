"""What `perdure doctor` has to say of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARN: Final = "warn"
PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, how bad it is, and in words what to do."""

    name: str
    level: str
    text: str
