"""Inbound records that wait in the store: for the catalog, for their task, for a release.

A large value (a task of 2 MB may wait for its agent) stands in the blob store, the record holds
the reference.
"""

from __future__ import annotations

from typing import Final

import msgspec
from perdure.streams.runtime.processor import Record

from . import layout
from .outputs import Outputs

INLINE_BYTES: Final = 100_000


class Kept:
    """Makes stored forms of records, and records of stored forms."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def store(self, record: Record, until: int = 0, digest: str = "") -> layout.Waiting:
        value = record.value or b""
        by_reference = len(value) > INLINE_BYTES
        return layout.Waiting(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            value=msgspec.json.encode(self._outputs.put(value)) if by_reference else value,
            by_reference=by_reference,
            until=until,
            digest=digest,
        )

    def record(self, waiting: layout.Waiting) -> Record:
        value = waiting.value
        if waiting.by_reference:
            value = self._outputs.fetch(msgspec.json.decode(value))
        return Record(
            topic=waiting.topic,
            partition=waiting.partition,
            offset=waiting.offset,
            timestamp=waiting.timestamp,
            key=None,
            value=value,
        )
