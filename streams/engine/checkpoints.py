"""A run's recovery point: its last snapshot and the events since (contract section 1, *checkpoint*).

Theory of operation. A snapshot is the run's header and the records that changed since the one
before, written in one transaction; between two snapshots a decision writes one journal entry,
its events. Loading a run folds the journal over the snapshot with the appliers that made the
state in the first place, so the state after a crash does not depend on how often snapshots are
made. The run as it is now is remembered in memory only, and made again when it was forgotten.

A snapshot is due every ``every_steps`` steps or ``every_seconds``, and always at the run's
first and last decision and with the command of an external call: what recovery needs to judge
such a call never depends on a fold.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import BrokenHistory, evolve
from perdure.streams.core.decide.decision import Decision
from perdure.streams.core.effects import effect_now
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.state import Header, RecordKey, Run

from . import layout

_HEADER_WEIGHT: Final = 2_000
_ENTRY_WEIGHT: Final = 200
_ENTRY_BYTES: Final = 400_000
"""A decision of many large events is a snapshot: its records are apart, an entry is one record."""
_size = msgspec.json.Encoder().encode


class Reading(Protocol):
    """What loading needs of a context; `Stored` is one without an engine."""

    def get(self, key: bytes) -> Any | None: ...
    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]: ...


class Context(Reading, Protocol):
    """And what saving needs."""

    now: int

    def put(self, key: bytes, value: Any) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def recall(self, key: bytes) -> Any | None: ...
    def remember(self, key: bytes, value: Any | None, weight: int = 0) -> None: ...


class Snapshot(Struct, frozen=True):
    """Where the run stood when it was last written whole."""

    version: int
    step: int
    at: int


class Live(Struct, frozen=True):
    """A run as it is now, in memory: ``writes`` are the records changed since the snapshot."""

    header: Header
    writes: dict[RecordKey, Any]
    snapshot: Snapshot
    entries: tuple[int, ...]
    weight: int


def load(ctx: Reading, run_id: str) -> tuple[Run, Live] | None:
    """The run made of its snapshot and its journal, or None where there is none."""
    header: Header | None = ctx.get(layout.header(run_id))
    if header is None:
        return None
    snapshot = Snapshot(header.version, header.step, header.updated_at)
    run = Run(copy.copy(header), records_of(ctx, run_id))
    entries = []
    weight = _HEADER_WEIGHT
    for _, entry in ctx.scan(layout.journal(run_id)):
        if entry.version != run.header.version + 1:
            raise BrokenHistory(
                f"the journal goes on with version {entry.version} after {run.header.version}"
            )
        for event in _events(run.header, entry):
            evolve(run, event)
        entries.append(entry.version)
        weight += _ENTRY_WEIGHT + len(_size(entry.events))
    return run, Live(run.header, run.writes, snapshot, tuple(entries), weight)


def records_of(ctx: Reading, run_id: str) -> Callable[[RecordKey], Any | None]:
    """Reads a run's records; each once, however often a decision looks at it."""
    loaded: dict[RecordKey, Any] = {}

    def base(key: RecordKey) -> Any | None:
        found = loaded.get(key)
        if found is None:
            found = loaded[key] = ctx.get(layout.record(run_id, key))
        return found

    return base


def _events(header: Header, entry: layout.Journal) -> Iterator[RunEvent]:
    """The events of an entry. The hash is kept of the last alone: no applier looks at one."""
    last = len(entry.events) - 1
    for index, (type_, actor, data) in enumerate(entry.events):
        yield RunEvent(
            run_id=header.run_id,
            agent=header.agent,
            user_id=header.user_id,
            session_id=header.session_id,
            tenant=header.tenant,
            metadata=header.metadata,
            version=entry.version + index,
            type=type_,
            at=entry.at,
            actor=actor,
            data=data,
            previous_hash="",
            hash=entry.hash if index == last else "",
        )


def snapshot_of(run: Run) -> Iterator[tuple[bytes, Any]]:
    """The stored records of a snapshot: the header and what changed."""
    run_id = run.header.run_id
    yield layout.header(run_id), run.header
    for where, value in run.writes.items():
        yield layout.record(run_id, where), value


class Checkpoints:
    """The only owner of how a run's state lies in the store."""

    def load(self, ctx: Context, run_id: str) -> Run | None:
        """The run as it is now; its records are read through ``ctx``."""
        key = layout.header(run_id)
        live: Live | None = ctx.recall(key)
        if live is not None:
            # Into this savepoint: what is read while deciding may push it out of the cache.
            ctx.remember(key, live, live.weight)
            return Run(live.header, records_of(ctx, run_id), live.writes)
        found = load(ctx, run_id)
        if found is None:
            return None
        run, live = found
        ctx.remember(key, live, live.weight)
        return run

    def header(self, ctx: Context, run_id: str) -> Header | None:
        run = self.load(ctx, run_id)
        return None if run is None else run.header

    def save(self, ctx: Context, decision: Decision) -> None:
        """The decision's events as a journal entry, or the run whole where a snapshot is due."""
        run = decision.run
        header = run.header
        key = layout.header(header.run_id)
        before: Live | None = ctx.recall(key)
        size = _weight(decision.events)
        if before is None or size > _ENTRY_BYTES or self._due(before.snapshot, decision):
            for where, value in snapshot_of(run):
                ctx.put(where, value)
            for version in () if before is None else before.entries:
                ctx.delete(layout.journal(header.run_id, version))
            made = Snapshot(header.version, header.step, header.updated_at)
            ctx.remember(key, Live(header, {}, made, (), _HEADER_WEIGHT), _HEADER_WEIGHT)
            return
        first = decision.events[0].version
        entry = layout.Journal(
            version=first,
            at=decision.now,
            hash=header.hash,
            events=[[event.type, event.actor, event.data] for event in decision.events],
        )
        ctx.put(layout.journal(header.run_id, first), entry)
        weight = before.weight + _ENTRY_WEIGHT + size
        entries = (*before.entries, first)
        ctx.remember(key, Live(header, run.writes, before.snapshot, entries, weight), weight)

    @staticmethod
    def _due(last: Snapshot, decision: Decision) -> bool:
        run = decision.run
        header = run.header
        policy = run.definition.checkpoint
        return (
            header.status in FINAL
            or header.step - last.step >= policy.every_steps
            or decision.now - last.at >= policy.every_seconds * 1000
            or any(_calls_outside(run, event, decision.now) for event in decision.events)
        )

    def forget(self, ctx: Context, run_id: str) -> None:
        """The run is purged: nothing of it stays."""
        for kind in ("a", "m", "p", "x", "n", "k", "e"):
            for key, _ in list(ctx.scan(layout.prefix(kind, run_id))):
                ctx.delete(key)
        ctx.delete(layout.record(run_id, ("s", 0)))
        ctx.delete(layout.header(run_id))
        ctx.remember(layout.header(run_id), None)


def _calls_outside(run: Run, event: RunEvent, now: int) -> bool:
    return (
        event.type == "action_requested"
        and effect_now(run, run.action(event.data["n"]), now) == "external"
    )


def _weight(events: Iterable[RunEvent]) -> int:
    return sum(len(_size(event.data)) for event in events)


_codecs = functools.cache(layout.Codecs)


class Stored:
    """A run's stored records as a `Reading`: for commands that read the changelog."""

    def __init__(self, stored: dict[bytes, bytes]) -> None:
        self._stored = stored
        self._codecs = _codecs()

    def get(self, key: bytes) -> Any | None:
        raw = self._stored.get(key)
        return None if raw is None else self._codecs.decode(key, raw)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        for key in sorted(self._stored):
            if key.startswith(prefix) and (start is None or key >= start):
                yield key, self._codecs.decode(key, self._stored[key])
