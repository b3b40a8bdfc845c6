"""What a worker durably knows of its `external` calls.

Open: ``o/<run>/<n>/<attempt>``, written before the call begins (state ``started``). Closed:
``l/<run>/<n>/<attempt>``: ``finished`` with the result as it was sent; ``barred``: this attempt
never began and never will; ``absent``: it began, and the tool's query says it did not happen. So taking over a partition looks at the open ones alone. Closed entries are
deleted one day after the commands topic has forgotten the command: until then a command that
turns up again finds its answer here.

What the ledger has no entry of never began - unless it is older than the ledger: than what is
kept, or than `BEGAN`, which stands there only if all before was lost.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct
from perdure.schemas.avro import StateCodec
from perdure.schemas.records import doc
from perdure.schemas.topics import DAY_MS
from perdure.streams.runtime.processor import Context

KEEP_MS = 8 * DAY_MS
"""One day longer than the commands topic (7 days)."""
FOREIGN_GRACE_MS = 5_000
"""After another owner's call must have timed out: its clock may differ from ours."""

OPEN = b"o/"
CLOSED = b"l/"
PROGRESS = b"p/"
"""What an attempt has saved, while it runs: for whoever makes the same attempt after a crash."""
BEGAN = b"b/"
"""When the ledger began anew, if it was lost."""
CLEAN = b"c"
"""Timer: delete a closed entry."""
SETTLE = b"s"
"""Timer: the call of another owner is over by now."""


class LedgerEntry(Struct, omit_defaults=True, kw_only=True):
    """One attempt of an external action."""

    state: Annotated[str, doc("started, finished, barred, absent, progress or begun")]
    owner: Annotated[str, doc("instance id of the worker that wrote it")]
    target: Annotated[str, doc("the tool")]
    at: Annotated[int, doc("ms; when it started, ended or was barred")]
    timeout_seconds: Annotated[float, doc("of the call")] = 0.0
    command: Annotated[str | None, doc("the command as JSON, while open, if there is a query")] = (
        None
    )
    result: Annotated[str | None, doc("the ActionResult as JSON, once finished")] = None


STATE = (LedgerEntry,)

_codec: StateCodec[LedgerEntry] = StateCodec(LedgerEntry)


def encode(value: Any) -> bytes:
    """The stored form of an entry."""
    return _codec.encode(value)


def decode(raw: bytes) -> LedgerEntry:
    return _codec.decode(raw)


def attempt_key(action_id: str, attempt: int) -> bytes:
    return f"{action_id}/{attempt}".encode()


def action_of(key: bytes) -> tuple[str, int]:
    """Action id and attempt of a ledger key."""
    action, _, attempt = key[2:].decode().rpartition("/")
    return action, int(attempt)


def find(ctx: Context, action_id: str, attempt: int) -> LedgerEntry | None:
    """What is known of this attempt."""
    key = attempt_key(action_id, attempt)
    found: LedgerEntry | None = ctx.get(OPEN + key) or ctx.get(CLOSED + key)
    return found


def start(ctx: Context, action_id: str, attempt: int, entry: LedgerEntry) -> None:
    """Before the call: it may have happened from now on."""
    ctx.put(OPEN + attempt_key(action_id, attempt), entry)


def close(ctx: Context, action_id: str, attempt: int, entry: LedgerEntry) -> None:
    """Finished, barred or absent; remembered until the command can't come again."""
    key = attempt_key(action_id, attempt)
    ctx.delete(OPEN + key)
    ctx.put(CLOSED + key, entry)
    ctx.set_timer(ctx.now + KEEP_MS, CLEAN + CLOSED + key)


def save(ctx: Context, entry: LedgerEntry, action_id: str, attempt: int) -> None:
    """Keep an attempt's progress (``entry.result``)."""
    key = PROGRESS + attempt_key(action_id, attempt)
    if ctx.get(key) is None:
        ctx.set_timer(ctx.now + KEEP_MS, CLEAN + key)
    ctx.put(key, entry)


def saved(ctx: Context, action_id: str, attempt: int) -> str | None:
    """The progress of an earlier delivery of this attempt, as JSON."""
    entry: LedgerEntry | None = ctx.get(PROGRESS + attempt_key(action_id, attempt))
    return None if entry is None else entry.result


def unsave(ctx: Context, action_id: str, attempt: int) -> None:
    key = PROGRESS + attempt_key(action_id, attempt)
    if ctx.get(key) is not None:
        ctx.delete(key)


def begin_anew(ctx: Context, owner: str) -> None:
    """Nothing is known of what was made until now."""
    ctx.put(BEGAN, LedgerEntry(state="begun", owner=owner, target="", at=ctx.now))


def began(ctx: Context) -> int:
    """ms: what was sent before it may have been made, and have no entry here (any more)."""
    entry: LedgerEntry | None = ctx.get(BEGAN)
    return max(0 if entry is None else entry.at, ctx.now - KEEP_MS)


def clean(ctx: Context, key: bytes) -> None:
    """The timer of a closed entry, or of saved progress. One written again since has its time anew."""
    entry: LedgerEntry | None = ctx.get(key)
    if entry is None:
        return
    if entry.at + KEEP_MS <= ctx.now:
        ctx.delete(key)
    else:
        ctx.set_timer(entry.at + KEEP_MS, CLEAN + key)


def foreign_due(entry: LedgerEntry) -> int:
    """ms: from then on a call of another, dead owner is over."""
    return entry.at + int(entry.timeout_seconds * 1000) + FOREIGN_GRACE_MS
