"""The tools of the refunds example: orders in SQLite, payments over HTTP, mail over SMTP.

REFUNDS_DB, REFUNDS_PAYMENTS_URL and REFUNDS_SMTP (host:port) say where those are. What httpx and
smtplib raise is left as it is: the worker knows what each of their exceptions proves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import smtplib
import sqlite3
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

import httpx

from perdure import (
    ABSENT,
    BusinessError,
    Found,
    InvalidArguments,
    ToolContext,
    TransientError,
    tool,
)

COLUMNS = ("order_id", "customer", "email", "total", "currency", "status")


# --- orders ----------------------------------------------------------------------------------


def read_order(order_id: str) -> dict[str, Any]:
    """An order of the database. Raises `BusinessError` for an unknown one."""
    path = Path(os.environ.get("REFUNDS_DB", ".perdure/refunds/orders.db")).absolute()
    try:
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            row = db.execute(
                f"SELECT {', '.join(COLUMNS)} FROM orders WHERE order_id = ?", (order_id,)
            ).fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise TransientError(
            f"the orders in {path} can't be read ({error}): set REFUNDS_DB, or build them with"
            " `python examples/refunds/orders.py`"
        ) from error
    if row is None:
        raise BusinessError(f"there is no order {order_id}")
    return dict(zip(COLUMNS, row, strict=True))


@tool("orders.lookup", effect="read_only", title="Look up order {order_id}")
def lookup(context: ToolContext, order_id: str) -> dict:
    """Look up an order: its customer, e-mail address, total, currency and status."""
    return read_order(order_id)


# --- payments --------------------------------------------------------------------------------

_clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}


def client() -> httpx.AsyncClient:
    """The one client of this event loop; its connections are kept open between calls."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        url = os.environ.get("REFUNDS_PAYMENTS_URL", "http://127.0.0.1:8100")
        if not url.startswith(("http://", "https://")):
            raise BusinessError(f"REFUNDS_PAYMENTS_URL must begin with http:// or https://: {url}")
        _clients[loop] = httpx.AsyncClient(base_url=url, timeout=8)
    return _clients[loop]


@tool(
    "payments.refund",
    effect="idempotent",
    approval="arguments.amount > 100",
    compensate="payments.cancel_refund",
    timeout_seconds=10,
    title="Refund {amount} for order {order_id}",
)
async def refund(context: ToolContext, order_id: str, amount: float) -> dict:
    """Refund an amount of an order to its customer, at most the order's total."""
    order = await asyncio.to_thread(read_order, order_id)
    if not 0 < amount <= order["total"]:
        raise BusinessError(f"{amount} is not between 0 and the order's total, {order['total']}")
    response = await client().post(
        "/refunds",
        json={"order_id": order_id, "amount": amount},
        headers={"Idempotency-Key": context.idempotency_key},
    )
    return response.raise_for_status().json()


@refund.query
async def find_refund(context: ToolContext, order_id: str, amount: float) -> Any:
    response = await client().get("/refunds", params={"key": context.idempotency_key})
    if response.status_code == 404:
        return ABSENT
    return Found(response.raise_for_status().json())


@tool(
    "payments.cancel_refund",
    effect="idempotent",
    timeout_seconds=10,
    title="Take back the refund for order {order_id}",
)
async def cancel_refund(context: ToolContext, order_id: str, result: dict) -> dict:
    """Take back a refund; `result` is what the refund answered."""
    response = await client().post(
        f"/refunds/{result['refund_id']}/cancel",
        headers={"Idempotency-Key": context.idempotency_key},
    )
    return response.raise_for_status().json()


# --- mail ------------------------------------------------------------------------------------


@tool("mail.send", effect="external", approval="never", timeout_seconds=10,
      title="Mail to {to}: {subject}")  # fmt: skip
def send(context: ToolContext, to: str, subject: str, body: str) -> dict:
    """Send a mail to a customer."""
    host, _, port = os.environ.get("REFUNDS_SMTP", "127.0.0.1:2525").rpartition(":")
    if not host or not port.isdigit():
        raise BusinessError("REFUNDS_SMTP must be host:port, such as 127.0.0.1:2525")
    message = EmailMessage(policy=SMTP.clone(max_line_length=900))
    try:
        message["From"] = "refunds@example.org"
        message["To"] = to
        message["Subject"] = subject
        message["Message-ID"] = f"<{context.request_id}@example.org>"
        message["X-Idempotency-Key"] = context.idempotency_key
        message.set_content(body)
    except ValueError as error:
        raise InvalidArguments(f"this can't be a mail: {error}") from error

    try:
        server = smtplib.SMTP(host, int(port), timeout=8)
    except OSError as error:  # nothing was sent yet
        raise TransientError(f"the mail server {host}:{port} can't be reached: {error}") from error
    with contextlib.closing(server):  # not `with server`: a failing QUIT is no failing mail
        server.send_message(message)
    return {"message_id": message["Message-ID"], "to": to, "subject": subject}
