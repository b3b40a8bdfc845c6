"""A payment service over HTTP, as hard to live with as a real one.

    POST /refunds               {"order_id", "amount"}, header Idempotency-Key
    GET  /refunds?key=K         200 with the refund, or 404
    POST /refunds/{id}/cancel   header Idempotency-Key
    GET  /report                what was really done

The same key with the same body gets the first answer again; with another body, 409. Every
execution is one row of the table `effects`, so the report counts what happened, not what should
have. Each call is committed to SQLite before it is answered: kill -9 and a restart lose nothing.

Trouble comes by a seeded chance: 429, 503, and a connection dropped before or after acting. It
depends on the seed, the order and the number of the call for that order, not on the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TROUBLES = ("429", "503", "drop_before", "drop_after")
DROP = 0  # instead of a status: the connection is closed without an answer
MAX_BODY = 100_000
DEFAULT_SEED = 113  # every kind of trouble among the example's orders, never three in a row

SCHEMA = """
CREATE TABLE IF NOT EXISTS calls
    (n INTEGER PRIMARY KEY, at INTEGER, verb TEXT, subject TEXT, key TEXT, trouble TEXT);
CREATE INDEX IF NOT EXISTS calls_by_subject ON calls (subject);
CREATE TABLE IF NOT EXISTS effects
    (n INTEGER PRIMARY KEY, at INTEGER, key TEXT, order_id TEXT, amount REAL);
CREATE TABLE IF NOT EXISTS answers
    (key TEXT PRIMARY KEY, body TEXT, effect INTEGER, status INTEGER, answer TEXT);
CREATE TABLE IF NOT EXISTS cancelled (effect INTEGER PRIMARY KEY, at INTEGER, key TEXT);
"""

Answer = tuple[int, dict[str, Any]]


def trouble_for(seed: int, chance: float, subject: str, nth: int) -> str | None:
    """What goes wrong at the nth call about ``subject``; None: nothing."""
    digest = hashlib.sha256(f"{seed}/{subject}/{nth}".encode()).digest()
    if int.from_bytes(digest[:8], "big") / 2**64 >= chance:
        return None
    return TROUBLES[digest[8] % len(TROUBLES)]


class Ledger:
    """The only owner of the database: one call is one transaction."""

    def __init__(self, path: str | Path, seed: int = 1, chance: float = 0.0) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._seed = seed
        self._chance = chance
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def refund(self, key: str, order_id: str, amount: float) -> Answer:
        body = json.dumps({"order_id": order_id, "amount": amount}, sort_keys=True)
        return self._call("refund", order_id, key, lambda: self._refund(key, body))

    def find(self, key: str) -> Answer:
        return self._call("find", key, key, lambda: self._find(key))

    def cancel(self, refund_id: str, key: str) -> Answer:
        return self._call("cancel", refund_id, key, lambda: self._cancel(refund_id, key))

    def report(self) -> dict[str, Any]:
        """What was really done; never in trouble."""
        with self._lock:
            calls = self._db.execute("SELECT count(*) FROM calls").fetchone()[0]
            troubles = self._db.execute(
                "SELECT trouble, count(*) FROM calls WHERE trouble IS NOT NULL GROUP BY trouble"
            ).fetchall()
            rows = self._db.execute(
                "SELECT e.key, e.order_id, e.amount, count(*), count(c.effect) FROM effects e"
                " LEFT JOIN cancelled c ON c.effect = e.n"
                " GROUP BY e.key, e.order_id, e.amount ORDER BY min(e.n)"
            ).fetchall()
        names = ("key", "order_id", "amount", "count", "cancelled")
        effects = [dict(zip(names, row, strict=True)) for row in rows]
        return {
            "calls": calls,
            "troubles": dict(troubles),
            "effects": effects,
            "duplicates": sum(effect["count"] - 1 for effect in effects),
        }

    def _call(self, verb: str, subject: str, key: str, act: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                (before,) = self._db.execute(
                    "SELECT count(*) FROM calls WHERE subject = ?", (subject,)
                ).fetchone()
                trouble = trouble_for(self._seed, self._chance, subject, before + 1)
                answer = _refusal(trouble) or act()
                self._db.execute(
                    "INSERT INTO calls (at, verb, subject, key, trouble) VALUES (?, ?, ?, ?, ?)",
                    (_now(), verb, subject, key, trouble),
                )
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return (DROP, {}) if trouble == "drop_after" else answer

    def _refund(self, key: str, body: str) -> Answer:
        known = self._db.execute(
            "SELECT body, status, answer FROM answers WHERE key = ?", (key,)
        ).fetchone()
        if known is not None:
            if known[0] != body:
                return 409, {"error": f"the key {key} was used for another refund: {known[0]}"}
            return known[1], json.loads(known[2])
        request = json.loads(body)
        effect = self._db.execute(
            "INSERT INTO effects (at, key, order_id, amount) VALUES (?, ?, ?, ?)",
            (_now(), key, request["order_id"], request["amount"]),
        ).lastrowid
        answer = {"refund_id": f"rf-{effect}", **request, "status": "refunded"}
        self._db.execute(
            "INSERT INTO answers (key, body, effect, status, answer) VALUES (?, ?, ?, 201, ?)",
            (key, body, effect, json.dumps(answer)),
        )
        return 201, answer

    def _find(self, key: str) -> Answer:
        known = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        if known is None:
            return 404, {"error": f"no refund has the key {key}"}
        return 200, json.loads(known[0])

    def _cancel(self, refund_id: str, key: str) -> Answer:
        number = refund_id.removeprefix("rf-")
        effect = number.isascii() and number.isdigit() and int(number)
        known = self._db.execute("SELECT n FROM effects WHERE n = ?", (effect,)).fetchone()
        if known is None:
            return 404, {"error": f"there is no refund {refund_id}"}
        self._db.execute(
            "INSERT OR IGNORE INTO cancelled (effect, at, key) VALUES (?, ?, ?)",
            (effect, _now(), key),
        )
        return 200, {"refund_id": refund_id, "status": "cancelled"}


def _now() -> int:
    return int(time.time() * 1000)


def _refusal(trouble: str | None) -> Answer | None:
    """The answer of trouble that strikes before anything is done."""
    if trouble == "429":
        return 429, {"error": "too many requests"}
    if trouble == "503":
        return 503, {"error": "down for a moment"}
    return (DROP, {}) if trouble == "drop_before" else None


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True
    ledger: Ledger

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        key = parse_qs(url.query).get("key", [""])[0]
        if url.path == "/report":
            self._send((200, self.ledger.report()))
        elif url.path == "/refunds" and key:
            self._send(self.ledger.find(key))
        else:
            self._send((404, {"error": "GET /refunds?key=K and GET /report are served here"}))

    def do_POST(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        body = self._body()
        key = self.headers.get("Idempotency-Key", "")
        if body is None:
            self._send((400, {"error": "the body must be a JSON object"}))
        elif not key:
            self._send((400, {"error": "the header Idempotency-Key is required"}))
        elif parts == ["refunds"]:
            self._send(self._refund(key, body))
        elif len(parts) == 3 and parts[0] == "refunds" and parts[2] == "cancel":
            self._send(self.ledger.cancel(parts[1], key))
        else:
            self._send((404, {"error": "POST /refunds and /refunds/ID/cancel are served here"}))

    def log_message(self, *_: object) -> None:
        """Quiet: the calls are in the database."""

    def _refund(self, key: str, body: dict[str, Any]) -> Answer:
        order_id, amount = body.get("order_id"), body.get("amount")
        if not isinstance(order_id, str) or not order_id:
            return 422, {"error": "order_id must be a text"}
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < 1e9:
            return 422, {"error": "amount must be a number above 0"}
        return self.ledger.refund(key, order_id, float(amount))

    def _body(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            return None
        raw = self.rfile.read(int(length)) or b"{}"
        try:
            value = json.loads(raw)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def _send(self, answer: Answer) -> None:
        status, value = answer
        if status == DROP:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(raw)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 100

    def __init__(self, ledger: Ledger, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), type("Request", (_Request,), {"ledger": ledger}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _wait_for_stdin(end: Callable[[], object]) -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held at exit
        pass
    end()


def main() -> None:
    parser = argparse.ArgumentParser(description="The payment service of the refunds example.")
    parser.add_argument("--db", default=".perdure/refunds/payments.db", help="its SQLite file")
    parser.add_argument("--port", type=int, default=8100, help="0 takes any free port")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the trouble")
    parser.add_argument("--trouble", type=float, default=0.15, help="chance of trouble in a call")
    parser.add_argument("--end-with-stdin", action="store_true", help="end when stdin is closed")
    options = parser.parse_args()

    ledger = Ledger(options.db, options.seed, options.trouble)
    try:
        server = Server(ledger, options.port)
    except OSError as error:
        sys.exit(f"port {options.port} can't be used ({error.strerror}): try --port 0")
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    if options.end_with_stdin:
        threading.Thread(target=_wait_for_stdin, args=(over.set,), daemon=True).start()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(json.dumps({"role": "payments", "port": server.server_port, "url": server.url}))
    sys.stdout.flush()
    over.wait()
    server.shutdown()
    server.server_close()
    ledger.close()


if __name__ == "__main__":
    main()
