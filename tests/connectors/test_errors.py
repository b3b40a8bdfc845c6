"""Our own exceptions, Python's, SQLite's and the mail server's: a test per row of each table."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import sqlite3
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from perdure.connectors import (
    BusinessError,
    InvalidArguments,
    OutcomeUnknown,
    PermissionDenied,
    TransientError,
    mail,
    sql,
)
from perdure.connectors.errors import ResultError
from perdure.connectors.mapping import failure_of

from .servers import free_port, line_server

UNCLEAR = ("transient", "transient", "unknown")
NOTHING = ("transient",) * 3
BUSINESS = ("business",) * 3
INVALID = ("invalid_arguments",) * 3
DENIED = ("permission",) * 3
UNMAPPED = ("internal", "unknown", "unknown")


def _kinds(error: BaseException) -> tuple[str, ...]:
    return tuple(
        failure_of(error, effect).kind for effect in ("read_only", "idempotent", "external")
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kinds", "code"),
    [
        (BusinessError("no", code="closed"), BUSINESS, "closed"),
        (InvalidArguments("no"), INVALID, ""),
        (PermissionDenied("no"), DENIED, ""),
        (TransientError("no", code="busy"), NOTHING, "busy"),
        (OutcomeUnknown("?"), ("transient", "unknown", "unknown"), ""),
        (ResultError("$.result: no", "bad_result"), UNMAPPED, "bad_result"),
        (ValueError("bug"), UNMAPPED, "ValueError"),
        (ConnectionRefusedError("no"), NOTHING, "connect_refused"),
        (socket.gaierror("no"), NOTHING, "dns_failed"),
        (ssl.SSLCertVerificationError("no"), NOTHING, "tls_failed"),
        (ssl.SSLEOFError("no"), UNCLEAR, "connection_lost"),
        (ConnectionResetError("no"), UNCLEAR, "connection_lost"),
        (BrokenPipeError("no"), UNCLEAR, "connection_lost"),
        (asyncio.IncompleteReadError(b"", 1), UNCLEAR, "connection_lost"),
        (TimeoutError("no"), UNCLEAR, "read_timeout"),
        (asyncio.CancelledError(), UNCLEAR, "call_cancelled"),
        (OSError("disk"), UNMAPPED, "OSError"),
    ],
)
def test_our_own_and_pythons(error: BaseException, kinds: tuple[str, ...], code: str) -> None:
    assert _kinds(error) == kinds
    assert failure_of(error, "external").code == code


def test_retry_after_is_kept_in_bounds() -> None:
    for wait, kept in ((3.0, 3.0), (-1.0, None), (float("nan"), None), (1e12, None)):
        error = TransientError("no", retry_after_seconds=wait)
        assert failure_of(error, "external").retry_after_seconds == kept


# --- SQLite ------------------------------------------------------------------------------------


def _database(tmp_path: Path) -> Path:
    path = tmp_path / "a b.db"
    with sqlite3.connect(path) as db:
        db.execute("create table t (id integer primary key, n text not null)")
        db.execute("insert into t values (1, 'one')")
    db.close()
    return path


def test_query_gives_rows_as_objects(tmp_path: Path) -> None:
    path = _database(tmp_path)
    rows = asyncio.run(sql.query(path, "select * from t where id = ?", (1,)))
    assert rows == [{"id": 1, "n": "one"}]


def _sql_error(path: Any, statement: str, parameters: Any = ()) -> BaseException:
    with pytest.raises(sqlite3.Error) as raised:
        sql.query_blocking(path, statement, parameters)
    return raised.value


def test_sqlite_table(tmp_path: Path) -> None:
    path = _database(tmp_path)
    rows = [
        (_sql_error(tmp_path / "none.db", "select 1"), NOTHING, "sqlite_cantopen"),
        (_sql_error(path, "insert into t values (2, 'x')"), DENIED, "sqlite_readonly"),
        (_sql_error(path, "select ?"), INVALID, "sqlite_parameters"),
        (_sql_error(path, "select ?", (object(),)), INVALID, "sqlite_parameters"),
        (_sql_error(path, "select * from nowhere"), UNMAPPED, "OperationalError"),
    ]
    (tmp_path / "bad.db").write_bytes(b"no database at all" * 100)
    rows.append((_sql_error(tmp_path / "bad.db", "select * from t"), UNCLEAR, "sqlite_corrupt"))
    for error, kinds, code in rows:
        assert (_kinds(error), failure_of(error, "external").code) == (kinds, code)


def test_sqlite_lock_and_constraint(tmp_path: Path) -> None:
    path = _database(tmp_path)
    one = sqlite3.connect(path, timeout=0)
    two = sqlite3.connect(path, timeout=0)
    one.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError) as locked:
        two.execute("begin immediate")
    with pytest.raises(sqlite3.IntegrityError) as refused:
        one.execute("insert into t values (1, 'again')")
    one.close()
    two.close()
    assert (_kinds(locked.value), failure_of(locked.value, "external").code) == (
        NOTHING,
        "sqlite_busy",
    )
    assert _kinds(refused.value) == BUSINESS
    assert failure_of(refused.value, "external").code == "sqlite_constraint"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (sqlite3.SQLITE_FULL, "sqlite_full"),
        (sqlite3.SQLITE_IOERR_WRITE, "sqlite_ioerr"),
        (sqlite3.SQLITE_INTERRUPT, "sqlite_interrupt"),
    ],
)
def test_sqlite_faults_that_are_hard_to_provoke(code: int, name: str) -> None:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    assert (_kinds(error), failure_of(error, "external").code) == (UNCLEAR, name)


# --- mail --------------------------------------------------------------------------------------


def _message() -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", "hi"
    message.set_content("hello")
    return message


def _send(port: int, timeout: float = 1.0) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is tested
        mail.send_blocking("127.0.0.1", port, _message(), timeout)
    return raised.value


OK, HELLO = b"250 ok\r\n", b"220 hello\r\n"


@pytest.mark.parametrize(
    ("greet", "lines", "kinds", "code"),
    [
        (b"421 busy\r\n", (), NOTHING, "smtp_421"),
        (b"554 go away\r\n", (), BUSINESS, "smtp_554"),
        (HELLO, (OK, b"451 later\r\n", OK), NOTHING, "smtp_451"),
        (HELLO, (OK, b"550 no\r\n", OK), BUSINESS, "smtp_550"),
        (HELLO, (OK, OK, b"450 later\r\n", OK), NOTHING, "smtp_450"),
        (HELLO, (OK, OK, b"550 unknown\r\n", OK), BUSINESS, "smtp_550"),
        (HELLO, (OK, OK, OK, b"554 no\r\n", OK), BUSINESS, "smtp_554"),
        (HELLO, (OK, None), NOTHING, "connection_lost"),
        (HELLO, (OK, OK, OK, None), UNCLEAR, "connection_lost"),
        (HELLO, (OK, OK, OK, b"354 go on\r\n", None), UNCLEAR, "connection_lost"),
    ],
)
def test_mail_table(greet: bytes, lines: Any, kinds: tuple[str, ...], code: str) -> None:
    with line_server(*lines, greet=greet) as port:
        error = _send(port)
    assert (_kinds(error), failure_of(error, "external").code) == (kinds, code)


def test_mail_that_finds_nobody() -> None:
    error = _send(free_port())
    assert (_kinds(error), failure_of(error, "external").code) == (NOTHING, "connect_refused")


def test_mail_without_an_answer() -> None:
    with line_server(OK, OK, OK, greet=HELLO) as port:
        error = _send(port, 0.05)
    assert (_kinds(error), failure_of(error, "external").code) == (UNCLEAR, "read_timeout")
    with line_server(OK, greet=HELLO) as port:
        error = _send(port, 0.05)
    assert (_kinds(error), failure_of(error, "external").code) == (NOTHING, "read_timeout")


@pytest.mark.parametrize(
    ("error", "kinds", "code"),
    [
        (smtplib.SMTPAuthenticationError(535, b"no"), DENIED, "smtp_535"),
        (smtplib.SMTPAuthenticationError(454, b"later"), NOTHING, "smtp_454"),
        (smtplib.SMTPNotSupportedError("no STARTTLS"), BUSINESS, "smtp_unsupported"),
        (smtplib.SMTPHeloError(501, b"no"), BUSINESS, "smtp_501"),
        (smtplib.SMTPServerDisconnected("gone"), UNCLEAR, "connection_lost"),
    ],
)
def test_mail_faults_that_are_hard_to_provoke(
    error: Exception, kinds: tuple[str, ...], code: str
) -> None:
    assert (_kinds(error), failure_of(error, "external").code) == (kinds, code)


def test_mail_is_sent() -> None:
    lines = (OK, OK, OK, b"354 go on\r\n")
    # the body's lines are read one by one; the final dot is answered like any other
    with line_server(*lines, *([b""] * 8), OK, OK, greet=HELLO) as port:
        got = asyncio.run(mail.send("127.0.0.1", port, _message(), timeout_seconds=1))
    assert got == {"refused": []}
