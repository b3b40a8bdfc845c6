"""Records nobody can work on, kept for operators as they came (contract section 10)."""

from __future__ import annotations

import hashlib

from .processor import Headers, Record

DEAD_LETTERS = "agent.dead-letters"
FITS = 1_000_000
KEPT = 65_536
_MAX_DETAIL = 1_000

Letter = tuple[str, "bytes | None", "bytes | None", Headers, "int | None"]


def dead_letter(record: Record, reason: str, detail: str) -> Letter:
    """The output for `Savepoint`. Too large: the first 64 kB, with length and SHA-256 beside."""
    headers: list[tuple[str, bytes | None]] = [
        ("reason", _text(reason)),
        ("detail", _text(detail[:_MAX_DETAIL])),
        ("topic", record.topic.encode()),
        ("partition", b"%d" % record.partition),
        ("offset", b"%d" % record.offset),
        ("timestamp", b"%d" % record.timestamp),
    ]
    key, value = record.key, record.value
    if key is not None and len(key) > KEPT:
        headers += [
            ("key_length", b"%d" % len(key)),
            ("key_sha256", hashlib.sha256(key).hexdigest().encode()),
        ]
        key = key[:KEPT]
    room = FITS - (len(key) if key else 0) - sum(len(n) + len(v or b"") for n, v in headers) - 200
    if value is not None and len(value) > room:
        headers += [
            ("length", b"%d" % len(value)),
            ("sha256", hashlib.sha256(value).hexdigest().encode()),
        ]
        value = value[:KEPT]
    return DEAD_LETTERS, key, value, headers, None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")
