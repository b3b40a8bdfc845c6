"""The only way these tests wait: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def until(done: Callable[[], object], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Ended, also where nobody has collected its exit code yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
