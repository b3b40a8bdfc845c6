"""The lists: rows of this process's partitions as a database, so that a page of 100,000 runs costs little.

Made anew from the tables at each start; it holds nothing that they do not. SQLite because it
filters, orders and counts outside Python's lock; one connection, one lock around it. On disk, so
that memory does not grow with the runs there have been; nothing of the file is ever read again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from perdure.schemas.records import Outcome

from .projections import rows
from .projections.rows import Row

_SCHEMA: Final = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, part INTEGER, version INTEGER, agent TEXT, user_id TEXT, session_id TEXT,
  tenant TEXT, status TEXT, paused INTEGER, updated_at INTEGER, busy_until INTEGER, title TEXT, row BLOB
) WITHOUT ROWID;
CREATE TABLE outcomes (run_id TEXT PRIMARY KEY, part INTEGER, complete INTEGER) WITHOUT ROWID;
CREATE TABLE quarantined (run_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX by_time ON runs (updated_at DESC, run_id, title);
CREATE INDEX by_status ON runs (status, updated_at DESC, run_id);
CREATE INDEX by_agent ON runs (agent, updated_at DESC, run_id);
CREATE INDEX by_agent_status ON runs (agent, status, updated_at DESC, run_id);
CREATE INDEX by_user ON runs (user_id, updated_at DESC, run_id);
CREATE INDEX by_session ON runs (session_id, updated_at DESC, run_id);
CREATE INDEX by_tenant ON runs (tenant, updated_at DESC, run_id);
CREATE INDEX by_tenant_status ON runs (tenant, status, updated_at DESC, run_id);
CREATE INDEX by_part ON runs (part);
"""
_THROWN_AWAY: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -32000;
"""
"""A file that no later start reads needs no journal; 32 MB hold what the lists of 100,000 runs touch."""

CHUNK: Final = 500
_PUT: Final = "INSERT OR REPLACE INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
_OPEN: Final = ("running", "waiting_approval", "compensating")
_MOVING: Final = ("running", "compensating")
_FEW: Final = 1_000
"""So many runs that fit a free text are taken in one look through the titles."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs: every field narrows. ``after`` is the place of the last run of the page before."""

    status: Sequence[str] = ()
    agent: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    tenant: str | None = None
    since: int | None = None
    until: int | None = None
    q: str | None = None
    stuck_before: int | None = None
    """Runs that ought to move, wait for nothing later than now, and have not since this (ms)."""
    quarantined: bool = False
    limit: int = 50
    after: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    runs: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0


class Index:
    """Rows by run, and what is counted over them; in the file ``path``, which is made anew.

    Without one in a temporary file of the system's.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.unlink(missing_ok=True)
        self._db = sqlite3.connect(path or "", check_same_thread=False, isolation_level=None)
        self._db.executescript(_THROWN_AWAY + _SCHEMA)
        self._lock = threading.Lock()
        self._minutes: dict[int, list[float]] = {}
        self._newest = 0
        self._waiting: dict[str, int] = {}
        self._calls: dict[str, list[int]] = {}
        self._last: dict[str, tuple[int, int]] = {}

    # --- written by the projection ----------------------------------------------------------

    def put(self, part: int, changed: Iterable[Row]) -> None:
        """Rows of a partition, in place of what was known of these runs. The lock is given back in
        between: whoever asks meanwhile does not wait for all of them."""
        rest = iter(changed)
        while chunk := list(islice(rest, CHUNK)):
            made = [(row, _columns(part, row)) for row in chunk]
            with self._lock:
                self._db.execute("BEGIN")
                for row, columns in made:
                    old = self._row(row.run_id)
                    if old is not None:
                        self._count(old, -1)
                    self._count(row, 1)
                    self._db.execute(_PUT, columns)
                self._db.execute("COMMIT")
            time.sleep(0)

    def put_outcome(self, part: int, run_id: str, outcome: Outcome | None) -> Row | None:
        """How a run ended (None: it goes on); the row of a task that never became a run, if it is one."""
        made = None
        with self._lock:
            if outcome is None:
                self._db.execute("DELETE FROM outcomes WHERE run_id = ?", (run_id,))
            else:
                self._db.execute(
                    "INSERT OR REPLACE INTO outcomes VALUES (?,?,?)",
                    (run_id, part, outcome.complete),
                )
                if outcome.version == 0 and self._row(run_id) is None:
                    made = rows.refused(outcome)
        if made is not None:
            self.put(part, [made])
        return made

    def keep_partitions(self, parts: Iterable[int]) -> None:
        """Forget the runs of every other partition: another process shows them now."""
        kept = {int(part) for part in parts}
        with self._lock:
            known = self._db.execute("SELECT DISTINCT part FROM runs").fetchall()
            marks = ",".join(map(str, kept)) or "-1"
            self._db.execute(f"DELETE FROM outcomes WHERE part NOT IN ({marks})")
        for part in {int(found) for (found,) in known} - kept:
            while self._forget(part):
                time.sleep(0)

    def _forget(self, part: int) -> bool:
        """Some runs of a partition; whether there were any."""
        with self._lock:
            gone = self._db.execute(
                "SELECT run_id, row FROM runs WHERE part = ? LIMIT ?", (part, CHUNK)
            ).fetchall()
            self._db.execute("BEGIN")
            for run_id, raw in gone:
                self._count(_decode(raw), -1)
                self._db.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
            self._db.execute("COMMIT")
        return bool(gone)

    def quarantine(self, run_id: str, is_so: bool) -> None:
        with self._lock:
            if is_so:
                self._db.execute("INSERT OR REPLACE INTO quarantined VALUES (?)", (run_id,))
            else:
                self._db.execute("DELETE FROM quarantined WHERE run_id = ?", (run_id,))

    def _row(self, run_id: str) -> Row | None:
        found = self._db.execute("SELECT row FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return None if found is None else _decode(found[0])

    def _count(self, row: Row, sign: int) -> None:
        self._count_minutes(row, sign)
        if row.status in _OPEN and _busy_until(row) > 0:
            for each in row.waiting_for:
                kind = each["kind"]
                self._waiting[kind] = self._waiting.get(kind, 0) + sign
                if not self._waiting[kind]:
                    del self._waiting[kind]
        for tool, (calls, failures, at, failed) in row.calls.items():
            sums = self._calls.setdefault(tool, [0, 0])
            sums[0] += sign * calls
            sums[1] += sign * failures
            if at >= self._last.get(tool, (0, 0))[0]:
                self._last[tool] = (at, failed)

    def _count_minutes(self, row: Row, sign: int) -> None:
        """Those that may still be shown: the running one and the hour before, and as many more."""
        now = now_ms() // rows.MINUTE_MS
        self._newest = max(self._newest, *(m for m in row.minutes if m <= now), 0)
        oldest = self._newest - 2 * rows.MINUTES_KEPT
        for minute, counts in row.minutes.items():
            if minute < oldest:
                continue
            known = self._minutes.setdefault(minute, [0.0] * 6)
            for place, value in enumerate(counts):
                known[place] += sign * value
            if not any(abs(value) > 1e-9 for value in known):
                del self._minutes[minute]
        if len(self._minutes) > 4 * rows.MINUTES_KEPT:
            for minute in [each for each in self._minutes if each < oldest]:
                del self._minutes[minute]

    # --- read by the API --------------------------------------------------------------------

    def find(self, query: Query, now: int) -> Page:
        """A page, newest first, and how many there are in all."""
        where, values = _conditions(query, now)
        with self._lock:
            few = self._places(where, values, _FEW + 1) if query.q else None
            if few is not None and len(few) <= _FEW:  # what is rare is looked for once, not twice
                left = [each for each in few if _is_after(each, query.after)]
                return Page(self._shown(left[: query.limit]), len(few))
            condition = f" WHERE {' AND '.join(where)}" if where else ""
            counted = f"SELECT COUNT(*) FROM runs{condition}"
            total = int(self._db.execute(counted, values).fetchone()[0])
            if query.after is not None:
                at, run_id = query.after
                # the first condition is what an index can start from
                where.append("updated_at <= ? AND (updated_at < ? OR run_id > ?)")
                values += [at, at, run_id]
            return Page(self._shown(self._places(where, values, query.limit)), total)

    def _places(self, where: list[str], values: list[Any], limit: int) -> list[tuple[int, str]]:
        """Where the first of the runs stand, newest first: answered by an index alone."""
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        return self._db.execute(
            f"SELECT updated_at, run_id FROM runs{condition} ORDER BY updated_at DESC, run_id LIMIT ?",
            [*values, limit],
        ).fetchall()

    def _shown(self, places: list[tuple[int, str]]) -> list[dict[str, Any]]:
        return [made for _, run_id in places if (made := self._public(run_id)) is not None]

    def row(self, run_id: str) -> Row | None:
        with self._lock:
            return self._row(run_id)

    def shown(self, run_id: str) -> dict[str, Any] | None:
        """One run's row as the API gives it."""
        with self._lock:
            return self._public(run_id)

    def _public(self, run_id: str) -> dict[str, Any] | None:
        found = self._db.execute(
            "SELECT row, (SELECT complete FROM outcomes o WHERE o.run_id = runs.run_id),"
            " EXISTS (SELECT 1 FROM quarantined z WHERE z.run_id = runs.run_id)"
            " FROM runs WHERE run_id = ?",
            (run_id,),
        ).fetchone()
        if found is None:
            return None
        raw, complete, held = found
        row = _decode(raw)
        # A former run of a forgotten id has an outcome until this one has ended.
        done = None if complete is None or row.finished_at is None else bool(complete)
        return rows.public(row, complete=done, quarantined=bool(held))

    def totals(self, agent: str | None = None) -> dict[str, int]:
        """Runs by status."""
        only, values = ("", []) if agent is None else (" WHERE agent = ?", [agent])
        with self._lock:
            found = self._db.execute(
                f"SELECT status, COUNT(*) FROM runs{only} GROUP BY status", values
            ).fetchall()
        return {status: int(count) for status, count in found}

    def count(self, query: Query, now: int) -> int:
        where, values = _conditions(query, now)
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        with self._lock:
            found = self._db.execute(f"SELECT COUNT(*) FROM runs{condition}", values).fetchone()
        return int(found[0])

    def rates(self, now: int) -> list[dict[str, Any]]:
        """What happened in each of the last 60 minutes, the running one last."""
        last = now // rows.MINUTE_MS
        none = [0.0] * 6
        with self._lock:
            found = [
                (minute, list(self._minutes.get(minute, none)))
                for minute in range(last - rows.MINUTES_KEPT + 1, last + 1)
            ]
        names = ("started", "finished", "failed", "steps", "tokens")
        return [
            {
                "at": minute * rows.MINUTE_MS,
                **{name: round(counts[place]) for place, name in enumerate(names)},
                "cost": round(counts[rows.COST], 9),
            }
            for minute, counts in found
        ]

    def calls(self) -> dict[str, dict[str, Any]]:
        """Tool -> what was called of it: ``calls``, ``failures``, ``last_at`` (ms), ``last_status``."""
        with self._lock:
            sums, last = dict(self._calls), dict(self._last)
        made = {}
        for tool, (calls, failures) in sums.items():
            at, failed = last.get(tool, (0, 0))
            made[tool] = {
                "calls": calls,
                "failures": failures,
                "last_at": at or None,
                "last_status": ("failed" if failed else "ok") if at else None,
            }
        return made

    def waiting(self) -> dict[str, int]:
        """What runs wait for that no open question says: backoffs, breakers, models, by kind."""
        with self._lock:
            return dict(self._waiting)

    def size(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM runs").fetchone()[0])

    def close(self) -> None:
        with self._lock:
            self._db.close()


_decoder = msgspec.msgpack.Decoder(Row)


def _decode(raw: bytes) -> Row:
    return _decoder.decode(raw)


def _is_after(place: tuple[int, str], last: tuple[int, str] | None) -> bool:
    return last is None or (-place[0], place[1]) > (-last[0], last[1])


def _busy_until(row: Row) -> int:
    return max((each.get("until") or 0 for each in row.waiting_for), default=0)


def _columns(part: int, row: Row) -> tuple[Any, ...]:
    return (
        row.run_id, part, row.version, row.agent, row.user_id, row.session_id, row.tenant, row.status,
        row.paused, row.updated_at, _busy_until(row), row.title.lower(), msgspec.msgpack.encode(row),
    )  # fmt: skip


def _conditions(query: Query, now: int) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    if query.status:
        where.append(f"status IN ({','.join('?' * len(query.status))})")
        values += query.status
    for name in ("agent", "user_id", "session_id", "tenant"):
        wanted = getattr(query, name)
        if wanted is not None:
            where.append(f"{name} = ?")
            values.append(wanted)
    if query.since is not None:
        where.append("updated_at >= ?")
        values.append(query.since)
    if query.until is not None:
        where.append("updated_at <= ?")
        values.append(query.until)
    if query.q:
        words = [f"%{_escaped(word)}%" for word in query.q.lower().split()[:8]]
        if words:  # read in the order of the page, from an index that holds the titles too
            every = " AND ".join(["title LIKE ? ESCAPE '!'"] * len(words))
            where.append(f"(run_id >= ? AND run_id < ? OR {every})")
            values += [query.q, query.q + "\U0010ffff", *words]
    if query.stuck_before is not None:
        where.append(f"status IN {_MOVING} AND paused = 0 AND updated_at < ? AND busy_until <= ?")
        values += [query.stuck_before, now]
    if query.quarantined:
        where.append("run_id IN (SELECT run_id FROM quarantined)")
    return where, values


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def now_ms() -> int:
    return time.time_ns() // 1_000_000
