"""A model behind the OpenAI-compatible protocol that plays replies and refuses a broken pairing.

The path names the script: an agent whose `base_url` ends in `/m05.1/v1` is played the replies of
`m05.1`. Which reply is due follows from the history it is sent (the number of assistant messages),
so many runs may use one script; entries that break off are played once and precede the reply of
their turn.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SUMMARY = "Keep the notes of a work"
"""How the request for a summary begins: no script has a reply to it, and none is used up by it."""
_Script = list[list[dict[str, Any]]]


def broken_pairing(messages: list[dict[str, Any]]) -> str | None:
    """Why a strict model API would answer 400, or None."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"a tool message without its call: {message.get('tool_call_id')}"
            if not isinstance(message.get("content"), str):
                return "a tool message whose content is no text"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"calls without results: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(waiting)) != len(waiting):
            return f"call ids twice: {waiting}"
        if message.get("content") is None and not waiting:
            return f"a {message['role']} message without content"
    return f"calls without results: {waiting}" if waiting else None


class ModelServer:
    """Scripts by name; what was asked and what was refused, for the tests to look at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scripts: dict[str, _Script] = {}
        self._in_order: set[str] = set()
        self._asked: dict[str, list[dict[str, Any]]] = {}
        self.refused: list[str] = []
        self.port = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}/v1"

    def play(self, name: str, replies: list[dict[str, Any]], in_order: bool = False) -> None:
        turns: _Script = [[]]
        for reply in replies:
            turns[-1].append(reply)
            if not _breaks_off(reply):
                turns.append([])
        with self._lock:
            self._scripts[name] = turns
            if in_order:
                self._in_order.add(name)

    def requests(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._asked.get(name, ()))

    def next_reply(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        messages = body["messages"]
        wrong = broken_pairing(messages)
        if wrong is None and messages[0]["content"].startswith(SUMMARY):
            return 200, {"content": "what happened so far", "finish_reason": "stop"}
        with self._lock:
            self._asked.setdefault(name, []).append(body)
            if wrong is not None:
                self.refused.append(f"{name}: {wrong}")
                return 400, {"error": {"message": wrong, "type": "invalid_request_error"}}
            turns = self._scripts[name]
            turn = sum(message["role"] == "assistant" for message in messages)
            if name in self._in_order:
                turn = len(self._asked[name]) - 1
            due = turns[turn] if turn < len(turns) else []
            if not due:
                return 500, {"error": {"message": f"the script {name} has no turn {turn}"}}
            return 200, due.pop(0) if len(due) > 1 else due[0]


def _breaks_off(reply: dict[str, Any]) -> bool:
    return "partial_then_close" in reply


def _completion(reply: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in reply.get("tool_calls", ())
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.get("content")}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": "1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": reply["finish_reason"], "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve until the block ends."""
    model = ModelServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            name = self.path.split("/")[1]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = model.next_reply(name, body)
            if status == 200 and _breaks_off(reply):
                return self._break_off(reply)
            made = _completion(reply) if status == 200 else reply
            return self._send(status, json.dumps(made).encode())

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _break_off(self, reply: dict[str, Any]) -> None:
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

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    model.port = server.server_address[1]
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
