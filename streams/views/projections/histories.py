"""Events as they are kept: several of one run in one compressed record of the table."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from perdure.schemas.records import RunEvent

CHUNK_BYTES: Final = 400_000
"""Of events in one record before compression; one event alone may be longer (under 1 MB)."""

_decoder = msgspec.json.Decoder(RunEvent)


def event_of(raw: bytes) -> RunEvent | None:
    """The event of a record of agent.events, or None where it is none."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def chunks(raws: Iterable[bytes]) -> Iterator[bytes]:
    """The records that hold these events, in order."""
    held: list[bytes] = []
    size = 0
    for raw in raws:
        if held and size + len(raw) > CHUNK_BYTES:
            yield zlib.compress(b"\n".join(held), 1)
            held, size = [], 0
        held.append(raw.replace(b"\n", b" "))  # between values only: within texts JSON has none
        size += len(raw)
    if held:
        yield zlib.compress(b"\n".join(held), 1)


def raws_in(chunk: bytes) -> list[tuple[RunEvent, bytes]]:
    """The events of one record, each with its bytes."""
    return [(_decoder.decode(raw), raw) for raw in zlib.decompress(chunk).split(b"\n")]


def events_in(chunk: bytes) -> list[RunEvent]:
    """The events of one record."""
    return _decoder.decode_lines(zlib.decompress(chunk))
