"""What people see: safe text, tables, times in words. Rich on a terminal, plain lines elsewhere.

Whatever a model or a user wrote goes through `safe`: it can't move the cursor, hide itself or
turn the line around.
"""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec

from perdure.streams.core.policies.approval import shown

_json = msgspec.json.Encoder()
_KEPT_WIDTH = 18


def safe(value: Any, limit: int = 120) -> str:
    """Text for a terminal; what is no text is shown as its JSON."""
    return shown(value if isinstance(value, str) else _json.encode(value).decode(), limit)


def is_terminal(stream: TextIO | None = None) -> bool:
    return (stream or sys.stdout).isatty()


def emit(text: str = "", style: str | None = None) -> None:
    """One line on stdout; ``style`` counts on a terminal only. ``text`` must be safe."""
    if style is None or not is_terminal():
        print(text, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False, soft_wrap=True).print(Text(text, style=style))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout. On a terminal cells wrap; elsewhere a row is one line, columns aligned."""
    if not is_terminal():
        widths = [
            max(len(column), *(len(row[i]) for row in rows)) if rows else len(column)
            for i, column in enumerate(columns)
        ]
        for row in (columns, *rows):
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
        sys.stdout.flush()
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        longest = max((len(row[index]) for row in rows), default=0)
        # The last column is prose and gives way first.
        least = None if index == len(columns) - 1 else min(longest, _KEPT_WIDTH)
        made.add_column(column, overflow="fold", min_width=least)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(made)


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """A duration in its two largest units at most: ``3 d 4 h``, ``12 s``, ``0.4 s``."""
    if seconds < 1:
        return f"{max(seconds, 0):.1f} s"
    whole = int(seconds)
    for index, (size, name) in enumerate(_UNITS):
        if whole >= size:
            text = f"{whole // size} {name}"
            if index + 1 < len(_UNITS):
                smaller, small_name = _UNITS[index + 1]
                rest = whole % size // smaller
                text += f" {rest} {small_name}" if rest else ""
            return text
    return "0 s"


def clock(at: int) -> str:
    """A time (ms) as the local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))


def time_of_day(at: int) -> str:
    """A time (ms) as the local time, to the millisecond: for lines that come as things happen."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at / 1000))}.{at % 1000:03d}"


def ago(at: int, now: int | None = None) -> str:
    """How long ago, in its largest unit: ``12 min ago``."""
    words = span(((now or now_ms()) - at) / 1000).split(" ")
    return f"{words[0]} {words[1]} ago"


def paragraphs(value: Any, limit: int = 4_000) -> list[str]:
    """A longer text as safe lines; what is no text is one line of JSON."""
    if not isinstance(value, str):
        return [safe(value, limit)]
    cut = value[:limit]
    left = len(value) - len(cut)
    lines = [safe(text, limit) for text in cut.split("\n")]
    return [*lines, f"... ({left} characters more)"] if left else lines


def now_ms() -> int:
    return int(time.time() * 1000)


_WITHOUT_ANSWER = {
    "cancel_run": "the run is cancelled",
    "escalate": "others are asked",
    "approve": "it is approved",
    "reject": "it is rejected",
    "retry": "it is tried again",
    "mark_done": "it counts as done",
    "mark_not_done": "it counts as not done and is called again",
}


def deadline(at: int, what: str, now: int | None = None) -> str:
    """When a question expires and what happens then, in words."""
    left = (at - (now or now_ms())) / 1000
    then = _WITHOUT_ANSWER.get(what, f"then: {what}")
    if left <= 0:
        return f"expired {span(-left)} ago ({then})"
    return f"{span(left)} left, until {clock(at)}; then {then.removeprefix('then: ')}"


def user_name() -> str | None:
    """Who sits here, or None where the system does not say."""
    try:
        return getpass.getuser() or None
    except (OSError, KeyError, ImportError):
        return None
