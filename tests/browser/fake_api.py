"""The views' HTTP API as far as the page sees it, from a scene: no Kafka, no Faust, one thread a request."""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .scenes import MINUTE, Json, Scene, crowd
from .showcase import agents, showcase, tools

PAGE = Path(__file__).parents[2] / "streams" / "views" / "page"
TYPES = {
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
SAFE = 2**53 - 1


def outward(value: Any) -> Any:
    """Large integers as the API sends them."""
    if isinstance(value, bool) or not isinstance(value, int | dict | list):
        return value
    if isinstance(value, int):
        return value if -SAFE <= value <= SAFE else {"$int": str(value)}
    if isinstance(value, list):
        return [outward(inner) for inner in value]
    if len(value) == 1 and re.match(r"^\$int_*$", next(iter(value))):
        return {f"{key}_": outward(inner) for key, inner in value.items()}
    return {key: outward(inner) for key, inner in value.items()}


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class World:
    """What the server answers from; a test may change it and tell the page."""

    def __init__(self, rows: int = 0, *, scenes: bool = True) -> None:
        self.now = int(time.time() * 1000)
        self.scenes: dict[str, Scene] = {}
        self.rows: list[Json] = crowd(rows, self.now - 3 * 60 * MINUTE if scenes else self.now)
        if scenes:
            self.add(*showcase(self.now))
        self.me: Json = {"user": "ann", "roles": ["viewer", "operator", "approver"], "dev": True}
        self.token: str | None = None
        self.posted: list[tuple[str, Json]] = []
        self.refuse: str | None = None
        self.reason = ""
        self.listeners: list[queue.Queue[tuple[str, Any]]] = []
        self.tools = tools(self.now)
        self.agents = agents()
        self.on_post: Callable[[str, Json], None] = lambda path, body: None

    def add(self, *scenes: Scene) -> None:
        for scene in scenes:
            self.scenes[scene.run_id] = scene
            self.rows = [row for row in self.rows if row["run_id"] != scene.run_id]
            self.rows.append(scene.row)
        self.rows.sort(key=lambda row: row["updated_at"], reverse=True)

    def push(self, event: str, data: Any) -> None:
        for listener in list(self.listeners):
            listener.put((event, data))

    def change(self, run_id: str, **fields: Any) -> Json:
        """A run that changed: its row, and the event for the page."""
        (row,) = [row for row in self.rows if row["run_id"] == run_id]
        row.update(fields)
        row["version"] += 1
        row["updated_at"] = int(time.time() * 1000)
        self.rows.sort(key=lambda row: row["updated_at"], reverse=True)
        self.push("run", row)
        return row

    @property
    def questions(self) -> list[Json]:
        found = [asked for scene in self.scenes.values() for asked in scene.approvals]
        return sorted(found, key=lambda asked: asked["expires_at"])

    # --- GET ------------------------------------------------------------------------------------

    def runs(self, ask: dict[str, list[str]]) -> Json:
        def one(name: str) -> str:
            return ask.get(name, [""])[0]

        words = one("q").lower().split()

        def fits(row: Json) -> bool:
            return (
                (not ask.get("status") or row["status"] in ask["status"])
                and all(not one(k) or row[k] == one(k) for k in ("agent", "user_id", "session_id", "tenant"))
                and (not one("since") or row["updated_at"] >= int(one("since")))
                and (not one("quarantined") or row["quarantined"])
                and not one("stuck")
                and (not words or row["run_id"].startswith(one("q")) or all(w in row["title"].lower() for w in words))
            )  # fmt: skip

        found = [row for row in self.rows if fits(row)]
        start, limit = int(one("cursor") or 0), int(one("limit") or 50)
        if not 1 <= limit <= 200:
            raise Refused(400, "limit", "limit must be 1 to 200")
        more = start + limit < len(found)
        return {
            "runs": found[start : start + limit],
            "next": str(start + limit) if more else None,
            "total": len(found),
        }

    def scene(self, run_id: str) -> Scene:
        if run_id in self.scenes:
            return self.scenes[run_id]
        for row in self.rows:
            if row["run_id"] == run_id:
                made = Scene(run_id, row["started_at"], row["title"]).close()
                made.row = row
                return made
        raise Refused(
            404,
            "unknown_run",
            f"there is no run {run_id}; check the id, or wait for its task to be read",
        )

    def stats(self) -> Json:
        minute = self.now // MINUTE * MINUTE
        rates = [
            {"at": minute - (59 - i) * MINUTE, "started": 60 + i % 9, "finished": 48 + (i * 7) % 23, "failed": (i * 5) % 4,
             "steps": 220 + (i * 37) % 90, "tokens": 81_000 + i * 300, "cost": 0.17}
            for i in range(60)
        ]  # fmt: skip
        return {
            "totals": dict(Counter(row["status"] for row in self.rows)),
            "waiting": {**Counter(asked["kind"] for asked in self.questions), "retry": 3},
            "rates": rates,
            "stuck": 0,
            "quarantined": sum(row["quarantined"] for row in self.rows),
        }

    def health(self) -> Json:
        return {
            "ready": True,
            "lag": {"agent.tasks": 0, "agent.results": 14, "agent.approvals": 0, "agent.control": 0, "agent.events": 0,
                    "agent.commands.tools": 37, "agent.commands.models": 5},
            "processors": {"engine": {"behind": 14, "started": True}, "worker.tools": {"behind": 37, "started": True},
                           "worker.models": {"behind": 5, "started": True}, "views": {"behind": 0, "started": True}},
            "views": [{"instance": "http://127.0.0.1:8600", "partitions": [0, 1]}],
            "dead_letters": 2,
            "oldest_task_age_seconds": 0.4,
        }  # fmt: skip

    def question(self, approval_id: str) -> Json:
        for asked in self.questions:
            if asked["approval_id"] == approval_id:
                return {**asked, "open": True, "closed_by": None}
        raise Refused(404, "unknown_approval", f"there is no question {approval_id}")

    def get(self, path: str, ask: dict[str, list[str]]) -> Any:
        parts = [unquote(part) for part in path.split("/")[2:]]
        match parts:
            case ["me"]:
                return self.me
            case ["runs"]:
                return self.runs(ask)
            case ["runs", run_id]:
                scene = self.scene(run_id)
                return {
                    "run": scene.whole(),
                    "outcome": scene.outcome,
                    "approvals": scene.approvals,
                }
            case ["runs", run_id, "actions"]:
                return {"actions": self.scene(run_id).actions}
            case ["runs", run_id, "timeline"]:
                after, limit = int(ask.get("after", ["0"])[0]), int(ask.get("limit", ["500"])[0])
                left = [e for e in self.scene(run_id).entries if e["version"] > after]
                page = left[:limit]
                return {"entries": page, "next": page[-1]["version"] if len(left) > limit else None}
            case ["runs", run_id, "events", version]:
                entry = self.scene(run_id).entries[int(version) - 1]
                return {
                    **{k: entry[k] for k in ("version", "type", "at", "actor", "data")},
                    "run_id": run_id,
                    "hash": "9f" * 32,
                }
            case ["approvals"]:
                found = [
                    asked for asked in self.questions
                    if all(not ask.get(k) or asked[k] == ask[k][0] for k in ("kind", "agent"))
                ]  # fmt: skip
                return {"approvals": found, "next": None, "total": len(found)}
            case ["approvals", run_id, n]:
                return self.question(f"{run_id}/{n}")
            case ["verdicts", run_id, request_id]:
                return {"run_id": run_id, "request_id": request_id, "accepted": self.refuse is None,
                        "reason": self.refuse or self.reason, "version": 9, "at": self.now}  # fmt: skip
            case ["agents"]:
                return {"agents": self.agents}
            case ["tools"]:
                return {"tools": self.tools}
            case ["stats"]:
                return self.stats()
            case ["health"]:
                return self.health()
        raise Refused(404, "unknown_path", f"there is nothing under {path}")

    # --- POST -----------------------------------------------------------------------------------

    def post(self, path: str, body: Json) -> Json:
        self.posted.append((path, body))
        self.on_post(path, body)
        parts = [unquote(part) for part in path.split("/")[2:]]
        match parts:
            case ["tasks"]:
                return {"task_id": body.get("task_id", "t~Xy12ab34-0-17")}
            case ["approvals", run_id, n, "decisions"]:
                return {"request_id": f"{run_id}/{n}/{self.me['user']}/{body['decision']}"}
            case ["runs", run_id, "control"]:
                return {"request_id": f"{run_id}-{body['command']}-1"}
        raise Refused(404, "unknown_path", f"there is nothing under {path}")


class FakeApi:
    """The server on a port of its own; `stop` and `start` keep the port, as a restart does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.port = 0
        self.server: ThreadingHTTPServer | None = None
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> FakeApi:
        self.ended = threading.Event()
        server = _Server(("127.0.0.1", self.port), _handler(self, self.ended))
        self.server = server
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self.server is not None:
            self.ended.set()
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no news."""


def _handler(api: FakeApi, ended: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # headers and body are two writes: the second one waited 40 ms
        )

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a test's output is its own."""

        @property
        def world(self) -> World:
            return api.world

        def _send(self, status: int, kind: str, body: bytes, *more: tuple[str, str]) -> None:
            self.send_response(status)
            self.send_header("content-type", f"{kind}; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.send_header("content-security-policy", POLICY)
            self.send_header("x-content-type-options", "nosniff")
            self.send_header("referrer-policy", "no-referrer")
            self.send_header(
                "cache-control", "no-store" if kind.endswith("json") else "max-age=600"
            )
            for name, value in more:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _json(self, status: int, value: Any, *more: tuple[str, str]) -> None:
            self._send(status, "application/json", json.dumps(outward(value)).encode(), *more)

        def _answer(self, make: Callable[[], Any], status: int = 200) -> None:
            try:
                if self.world.token and f"perdure={self.world.token}" not in self.headers.get(
                    "cookie", ""
                ):
                    raise Refused(401, "no_token", "Sign in with a token.")
                self._json(status, make())
            except Refused as refused:
                said = {"error": {"code": refused.code, "message": str(refused)}}
                self._json(refused.status, said)

        def _stopped(self) -> bool:
            """A kept connection outlives the listening socket; the process it stands for does not."""
            self.close_connection = self.close_connection or ended.is_set()
            return ended.is_set()

        def do_GET(self) -> None:
            if self._stopped():
                return
            split = urlsplit(self.path)
            if split.path == "/api/changes":
                self._changes()
            elif split.path.startswith("/api/"):
                self._answer(lambda: self.world.get(split.path, parse_qs(split.query)))
            else:
                found = (
                    PAGE / split.path[1:]
                    if re.fullmatch(r"/[a-z_]+\.(js|css|svg)", split.path)
                    else PAGE / "index.html"
                )
                if found.exists():
                    self._send(200, TYPES[found.suffix], found.read_bytes())
                else:
                    self._send(404, "text/plain", b"no such file")

        def do_POST(self) -> None:
            if self._stopped():
                return
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            if self.path == "/api/login":
                if body.get("token") != self.world.token:
                    self._json(401, {"error": {"code": "bad_token", "message": "unknown token"}})
                else:
                    cookie = f"perdure={self.world.token}; HttpOnly; SameSite=Strict; Path=/"
                    self._json(200, self.world.me, ("set-cookie", cookie))
                return
            self._answer(lambda: self.world.post(self.path, body), 202)

        def _changes(self) -> None:
            if self.world.token and f"perdure={self.world.token}" not in self.headers.get(
                "cookie", ""
            ):
                self._json(401, {"error": {"code": "no_token", "message": "Sign in with a token."}})
                return
            mine: queue.Queue[tuple[str, Any]] = queue.Queue()
            self.world.listeners.append(mine)
            self.close_connection = True
            try:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(b": hello\n\n")
                for event, data in _until(mine, ended):
                    text = json.dumps(outward(data))
                    self.wfile.write(f"event: {event}\ndata: {text}\n\n".encode())
            except OSError:
                return
            finally:
                self.world.listeners.remove(mine)

    return Handler


def _until(mine: queue.Queue[tuple[str, Any]], ended: threading.Event) -> Iterator[tuple[str, Any]]:
    while not ended.is_set():
        try:
            yield mine.get(timeout=0.05)
        except queue.Empty:
            continue
