"""A view process without Kafka: tables in dicts, a door that notes what went through it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from perdure.schemas import codec, topics
from perdure.schemas.records import (
    ApprovalDecision,
    ApprovalRequest,
    ControlRequest,
    Outcome,
    RunEvent,
    Task,
    Verdict,
)
from perdure.streams.core.apply import fold
from perdure.streams.core.lifecycle import FINAL
from perdure.streams.core.policies import outcome as outcomes
from perdure.streams.views.access import Access, Caller, Rate
from perdure.streams.views.answers import Answers
from perdure.streams.views.api.server import Parts, Server
from perdure.streams.views.board import Board
from perdure.streams.views.changes import Changes
from perdure.streams.views.index import Index
from perdure.streams.views.ports import Elsewhere
from perdure.streams.views.projections.rows import Row
from perdure.streams.views.projector import Projector, history

ANN = "token-of-ann"
BOB = "token-of-bob"
EVE = "token-of-eve"
TOKENS = {
    ANN: ("ann", ["operator", "approver"]),
    BOB: ("bob", ["approver"]),
    EVE: ("eve", ["viewer"]),
}


class DictTables:
    """One partition's tables. Rows go through their bytes, as in the store."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.chunks: dict[tuple[str, int], bytes] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.writes = 0

    def row(self, run_id: str) -> Row | None:
        raw = self.rows.get(run_id)
        return None if raw is None else msgspec.msgpack.decode(raw, type=Row)

    def put_row(self, row: Row) -> None:
        self.writes += 1
        self.rows[row.run_id] = msgspec.msgpack.encode(row)

    def chunk(self, run_id: str, number: int) -> bytes | None:
        return self.chunks.get((run_id, number))

    def put_chunk(self, run_id: str, number: int, chunk: bytes) -> None:
        self.writes += 1
        self.chunks[run_id, number] = chunk


class FakeHistories:
    """The tables of this process, and a run that is another one's."""

    def __init__(self, tables: DictTables) -> None:
        self.tables = tables
        self.elsewhere: dict[str, str | None] = {}
        self.is_ready = True
        self.peers: list[str] = []

    def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        if run_id in self.elsewhere:
            raise Elsewhere(self.elsewhere[run_id])
        row = self.tables.row(run_id)
        return [] if row is None else history(self.tables, row, after)

    def outcome(self, run_id: str) -> Outcome | None:
        return self.tables.outcomes.get(run_id)

    def owner(self, run_id: str) -> str | None:
        return self.elsewhere.get(run_id)

    def others(self) -> list[str]:
        return self.peers

    def whole(self) -> bool:
        return self.is_ready

    def instances(self) -> list[dict[str, Any]]:
        return [{"instance": "here", "partitions": [0]}]

    def ready(self) -> bool:
        return self.is_ready


class FakeDoor:
    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.decisions: list[ApprovalDecision] = []
        self.controls: list[ControlRequest] = []
        self.verdicts: dict[tuple[str, str], Verdict] = {}

    def submit(self, task: Task) -> str:
        codec.encode(task)
        self.tasks.append(task)
        return task.task_id or "r-made"

    def decide(self, decision: ApprovalDecision) -> str:
        codec.encode(decision)
        self.decisions.append(decision)
        return decision.request_id or f"q{len(self.decisions)}"

    def control(self, request: ControlRequest) -> str:
        codec.encode(request)
        self.controls.append(request)
        return request.request_id or f"c{len(self.controls)}"

    def verdict(self, run_id: str, request_id: str, wait: float) -> Verdict | None:
        return self.verdicts.get((run_id, request_id))


class FakeWatch:
    def look(self) -> dict[str, Any]:
        return {"lag": {}, "processors": {}, "dead_letters": 0, "oldest_task_age_seconds": 0.0}


def access(tokens: Path) -> Access:
    from perdure.streams.views.access import entry

    lines = (entry(token, user, roles) for token, (user, roles) in TOKENS.items())
    tokens.write_text("\n".join(msgspec.json.encode(line).decode() for line in lines))
    return Access(tokens)


class World:
    """A view and its server on loopback; ``feed`` is what Faust would hand it."""

    def __init__(self, access: Access, *, rate: Rate | None = None) -> None:
        self.tables = DictTables()
        self.index = Index()
        self.projector = Projector()
        self.histories = FakeHistories(self.tables)
        self.door = FakeDoor()
        self.changes: Changes | None = None
        self.board = Board(self._asked)
        self.board.caught_up.set()
        answers = Answers(self.index, self.histories, self.board)
        self.changes = Changes("e", self.index.shown, answers.stats)
        self.parts = Parts(
            answers=answers,
            histories=self.histories,
            door=self.door,
            watch=FakeWatch(),
            changes=self.changes,
            access=access,
            rate=rate or Rate(100_000, 100_000),
            hosts=frozenset({"127.0.0.1", "localhost"}),
        )

    def _asked(self, approval_id: str, is_open: bool) -> None:
        if self.changes is not None:
            self.changes.approval(approval_id, is_open)

    def feed(self, events: list[RunEvent]) -> list[Row]:
        rows = self.projector.take(self.tables, [codec.encode(event) for event in events])
        self.index.put(0, rows)
        assert self.changes is not None
        self.changes.runs(row.run_id for row in rows)
        run = fold(events) if events and events[0].version == 1 else None
        if run is not None and run.header.status in FINAL:
            made = outcomes.build(run)
            self.tables.outcomes[made.run_id] = made
            self.index.put_outcome(0, made.run_id, made)
        return rows

    def ask(self, **fields: Any) -> ApprovalRequest:
        """An open question on the pending topic."""
        given = {
            "run_id": "r1", "agent": "demo", "user_id": "u1", "session_id": "s", "tenant": "default",
            "approval_id": "r1/a1", "kind": "action", "title": "Pay", "tool": "pay", "arguments": {"amount": 1},
            "allowed_decisions": ["approve", "modify", "reject", "cancel_run"], "approvers": ["ann"],
            "requested_at": 1, "expires_at": 10**12, "on_timeout": "cancel_run", "digest": "d1",
        }  # fmt: skip
        made = msgspec.convert({**given, **fields}, ApprovalRequest)
        self.board.take(topics.PENDING, made.approval_id.encode(), codec.encode(made))
        return made

    @contextmanager
    def served(self) -> Iterator[str]:
        """The address it answers at."""
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        loop = asyncio.new_event_loop()
        server = Server(self.parts, listening)
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
            # in its own thread: in the test's one another loop may be running
            asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
            self.index.close()


def client(address: str, token: str | None = ANN) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=10)


def local() -> Caller:
    return Caller("me", frozenset({"viewer", "operator", "approver"}), dev=True)
