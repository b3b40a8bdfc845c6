"""SQLite: the table of sqlite3's exceptions, and a read-only query.

| what happened | known | code |
|---|---|---|
| the database is locked or busy | nothing | sqlite_busy |
| the file can't be opened | nothing | sqlite_cantopen |
| a constraint refused the row | business | sqlite_constraint |
| the database is read-only | permission | sqlite_readonly |
| a value has the wrong type, too few or many parameters | invalid_arguments | sqlite_parameters |
| disk full, I/O error, corrupt file, interrupted | unclear | sqlite_<name> |
| anything else (no such table, bad SQL) | (in no table) | |

A lock is met when a transaction begins or commits and leaves nothing behind: sqlite3 rolls back.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import Cause

_BY_CODE: dict[int, Cause] = {
    sqlite3.SQLITE_BUSY: Cause("nothing", "sqlite_busy"),
    sqlite3.SQLITE_LOCKED: Cause("nothing", "sqlite_busy"),
    sqlite3.SQLITE_CANTOPEN: Cause("nothing", "sqlite_cantopen"),
    sqlite3.SQLITE_CONSTRAINT: Cause("business", "sqlite_constraint"),
    sqlite3.SQLITE_READONLY: Cause("permission", "sqlite_readonly"),
    sqlite3.SQLITE_FULL: Cause("unclear", "sqlite_full"),
    sqlite3.SQLITE_IOERR: Cause("unclear", "sqlite_ioerr"),
    sqlite3.SQLITE_CORRUPT: Cause("unclear", "sqlite_corrupt"),
    sqlite3.SQLITE_NOTADB: Cause("unclear", "sqlite_corrupt"),
    sqlite3.SQLITE_INTERRUPT: Cause("unclear", "sqlite_interrupt"),
}


def cause(error: BaseException) -> Cause | None:
    """The table."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        known = _BY_CODE.get(code & 0xFF)  # the low byte is the primary code
        if known is not None:
            return known
    if isinstance(error, sqlite3.IntegrityError):
        return Cause("business", "sqlite_constraint")
    if code is None and isinstance(
        error, sqlite3.ProgrammingError | sqlite3.InterfaceError | sqlite3.DataError
    ):
        return Cause("invalid_arguments", "sqlite_parameters")
    return None


async def query(
    path: str | Path, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> list[dict[str, Any]]:
    """The rows of one read-only query, as dicts, read in a thread."""
    return await asyncio.to_thread(query_blocking, path, sql, parameters)


def query_blocking(
    path: str | Path, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> list[dict[str, Any]]:
    """`query` for a tool that is a plain ``def``. The file is opened read-only: no write gets by."""
    uri = Path(path).resolve().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    try:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, parameters)]
    finally:
        connection.close()
