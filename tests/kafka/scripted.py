"""A processor whose behaviour a test writes down as functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from perdure.streams.runtime.partitioner import partition_of
from perdure.streams.runtime.processor import Assignment, Context, Message, Record, Undecodable

from tests.kafka.counting import CHANGELOG, FORWARDED, LEFT, OUT, Counting


class Scripted(Counting):
    """Values are JSON: ``{"owner": str?, ...}``. What happened stands in the lists."""

    sources = (LEFT, FORWARDED)
    forwarded = FORWARDED
    changelog = CHANGELOG

    def __init__(self, **behaviour: Callable[..., None]) -> None:
        self.seen: list[Record] = []
        self.fired: list[tuple[bytes, int]] = []
        self.events: list[Any] = []
        self.lives: list[Assignment] = []
        self.given_up: list[Assignment] = []
        self.failures: list[tuple[Message | None, bytes | None, Exception]] = []
        self.table: dict[bytes, bytes | None] = {}
        self._behaviour = behaviour

    def _do(self, what: str, *arguments: Any) -> None:
        behaviour = self._behaviour.get(what)
        if behaviour is not None:
            behaviour(self, *arguments)

    def read(self, record: Record) -> Message | None:
        if record.value == b"skip":
            return None
        if record.value == b"bug":
            raise RuntimeError("read has a bug")
        try:
            body = json.loads(record.value or b"")
        except ValueError as e:
            raise Undecodable("malformed", str(e)) from e
        return Message(body.get("owner"), body, record)

    def process(self, ctx: Context, message: Message) -> None:
        self.seen.append(message.record)
        self._do("process", ctx, message)

    def timer(self, ctx: Context, key: bytes, due: int) -> None:
        self.fired.append((key, due))
        self._do("timer", ctx, key, due)

    def completed(self, ctx: Context, event: Any) -> None:
        self.events.append(event)
        self._do("completed", ctx, event)

    def live(self, ctx: Context) -> None:
        self.lives.append(ctx.assignment)
        self._do("live", ctx)

    def revoked(self, assignment: Assignment) -> None:
        self.given_up.append(assignment)
        self._do("revoked", assignment)

    def failed(
        self,
        ctx: Context,
        message: Message | None,
        timer: bytes | None,
        error: Exception,
        event: Any = None,
    ) -> None:
        self.failures.append((message, timer, error))
        self._do("failed", ctx, message, timer, error)

    def global_record(self, record: Record) -> None:
        self.table[record.key or b""] = record.value


def out(ctx: Context, text: str) -> None:
    ctx.send(OUT, None, json.dumps(text).encode(), (), 0)


def owned_by(partition: int, partitions: int = 2) -> str:
    return next(f"run-{i}" for i in range(100) if partition_of(f"run-{i}", partitions) == partition)
