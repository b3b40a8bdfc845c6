"""Servers on this machine that answer as they are told."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Script:
    """What the server answers, in order; the last is repeated. It keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def say(self, status: int, body: Any = "", headers: dict[str, str] | None = None) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.answers.append((status, headers or {}, content))


@contextmanager
def web_server() -> Iterator[Script]:
    """Status 0 drops the connection without an answer; -1 breaks off in the middle of one."""
    script = Script()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            script.requests.append(json.loads(raw) if raw else {})
            status, headers, body = (
                script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            )
            if status == 0:
                self.close_connection = True
                return
            self.send_response(200 if status < 0 else status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", headers.get("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(body) + (10 if status < 0 else 0)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        do_GET = do_POST

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def line_server(*lines: bytes | None, greet: bytes | None = None) -> Iterator[int]:
    """Answers each line it reads with the next of ``lines``; None closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rwb") as stream:
            if greet is not None:
                stream.write(greet)
                stream.flush()
            for line in lines:
                if not stream.readline() or line is None:
                    return
                stream.write(line)
                stream.flush()
            stop.wait(5)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        listener.close()
        thread.join(5)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
