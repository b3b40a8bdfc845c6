"""The engine's processor on a store and a log in memory: one message at a time, as the cycle does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.schemas import codec, topics
from perdure.schemas.records import AgentSpec, ModelSpec, RunEvent, ToolSpec
from perdure.streams.engine.outputs import Outputs
from perdure.streams.engine.processor import EngineProcessor
from perdure.streams.engine.signatures import Signatures
from perdure.streams.runtime.blobs import Blobs
from perdure.streams.runtime.processor import Headers, Message, Record, Undecodable

LIMIT = 1_000_000


class Context:
    """A savepoint: reads through, merged by `Desk` only when the call returned."""

    partition = 0
    partitions = 1

    def __init__(self, desk: Desk) -> None:
        self.now = desk.now
        self.assignment: Any = desk.assignment
        self._desk = desk
        self.writes: dict[bytes, Any] = {}
        self.memos: dict[bytes, Any] = {}
        self.staged_timers: dict[bytes, int | None] = {}
        self.sent: list[tuple[str, bytes | None, Any]] = []
        self.dead: list[tuple[Record, str, str]] = []
        self.actions: list[Callable[[], None]] = []

    def get(self, key: bytes) -> Any | None:
        if key in self.writes:
            return self.writes[key]
        raw = self._desk.store.get(key)
        return None if raw is None else self._desk.engine.decode(key, raw)

    def put(self, key: bytes, value: Any) -> None:
        self.writes[key] = value

    def delete(self, key: bytes) -> None:
        self.writes[key] = None

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        for key in sorted({*self._desk.store, *self.writes}):
            if not key.startswith(prefix) or (start is not None and key < start):
                continue
            if self.get(key) is not None:
                yield key, self.get(key)

    def recall(self, key: bytes) -> Any | None:
        return self.memos[key] if key in self.memos else self._desk.memos.get(key)

    def remember(self, key: bytes, value: Any | None, weight: int = 0) -> None:
        self.memos[key] = value

    def set_timer(self, due: int, key: bytes) -> None:
        self.staged_timers[key] = due

    def cancel_timer(self, due: int, key: bytes) -> None:
        self.staged_timers.setdefault(key, None)

    def timers(self) -> Iterator[tuple[int, bytes]]:
        return iter(sorted((due, key) for key, due in self._desk.timers.items()))

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        assert value is None or len(value) < LIMIT, f"{topic}: {len(value)} bytes"
        self.sent.append((topic, key, None if value is None else json.loads(value)))

    def dead_letter(self, record: Record, reason: str, detail: str) -> None:
        self.dead.append((record, reason, detail))

    def after_commit(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def hold(self) -> Any:
        raise AssertionError("the engine holds nothing")


class Assignment:
    """One ownership: what is posted to it waits until `Desk.settle`."""

    partition = 0
    alive = True

    def __init__(self) -> None:
        self.posted: list[Any] = []

    def post(self, event: Any) -> None:
        self.posted.append(event)

    def busy(self, delta: int) -> None:
        raise AssertionError("the engine holds no revoke up")


class Told:
    """Histories from what the desk has sent; ``asked`` is whose were read."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.asked: list[str] = []

    def read(self, run_id: str, wanted: Any, done: Callable[[list[RunEvent]], None]) -> None:
        self.asked.append(run_id)
        if wanted():
            mine = [value for value in self._desk.on(topics.EVENTS) if value["run_id"] == run_id]
            done([codec.decode(json.dumps(value).encode(), RunEvent) for value in mine])


class Desk:
    """Records in, what was sent out; time by hand."""

    def __init__(self, directory: Path, signatures: Signatures | None = None) -> None:
        self.now = 1_000_000
        self.store: dict[bytes, bytes] = {}
        self.memos: dict[bytes, Any] = {}  # forgotten by a test that plays a crash
        self.timers: dict[bytes, int] = {}
        self.sent: list[tuple[str, bytes | None, Any]] = []
        self.dead: list[tuple[Record, str, str]] = []
        self.blobs = Blobs(str(directory))
        self.assignment = Assignment()
        self.histories = Told(self)
        self.engine = EngineProcessor(
            Outputs(self.blobs),
            lambda topic: "AbCdEfGhIjKl",
            lambda queue: None,
            self.histories,
            signatures,
        )
        self._offset = 0

    def catalog(self, *specs: ToolSpec | AgentSpec) -> None:
        for spec in specs:
            kind = "tool" if isinstance(spec, ToolSpec) else "agent"
            self.engine.catalog.update(f"{kind}/{spec.name}".encode(), codec.encode(spec))

    def feed(self, topic: str, **value: Any) -> None:
        self.take(self.record(topic, **value))

    def record(self, topic: str, **value: Any) -> Record:
        """As a producer's record stands on its topic: with the broker's time."""
        self._offset += 1
        return Record(topic, 0, self._offset, self.now, None, json.dumps(value).encode())

    def take(self, record: Record) -> None:
        try:
            message = self.engine.read(record)
        except Undecodable as error:
            self.dead.append((record, error.reason, error.detail))
            return
        self._attempt(lambda ctx: self.engine.process(ctx, message), message, None)

    def tick(self, seconds: float) -> None:
        """Let time pass; timers fire in order."""
        until = self.now + int(seconds * 1000)
        while due := min(
            ((at, key) for key, at in self.timers.items() if at <= until), default=None
        ):
            at, key = due
            self.now = max(self.now, at)
            del self.timers[key]
            self._attempt(lambda ctx, at=at, key=key: self.engine.timer(ctx, key, at), None, key)
        self.now = until

    def _attempt(
        self, call: Callable[[Any], None], message: Message | None, timer: bytes | None
    ) -> None:
        ctx = Context(self)
        try:
            call(ctx)
            self._merge(ctx)
        except Exception as error:  # as the cycle's savepoint does
            ctx = Context(self)
            self.engine.failed(ctx, message, timer, error)
            self._merge(ctx)

    def _merge(self, ctx: Context) -> None:
        stored = {
            key: None if value is None else self.engine.encode(key, value)
            for key, value in ctx.writes.items()
        }
        assert all(raw is None or len(raw) < LIMIT for raw in stored.values())
        for key, raw in stored.items():
            if raw is None:
                self.store.pop(key, None)
            else:
                self.store[key] = raw
        self.memos.update(ctx.memos)
        for timer, due in ctx.staged_timers.items():
            if due is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = due
        self.sent += ctx.sent
        self.dead += ctx.dead
        for action in ctx.actions:
            action()

    def settle(self) -> None:
        """Take what was posted."""
        while self.assignment.posted:
            event = self.assignment.posted.pop(0)
            self._attempt(lambda ctx, event=event: self.engine.completed(ctx, event), None, None)

    def take_over(self) -> None:
        """A new owner: nothing that was only in memory is there any more."""
        self.memos.clear()
        self.assignment.alive = False
        self.assignment = Assignment()
        self._attempt(self.engine.live, None, None)

    def on(self, topic: str) -> list[Any]:
        return [value for sent, _, value in self.sent if sent == topic]

    def outcome(self) -> Any:
        return self.on(topics.OUTCOMES)[-1]

    def answer(self, result: Any, status: str = "succeeded") -> None:
        """The worker's answer to the last command; a summary that is asked for comes first."""
        command = self.last_command()
        if command.get("request", {}).get("purpose") == "summary":
            self.answer_to(command, {"content": "what happened so far"}, "succeeded")
            command = self.last_command()
        self.answer_to(command, result, status)

    def last_command(self) -> Any:
        return [value for sent, _, value in self.sent if sent.startswith("agent.commands.")][-1]

    def answer_to(self, command: Any, result: Any, status: str = "succeeded") -> None:
        self.feed(
            topics.RESULTS,
            run_id=command["run_id"],
            action_id=command["action_id"],
            attempt=command["attempt"],
            status=status,
            result=result,
        )


def tool(name: str, approval: str = "never", effect: str = "read_only") -> ToolSpec:
    return ToolSpec(name=name, effect=effect, approval=approval)  # type: ignore[arg-type]


def agent(*tools: str, **values: Any) -> AgentSpec:
    model = ModelSpec(provider="scripted", replies=[])
    return AgentSpec(name="demo", tools=list(tools), model=model, **values)
