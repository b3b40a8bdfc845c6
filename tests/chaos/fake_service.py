"""The outside world of the chaos tests: takes requests over TCP and counts what really happened.

It lives in the process of the test, which nobody kills. One request is one line of JSON, and so
is its answer. What it counts is the truth that all verdicts are made from; it knows nothing of
runs, only the ``ref`` that a request names.

A request that comes after its ``deadline_at`` is refused. That is what makes "it did not happen"
final: a worker stopped for a minute can't send then what was settled long ago. Services without
such a limit need a ``settle_seconds`` as long as their clients may sleep.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections import Counter
from typing import Any

ONCE_A_KEY = frozenset({"put", "keep"})
"""Tools whose second request with the same key has no second effect."""


class FakeService:
    """Counts by (tool, ref): requests that came, effects that happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[str, dict[str, Any]] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.effects: Counter[tuple[str, str]] = Counter()
        self.keys: dict[tuple[str, str], set[str]] = {}
        self.refused = 0
        self.last: dict[tuple[str, str], float] = {}
        service = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline()
                if not line.endswith(b"\n"):
                    return  # the sender died in the middle of its request
                answer = service._answer(json.loads(line))
                with contextlib.suppress(OSError):  # nobody waits any more; it has happened
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="fake service", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["verb"] == "ask":
            with self._lock:
                found = self._results.get(request["key"])
            return {"found": found}
        what = (request["tool"], request["ref"])
        with self._lock:
            if time.time() * 1000 > request["deadline_at"]:
                self.refused += 1
                return {"refused": "too late"}
            self.requests[what] += 1
            self.keys.setdefault(what, set()).add(request["key"])
        time.sleep(request.get("late", 0.0))  # on its way, also when its sender has died
        with self._lock:
            known = self._results.get(request["key"])
            if known is not None and request["tool"] in ONCE_A_KEY:
                return {"result": known}
            self.effects[what] += 1
            self.last[what] = time.monotonic()
            result = {"number": sum(self.effects.values())}
            self._results[request["key"]] = result
        time.sleep(request.get("slow", 0.0))
        return {"result": result}

    # what tests ask

    def count(self, tool: str, ref: str) -> int:
        """Effects of this tool for this reference."""
        with self._lock:
            return self.effects[tool, ref]

    def found(self, key: str) -> dict[str, Any] | None:
        """What a person sees who looks whether a request with this key has happened."""
        with self._lock:
            return self._results.get(key)
