"""Where a run's records stand in the store (architecture section 4), and their codecs.

Run ids hold no ``/``, so a prefix of a run is never a prefix of another's. Numbers are four
bytes, big endian, so that records lie in order.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from msgspec import Struct
from perdure.schemas.avro import StateCodec
from perdure.schemas.canonical import canonical
from perdure.streams.core.state import (
    Action,
    Approval,
    Header,
    Keyed,
    Message,
    Notes,
    RecordKey,
    Start,
)


class Remembered(Struct, kw_only=True):
    """A request's verdict (key ``k/<run>/<request_id>``): the same request gets the same answer."""

    request_id: str
    accepted: bool
    reason: str = ""
    version: int = 0
    at: int = 0


class Stub(Struct, kw_only=True):
    """What is kept of a purged run (key ``d/<run>``)."""

    digest: str
    status: str
    version: int
    hash: str


class Waiting(Struct, kw_only=True):
    """An inbound record that waits: a task for the catalog or its history (``w/<run>``), a request for its task
    (``h/<run>/<position>``), a record of a quarantined run (``q/<run>/<number>``)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    value: bytes
    by_reference: bool = False
    until: int = 0
    digest: str = ""


class Quarantine(Struct, kw_only=True):
    """A run whose own processing raised (key ``q/<run>``)."""

    reason: str
    since: int
    parked: int = 0
    parked_bytes: int = 0
    next: int = 0


class Journal(Struct, kw_only=True):
    """The events of one decision since the run's last snapshot (key ``e/<run>/<version>``)."""

    version: int
    """Of the first event."""
    at: int
    hash: str
    """Of the last event."""
    events: Any
    """[[type, actor, data], ...]: all that appliers look at."""


STATE: Final[tuple[type[Struct], ...]] = (Remembered, Stub, Waiting, Quarantine, Journal)

IDS_KEPT_MS: Final = 30 * 86_400_000
"""``task_id_retention_seconds``: how long an id is remembered that is no run's any more."""

_HEADER: Final = b"r/"
_STUB: Final = b"d/"
_QUARANTINE: Final = b"q/"
_WAITING: Final = b"w/"
_HELD: Final = b"h/"
_REMEMBERED: Final = b"k/"
_START: Final = b"s/"


def header(run_id: str) -> bytes:
    return _HEADER + run_id.encode()


def stub(run_id: str) -> bytes:
    return _STUB + run_id.encode()


def quarantine(run_id: str) -> bytes:
    return _QUARANTINE + run_id.encode()


def quarantines() -> bytes:
    """The prefix of all flags, and of what is parked for them."""
    return _QUARANTINE


def parked(run_id: str, number: int | None = None) -> bytes:
    """A parked record, or (None) the prefix of all of a run's."""
    prefix = _QUARANTINE + run_id.encode() + b"/"
    return prefix if number is None else prefix + number.to_bytes(4, "big")


def waiting(run_id: str) -> bytes:
    return _WAITING + run_id.encode()


def journal(run_id: str, version: int | None = None) -> bytes:
    """A journal entry, or (None) the prefix of all of a run's."""
    prefix = b"e/" + run_id.encode() + b"/"
    return prefix if version is None else prefix + version.to_bytes(4, "big")


def held(run_id: str, position: str = "") -> bytes:
    return _HELD + run_id.encode() + b"/" + position.encode()


def remembered(run_id: str, request_id: str = "") -> bytes:
    return _REMEMBERED + run_id.encode() + b"/" + request_id.encode()


def refused(run_id: str) -> bytes:
    """That a task of this id was refused, and its outcome says so; no request's id holds a ``~``."""
    return remembered(run_id, "~refused")


def remembered_modify(run_id: str, request_id: str, arguments: Any) -> bytes:
    """Of a modify without an id of its own: with other arguments it is another request."""
    digest = hashlib.sha256(canonical(arguments)).hexdigest()[:16]
    return remembered(run_id, f"{request_id}#{digest}")


def record(run_id: str, key: RecordKey) -> bytes:
    """The store's key of one of a run's records."""
    kind, n = key
    if kind == "s":
        return _START + run_id.encode()
    return kind.encode() + b"/" + run_id.encode() + b"/" + n.to_bytes(4, "big")


def prefix(kind: str, run_id: str) -> bytes:
    return kind.encode() + b"/" + run_id.encode() + b"/"


class Codecs:
    """Encodes and decodes stored values by the first letter of their key."""

    def __init__(self) -> None:
        waiting_codec = StateCodec(Waiting)
        self._codecs: dict[bytes, StateCodec[Any]] = {
            b"r": StateCodec(Header),
            b"s": StateCodec(Start),
            b"a": StateCodec(Action),
            b"m": StateCodec(Message),
            b"p": StateCodec(Approval),
            b"x": StateCodec(Keyed),
            b"n": StateCodec(Notes),
            b"k": StateCodec(Remembered),
            b"d": StateCodec(Stub),
            b"e": StateCodec(Journal),
            b"w": waiting_codec,
            b"h": waiting_codec,
        }
        self._parked = waiting_codec
        self._quarantine = StateCodec(Quarantine)

    def _of(self, key: bytes) -> StateCodec[Any]:
        kind = key[:1]
        if kind == b"q":
            return self._parked if key.count(b"/") > 1 else self._quarantine
        return self._codecs[kind]

    def encode(self, key: bytes, value: Any) -> bytes:
        return self._of(key).encode(value)

    def decode(self, key: bytes, raw: bytes) -> Any:
        return self._of(key).decode(raw)
