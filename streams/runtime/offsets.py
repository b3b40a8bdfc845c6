"""How far an input has been worked off, and what of that is committed.

`InputOffsets` owns the truth about one topic of one assignment. A record may be *held*: its
work goes on after its cycle. The committed offset is the lowest unfinished record; finished ones
above it are a bitmap in the commit's metadata, so a new owner does not hand them out again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec

MAX_DONE_TEXT = 3_000  # the broker takes 4,096 bytes of metadata by default


class OffsetNote(msgspec.Struct, omit_defaults=True):
    """What stands beside a committed offset."""

    id: str = ""  # the owner's transactional id: a new owner can abort what it left open
    done: str = ""  # finished records above the offset
    new: bool = False  # nothing of this partition has been committed yet, so nothing can be lost
    anew: bool = False  # ... but by those whose state was lost


_decode_note = msgspec.json.Decoder(OffsetNote).decode
_encode_note = msgspec.json.Encoder().encode


def read_note(metadata: str) -> OffsetNote:
    """Anything not ours (another tool's commit) is an empty note."""
    try:
        return _decode_note(metadata.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return OffsetNote()


def pack_done(base: int, offsets_bits: int) -> str:
    """Bit i: offset base + 1 + i is finished. The highest are left out beyond 3 kB: what is
    left out may be called again, which the ledger or the effect allows."""
    raw = offsets_bits.to_bytes((offsets_bits.bit_length() + 7) // 8, "little")
    return base64.b64encode(raw[: MAX_DONE_TEXT * 3 // 4]).decode().rstrip("=")


def unpack_done(base: int, text: str) -> set[int]:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return set()
    bits = int.from_bytes(raw, "little")
    return {base + 1 + i for i in range(bits.bit_length()) if bits >> i & 1}


class HeldRecord:
    """A `Hold`. ``finish`` may come from any thread; it is noticed in a coming cycle."""

    __slots__ = ("_finished", "left", "offset", "topic")

    def __init__(self, topic: str, offset: int, finished: Callable[[HeldRecord], None]) -> None:
        self.topic = topic
        self.offset = offset
        self.left = False
        self._finished = finished

    def leave(self) -> None:
        self.left = True

    def finish(self) -> None:
        self._finished(self)


class InputOffsets:
    """One topic of one assignment."""

    __slots__ = ("_done", "_held", "_new_holds", "_passed", "_saved", "dirty", "position")

    def __init__(self, position: int, done: set[int] | None = None) -> None:
        self.position = position  # the next offset to process
        self.dirty = False  # something to commit
        self._done = done or set()  # finished by a former owner, not yet passed
        self._held: dict[int, HeldRecord] = {}  # ascending, as records come in order
        self._saved = position
        self._new_holds: list[HeldRecord] = []
        self._passed: list[int] = []

    def is_done(self, offset: int) -> bool:
        return offset in self._done

    def advance(self, offset: int) -> None:
        """All below ``offset`` has been taken."""
        if offset <= self.position:
            return
        self.position = offset
        self.dirty = True
        if self._done:
            passed = [o for o in self._done if o < offset]
            while self.position in self._done:
                passed.append(self.position)
                self.position += 1
            self._done.difference_update(passed)
            self._passed += passed

    def hold(self, held: HeldRecord) -> None:
        self._held[held.offset] = held
        self._new_holds.append(held)

    def finish(self, held: HeldRecord) -> None:
        """Ignored for one whose cycle was aborted: the record was taken again, with a new hold."""
        if self._held.get(held.offset) is held:
            del self._held[held.offset]
            self.dirty = True

    @property
    def committed(self) -> int:
        return next(iter(self._held), self.position)

    @property
    def unfinished(self) -> int:
        """Held records that somebody here still works on."""
        return sum(not held.left for held in self._held.values())

    @property
    def span(self) -> int:
        return self.position - self.committed

    def done(self) -> str:
        """The finished ones above the committed offset."""
        if not self._held and not self._done:
            return ""
        base = self.committed
        bits = 0
        if self._held:
            bits = (1 << (self.position - base)) - 1
            for offset in self._held:
                bits &= ~(1 << (offset - base))
            bits >>= 1  # the lowest is unfinished: it needs no bit
        for offset in self._done:
            if offset > base:
                bits |= 1 << (offset - base - 1)
        return pack_done(base, bits) if bits else ""

    def note(self, owner: str, new: bool = False, anew: bool = False) -> str:
        return _encode_note(OffsetNote(owner, self.done(), new, new and anew)).decode()

    def settle(self) -> None:
        """The cycle is committed."""
        self._saved = self.position
        if self._new_holds:
            self._new_holds.clear()
        if self._passed:
            self._passed.clear()

    def rewind(self) -> None:
        """The cycle is void."""
        self.position = self._saved
        for held in self._new_holds:
            if self._held.get(held.offset) is held:
                del self._held[held.offset]
        self._new_holds.clear()
        self._done.update(self._passed)
        self._passed.clear()


class StoredOffsets(msgspec.Struct):
    """The runtime's own entry in store and changelog, written by every transaction."""

    partitions: int  # fixed for the life of a prefix: keys would map elsewhere
    now: int  # the partition's time: it never goes back, also on another machine
    inputs: dict[str, tuple[int, str]]  # topic: committed offset, finished ones above it
    topic_ids: dict[str, str] = {}  # an input made anew under its name has other offsets


_decode_stored = msgspec.json.Decoder(StoredOffsets).decode


def encode_stored(stored: StoredOffsets) -> bytes:
    return _encode_note(stored)


def decode_stored(raw: bytes) -> StoredOffsets:
    return _decode_stored(raw)
