"""A model behind the OpenAI-compatible protocol that plays replies and refuses a broken request.

The path names the script: an agent whose `base_url` ends in `/m05.1/v1` is played the replies of
`m05.1`. Which reply is due follows from the history it is sent (the number of assistant messages),
so many runs may use one script; replies that leave no message there (those that break off, or have
a `body_raw`) are played once and precede the reply of their turn. One reply may be played for ever.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .model_protocol import Reply, broken_pairing, completion

SUMMARY = "Keep the notes of a work"
"""How the request for a summary begins: no script has a reply to it, and none is used up by it."""

_Script = list[list[Reply]]
_HELD_SECONDS = 30


class ModelServer:
    """Scripts by name; what was asked and what was refused, for the tests to look at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scripts: dict[str, _Script] = {}
        self._in_order: set[str] = set()
        self._forever: dict[str, Reply] = {}
        self._gates: dict[tuple[str, int], threading.Event] = {}
        self._asked: dict[str, list[dict[str, Any]]] = {}
        self.refused: list[str] = []
        self.port = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}/v1"

    def play(self, name: str, replies: list[Reply], in_order: bool = False) -> None:
        turns: _Script = [[]]
        for reply in replies:
            turns[-1].append(reply)
            if not _passes(reply):
                turns.append([])
        with self._lock:
            self._scripts[name] = turns
            if in_order:
                self._in_order.add(name)

    def play_forever(self, name: str, reply: Reply) -> None:
        with self._lock:
            self._forever[name] = reply

    def hold(self, name: str, number: int) -> threading.Event:
        """Request ``number`` (1, 2, ...) of a script waits until this is set, 30 s at most."""
        with self._lock:
            return self._gates.setdefault((name, number), threading.Event())

    def requests(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._asked.get(name, ()))

    def next_reply(self, name: str, body: dict[str, Any]) -> Reply:
        first = body["messages"][0]["content"]
        if isinstance(first, str) and first.startswith(SUMMARY):
            notes = {"content": "what happened so far", "finish_reason": "stop"}
            return completion(notes, body, 0)
        with self._lock:
            asked = self._asked.setdefault(name, [])
            asked.append(body)
            number = len(asked)
            gate = self._gates.get((name, number))
            reply = self._due(name, body, number)
        if gate is not None:
            gate.wait(_HELD_SECONDS)
        return reply if _passes(reply) else completion(reply, body, number)

    def _due(self, name: str, body: dict[str, Any], number: int) -> Reply:
        messages = body["messages"]
        wrong = broken_pairing(messages)
        if wrong is not None:
            self.refused.append(f"{name}: {wrong}")
            return _error(400, wrong, type="invalid_request_error")
        if name in self._forever:
            return self._forever[name]
        turns = self._scripts[name]
        turn = sum(message["role"] == "assistant" for message in messages)
        if name in self._in_order:
            turn = number - 1
        due = turns[turn] if turn < len(turns) else []
        if not due:
            return _error(500, f"the script {name} has no turn {turn}")
        return due.pop(0) if len(due) > 1 else due[0]


def _passes(reply: Reply) -> bool:
    """It leaves no assistant message in the history."""
    return "partial_then_close" in reply or "body_raw" in reply


def _error(status: int, message: str, **more: str) -> Reply:
    return {"status": status, "body_raw": json.dumps({"error": {"message": message, **more}})}


class Server(http.server.ThreadingHTTPServer):
    """One that does not let those wait who come all at once."""

    daemon_threads = True
    request_queue_size = 200


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve until the block ends."""
    model = ModelServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            name = self.path.split("/")[1]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = model.next_reply(name, body)
            if "partial_then_close" in reply:
                self._break_off(reply)
            else:
                self._send(reply.get("status", 200), reply["body_raw"].encode())

        def do_GET(self) -> None:
            """Whoever reads `/to?<url>` is sent on there."""
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _break_off(self, reply: Reply) -> None:
            """Half an answer: short of its announced length, or (`unannounced`) just an end."""
            start = '{"id":"1","choices":[{"index":0,"message":{"role":"assistant","tool_calls":['
            half = (start + reply["partial_then_close"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if not reply.get("unannounced"):
                self.send_header("Content-Length", str(len(half) + 1000))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(half)
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    model.port = server.server_address[1]
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
