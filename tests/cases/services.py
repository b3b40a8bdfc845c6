"""A service over HTTP that is hostile once to each run, and then answers well.

The path says how, and who: `/http_500/run-7`. It keeps what it was asked, by run.
"""

from __future__ import annotations

import email.utils
import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .model_server import Server

WELL = b'{"done":true}'
DATE_AHEAD = 2.0
"""Seconds; a date has no parts of a second, so the wait is between one and two."""


@dataclass(frozen=True)
class Asked:
    """One request: when it came (s, monotonic), how, and with which idempotency key."""

    at: float
    method: str
    key: str


@dataclass(frozen=True)
class Bad:
    """An answer; `{key}` in the body stands for the request's idempotency key."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "no"


ANSWERS = {
    **{f"http_{n}": Bad(n) for n in (400, 401, 403, 404, 408, 409, 422, 425, 500, 502, 503)},
    "in_progress": Bad(409, body='{"error": "the request {key} is still in progress"}'),
    "busy_seconds": Bad(429, {"Retry-After": "1"}),
    "busy_date": Bad(429, {"Retry-After": "(date)"}),
    "http_503_wait": Bad(503, {"Retry-After": "1"}),
    "garbage": Bad(200, {"Content-Type": "text/html"}, "<html>welcome</html>"),
}
WAYS = (*ANSWERS, "dropped", "half", "silent")
"""All it can do; the last three: no answer and an end, half an answer and an end, no answer."""


class Service:
    """What was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, list[Asked]] = {}
        self.left: set[str] = set()
        """Runs whose caller closed the connection on which nothing was answered."""
        self.port = 0

    def url(self, way: str, run_id: str) -> str:
        return f"http://127.0.0.1:{self.port}/{way}/{run_id}"

    def asked(self, run_id: str) -> list[Asked]:
        with self._lock:
            return list(self._asked.get(run_id, ()))

    def note(self, run_id: str, method: str, key: str) -> bool:
        """True: it is the run's first request."""
        with self._lock:
            known = self._asked.setdefault(run_id, [])
            known.append(Asked(time.monotonic(), method, key))
            return len(known) == 1


@contextmanager
def hostile_service() -> Iterator[Service]:
    """Serve until the block ends."""
    service = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, way, run_id = self.path.split("/")
            key = self.headers["Idempotency-Key"]
            self.close_connection = True
            if not service.note(run_id, self.command, key):
                self._send(200, {}, WELL)
            elif way in ANSWERS:
                bad = ANSWERS[way]
                self._send(bad.status, bad.headers, bad.body.replace("{key}", key).encode())
            elif way == "half":
                self._send(200, {}, WELL[:5], len(WELL))
            elif way == "silent":
                self.connection.settimeout(20)
                if self.connection.recv(1) == b"":
                    service.left.add(run_id)

        do_PUT = do_POST = do_GET

        def _send(
            self, status: int, headers: dict[str, str], body: bytes, length: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                date = email.utils.formatdate(time.time() + DATE_AHEAD, usegmt=True)
                self.send_header(name, value.replace("(date)", date))
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    service.port = server.server_address[1]
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
