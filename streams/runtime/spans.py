"""Spans of traces as plain values, with ids made of names: who knows the name knows the parent.

So no state says which span a later one belongs to, also after a crash or on another machine, and a
span that is made twice is the same one. Ids and the header are those of W3C Trace Context, level 1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Value = str | int | float | bool

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something at one time (ms) of a span."""

    name: str
    at: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work that is over. Times in ms since the epoch; ``error`` is a kind, no text."""

    trace_id: str
    span_id: str
    parent: str | None
    name: str
    started_at: int
    ended_at: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    outgoing: bool = False  # a call to another system


Sink = Callable[[Span], None]
"""Takes a span and never blocks: what can't be kept is dropped, and counted there."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a ``traceparent`` says."""

    trace_id: str
    parent: str
    sampled: bool

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.parent}-{'01' if self.sampled else '00'}"


def trace_of(header: str | bytes | None) -> Trace | None:
    """The header read; None for none, and for what is not one (it is passed on all the same)."""
    if isinstance(header, bytes):
        header = header.decode("ascii", "replace")
    match = _HEADER.fullmatch(header or "")
    if match is None:
        return None
    version, trace_id, parent, flags = match.groups()
    if version == "ff" or (version == "00" and len(header or "") != 55):
        return None
    if trace_id == "0" * 32 or parent == "0" * 16:
        return None
    return Trace(trace_id, parent, bool(int(flags, 16) & 1))


def span_id(name: str) -> str:
    return _digest("span", name)[:16]


def trace_id(name: str) -> str:
    return _digest("trace", name)[:32]


def is_sampled(trace_id: str, share: float) -> bool:
    """The same answer everywhere, by the trace's lower 64 bits, as OpenTelemetry's ratio sampler."""
    return int(trace_id[16:], 16) < share * 2**64


def _digest(what: str, name: str) -> str:
    made = hashlib.sha256(f"perdure {what} {name}".encode("utf-8", "replace")).hexdigest()
    return made if made[:16].strip("0") and made[16:32].strip("0") else _digest(what, f"{name}!")
