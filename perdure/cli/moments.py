"""Times as people write them: a date, a date and time (local unless it says its zone), or ms."""

from __future__ import annotations

import time
from datetime import datetime

from perdure.schemas.records import MAX_TIME_MS

_MS_DIGITS = 12
"""So many digits at least: fewer would be seconds, or a year, and mean some day in 1970."""


def moment(text: str) -> int:
    """The time in ms. Raises ValueError with a sentence."""
    plain = text.strip()
    if plain.isascii() and plain.isdigit() and len(plain) >= _MS_DIGITS:
        at = int(plain)
    else:
        try:
            at = round(datetime.fromisoformat(plain).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            raise ValueError(
                f"{text!r} is no time: give a date (2026-11-01), a date and time "
                "(2026-11-01T09:30, local; or with a zone: 2026-11-01T09:30Z), or ms"
            ) from None
    if not 0 <= at <= MAX_TIME_MS:
        raise ValueError(f"{text!r} is out of range: 1970 to 9999")
    return at


def zone() -> str:
    """The reader's zone, as it is now: ``CET (+01:00)``."""
    here = time.strftime("%z", time.localtime())
    return f"{time.strftime('%Z', time.localtime())} ({here[:3]}:{here[3:]})"
