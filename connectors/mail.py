"""Mail over SMTP: the table of smtplib's exceptions, and one function that sends.

| what happened | known | code |
|---|---|---|
| no connection: refused, DNS, TLS, timeout | nothing | connect_refused, dns_failed, tls_failed, connect_timeout |
| greeting refused (421, 4xx) | nothing | smtp_<code> |
| greeting refused (5xx), no STARTTLS, HELO refused | business | smtp_<code> |
| login refused | permission | smtp_<code> |
| sender, all recipients or the message refused with 4xx | nothing | smtp_<code> |
| the same with 5xx | business | smtp_<code> |
| dropped or timed out before the message was offered (DATA) | nothing | connection_lost, read_timeout |
| dropped or timed out afterwards | unclear | connection_lost, read_timeout |
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from email.message import EmailMessage

from .errors import Cause, TransientError, chain, connecting


def cause(error: BaseException) -> Cause | None:
    """The table for exceptions of smtplib itself."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()] or [550]
        return _answer(min(codes))
    if isinstance(error, smtplib.SMTPAuthenticationError):
        known = _answer(error.smtp_code)
        return Cause("permission", known.code) if known.known == "business" else known
    if isinstance(error, smtplib.SMTPResponseException):
        return _answer(error.smtp_code)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Cause("business", "smtp_unsupported")
    if isinstance(error, smtplib.SMTPException):  # SMTPServerDisconnected and the rest
        return Cause("unclear", _lost(error))
    return None


def _answer(code: int) -> Cause:
    if 400 <= code < 500:
        return Cause("nothing", f"smtp_{code}")
    if code >= 500:
        return Cause("business", f"smtp_{code}")
    return Cause("unclear", f"smtp_{code}" if code > 0 else "connection_lost")


async def send(
    host: str,
    port: int,
    message: EmailMessage,
    *,
    timeout_seconds: float = 20.0,
    user: str | None = None,
    password: str | None = None,
    starttls: bool = False,
) -> dict[str, list[str]]:
    """Send one message; returns the recipients refused, as ``{"refused": [...]}``.

    Raises `TransientError` where no message can have been accepted, else smtplib's own
    exceptions, which the table maps. A connection lost after DATA leaves the outcome unknown.
    """
    return await asyncio.to_thread(
        send_blocking, host, port, message, timeout_seconds, user, password, starttls
    )


def send_blocking(
    host: str,
    port: int,
    message: EmailMessage,
    timeout_seconds: float = 20.0,
    user: str | None = None,
    password: str | None = None,
    starttls: bool = False,
) -> dict[str, list[str]]:
    """`send` for a tool that is a plain ``def``."""
    session = _Session(timeout=timeout_seconds)
    try:
        try:
            code, text = session.connect(host, port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, text)
            session.ehlo_or_helo_if_needed()
            if starttls:
                session.starttls(context=ssl.create_default_context())
            if user is not None:
                session.login(user, password or "")
            refused = session.send_message(message)
        except (OSError, smtplib.SMTPServerDisconnected) as error:
            # smtplib's own answers (SMTPResponseException, ...) are OSErrors too
            answered = isinstance(error, smtplib.SMTPException)
            if session.offered or (
                answered and not isinstance(error, smtplib.SMTPServerDisconnected)
            ):
                raise
            raise TransientError(
                f"no mail was offered to {host}:{port}: {error}",
                code=_before(session, error),
                host=host,
            ) from error
    finally:
        session.close()
    return {"refused": sorted(refused)}


def _before(session: _Session, error: BaseException) -> str:
    if session.sock is None and not isinstance(error, smtplib.SMTPException):
        return connecting(error).code
    return _lost(error)


def _lost(error: BaseException) -> str:
    """smtplib reports a time-out as a disconnect."""
    timed_out = any(isinstance(inner, TimeoutError) for inner in chain(error))
    return "read_timeout" if timed_out else "connection_lost"


class _Session(smtplib.SMTP):
    """Notes when the message itself is offered: until then nothing can have been accepted."""

    offered = False

    def data(self, msg: bytes | str) -> tuple[int, bytes]:  # type: ignore[override]
        self.offered = True
        return super().data(msg)
