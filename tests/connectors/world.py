"""A runtime of one thread and no Kafka: what the worker's tests drive it with."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from perdure.connectors.executor import ThreadedExecutor
from perdure.connectors.models.providers import Providers
from perdure.connectors.worker import WorkerProcessor, WorkerSettings
from perdure.schemas import codec, topics
from perdure.schemas.records import ActionCommand
from perdure.streams.runtime.blobs import Blobs
from perdure.streams.runtime.processor import Headers, Message, Record, Undecodable


class FakeHold:
    def __init__(self) -> None:
        self.finished = False
        self.left = False

    def leave(self) -> None:
        self.left = True

    def finish(self) -> None:
        self.finished = True


class FakeAssignment:
    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.alive = True
        self.began_anew = False
        self.events: deque[Any] = deque()
        self.in_flight = 0

    def post(self, event: Any) -> None:
        if self.alive:
            self.events.append(event)

    def busy(self, delta: int) -> None:
        self.in_flight += delta


class FakeProducer:
    """Takes results; ``broken`` counts how many are refused first."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None, Headers]] = []
        self.broken = 0
        self.stalled = False

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        if self.broken:
            self.broken -= 1
            if done is not None:
                done(OSError("no broker"))
            return
        self.sent.append((topic, key, value, headers))
        if done is not None and not self.stalled:
            done(None)

    def flush(self, timeout: float) -> int:
        return 0

    def close(self) -> None: ...


class FakeContext:
    """One savepoint; `World.cycle` merges it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partition = 0
        self.partitions = 1
        self.now = world.now + world.ahead
        self.assignment = world.assignment
        self.staged: dict[bytes, Any] = {}
        self.sent: list[tuple[str, bytes | None, bytes | None, Headers]] = []
        self.actions: list[Callable[[], None]] = []
        self.timers: dict[tuple[int, bytes], bool] = {}
        self.dead: list[tuple[Record, str, str]] = []
        self.taken_before = world.taken_before

    def get(self, key: bytes) -> Any | None:
        return self.staged[key] if key in self.staged else self._world.store.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self._world.worker.encode(key, value)
        self.staged[key] = value

    def delete(self, key: bytes) -> None:
        self.staged[key] = None

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        merged = {**self._world.store, **self.staged}
        return iter(
            sorted((k, v) for k, v in merged.items() if k.startswith(prefix) and v is not None)
        )

    def set_timer(self, due: int, key: bytes) -> None:
        self.timers[due, key] = True

    def cancel_timer(self, due: int, key: bytes) -> None:
        self.timers[due, key] = False

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        self.sent.append((topic, key, value, headers))

    def dead_letter(self, record: Record, reason: str, detail: str) -> None:
        self.dead.append((record, reason, detail))

    def after_commit(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def hold(self) -> FakeHold:
        hold = FakeHold()
        self._world.holds.append(hold)
        return hold


class World:
    """A worker, its store and its partition. Kept by the store, it survives its worker.

    ``stands``: its seconds are those of ``now``, which only a test moves.
    """

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        instance_id: str = "w1",
        models: bool = False,
        blobs: Blobs | None = None,
        store: dict[bytes, Any] | None = None,
        stands: bool = False,
        **settings: Any,
    ) -> None:
        self.store: dict[bytes, Any] = {} if store is None else store
        self.timers: dict[tuple[int, bytes], bool] = {}
        self.assignment = FakeAssignment()
        self.producer = FakeProducer()
        self.executor = ThreadedExecutor()
        self.holds: list[FakeHold] = []
        self.committed: list[tuple[str, bytes | None, bytes | None, Headers]] = []
        self.dead: list[tuple[Record, str, str]] = []
        self.now = 1_000_000
        self.ahead = 0  # ms; of the partition's time before the clock
        self.taken_before = False  # a former owner may have taken what comes
        self.worker = WorkerProcessor(
            "tools",
            tools,
            settings=WorkerSettings(instance_id=instance_id, **settings),
            executor=self.executor,
            producer=self.producer,
            models=Providers() if models else None,
            blobs=blobs,
            clock=lambda: self.now,
            monotonic=(lambda: self.now / 1000) if stands else time.monotonic,
        )

    def close(self) -> None:
        self.executor.close()

    # --- the cycle -----------------------------------------------------------------------------

    def commit(self, ctx: FakeContext) -> None:
        for key, value in ctx.staged.items():
            if value is None:
                self.store.pop(key, None)
            else:
                self.store[key] = self.worker.decode(key, self.worker.encode(key, value))
        for timer, there in ctx.timers.items():
            if there:
                self.timers[timer] = True
            else:
                self.timers.pop(timer, None)
        self.committed += ctx.sent
        self.dead += ctx.dead
        for action in ctx.actions:
            action()

    def process(self, command: ActionCommand, headers: Headers = ()) -> FakeContext:
        """Up to the commit, which is the caller's."""
        record = Record(
            topics.commands("tools"), 0, 0, self.now, b"r", codec.encode(command), headers
        )
        message = self.worker.read(record)
        assert message is not None
        ctx = FakeContext(self)
        try:
            self.worker.process(ctx, message)
        except Exception as error:
            ctx = FakeContext(self)
            self.worker.failed(ctx, message, None, error)
        return ctx

    def take(self, command: ActionCommand, headers: Headers = ()) -> None:
        self.commit(self.process(command, headers))

    def live(self) -> None:
        ctx = FakeContext(self)
        self.worker.live(ctx)
        self.commit(ctx)

    def read(self, raw: bytes | None) -> Message | Undecodable | None:
        try:
            return self.worker.read(Record(topics.commands("tools"), 0, 0, self.now, b"r", raw))
        except Undecodable as error:
            return error

    def fire(self, until: int) -> None:
        self.now = max(self.now, until)
        for due, key in sorted(k for k in self.timers if k[0] <= until):
            del self.timers[due, key]
            ctx = FakeContext(self)
            self.worker.timer(ctx, key, due)
            self.commit(ctx)

    def drain(self) -> None:
        """Take what was posted."""
        while self.assignment.events:
            ctx = FakeContext(self)
            self.worker.completed(ctx, self.assignment.events.popleft())
            self.commit(ctx)

    def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Run the cycle until ``condition`` holds."""
        end = time.monotonic() + seconds
        nap = threading.Event()
        while True:
            self.drain()
            if condition():
                return
            assert time.monotonic() < end, f"waited in vain; results: {self.results()}"
            nap.wait(0.001)

    # --- what came out -------------------------------------------------------------------------

    def results(self) -> list[dict[str, Any]]:
        sent = self.committed + self.producer.sent
        return [msgspec.json.decode(v) for t, _, v, _ in sent if t == topics.RESULTS and v]

    def statuses(self) -> list[str]:
        return [result["status"] for result in self.results()]

    def answer(self, command: ActionCommand) -> dict[str, Any]:
        """Take the command, and its last answer once it is there."""
        self.take(command)
        self.until(
            lambda: any(s not in ("started", "progress", "running") for s in self.statuses())
        )
        return next(r for r in self.results() if r["status"] not in ("started", "progress"))

    def ledger(self) -> dict[str, str]:
        return {k.decode(): v.state for k, v in self.store.items()}


def command(target: str = "t", **more: Any) -> ActionCommand:
    """A call of the first action of run r."""
    fields: dict[str, Any] = {
        "run_id": "r", "agent": "a", "user_id": "u", "session_id": "s", "tenant": "default",
        "action_id": "r/1", "attempt": 1, "verb": "call", "target": target, "effect": "read_only",
        "arguments": {}, "idempotency_key": "r/1/0a0a0a0a", "request_id": "id", "timeout_seconds": 5.0,
        "issued_at": 0, "expires_at": 10_000_000,
    }  # fmt: skip
    return ActionCommand(**{**fields, **more})
