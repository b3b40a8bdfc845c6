"""Records on a foreign partition travel once, inside the transaction, to their owner's.

The value goes as it came; where it came from stands in headers put last, so that a producer's
own headers of the same names can't pass for ours.
"""

from __future__ import annotations

from .processor import Headers, Record

_TOPIC = "perdure-origin-topic"
_PARTITION = "perdure-origin-partition"
_OFFSET = "perdure-origin-offset"
_TIMESTAMP = "perdure-origin-timestamp"
_KEY = "perdure-origin-key"
_NAMES = (_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _KEY)

Forwarded = tuple[str, "bytes | None", "bytes | None", Headers, "int | None"]


class Misrouted(Exception):
    """A record of the private topic that no engine of ours put there."""


def forward(record: Record, topic: str, owner: str, partition: int) -> Forwarded:
    origin = (
        (_TOPIC, record.topic.encode()),
        (_PARTITION, b"%d" % record.partition),
        (_OFFSET, b"%d" % record.offset),
        (_TIMESTAMP, b"%d" % record.timestamp),
        (_KEY, record.key),
    )
    return topic, owner.encode(), record.value, (*record.headers, *origin), partition


def unwrap(record: Record) -> Record:
    """The original record. Raises `Misrouted`."""
    headers = record.headers
    own, origin = headers[: -len(_NAMES)], headers[-len(_NAMES) :]
    if tuple(name for name, _ in origin) != _NAMES:
        raise Misrouted("it does not say where it came from")
    (_, topic), (_, partition), (_, offset), (_, timestamp), (_, key) = origin
    try:
        return Record(
            _known(topic).decode(),
            int(_known(partition)),
            int(_known(offset)),
            int(_known(timestamp)),
            key,
            record.value,
            own,
        )
    except ValueError as e:
        raise Misrouted(f"where it came from can't be read: {e}") from e


def _known(content: bytes | None) -> bytes:
    if content is None:
        raise ValueError("a header is null")
    return content
