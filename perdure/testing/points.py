"""Where a process can be struck: every call of its ports, and around every tool.

The names are ``<port>.<call>``; each is told "before" and "after". Calls of Kafka are told by the
broker itself (`Broker`'s ``on_call``), calls of the store by ``disk.py``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from perdure.connectors.tool import Tool
from perdure.streams.runtime.ports import (
    Admin,
    PlainProducer,
    Polled,
    Reader,
    TransactionalProducer,
)
from perdure.streams.runtime.processor import Headers

from .broker.consumers import SimulatedGroupConsumer
from .broker.process import Process

Point = Callable[[str, str], None]


def pointed(tool: Tool[..., Any], point: Point) -> Tool[..., Any]:
    """The same tool, its function and its query between two points."""
    query = tool.query_function
    return rebound(
        tool,
        _around(tool.function, f"tool.{tool.spec.effect}", point),
        None if query is None else _around(query, "tool.query", point),
    )


def rebound(
    tool: Tool[..., Any], function: Callable[..., Any], query: Callable[..., Any] | None
) -> Tool[..., Any]:
    """The same declaration for other functions of the same signatures."""
    made: Tool[..., Any] = Tool(function, tool.spec, tool.signature)
    made.is_async = tool.is_async
    made.query_function = query
    made._query_names = tool._query_names
    made._query_context = tool._query_context
    return made


def _around(function: Callable[..., Any], where: str, point: Point) -> Callable[..., Any]:
    if asyncio.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            point(where, "before")
            made = await function(*args, **kwargs)
            point(where, "after")
            return made

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        point(where, "before")
        made = function(*args, **kwargs)
        point(where, "after")
        return made

    return called


class WatchedConsumer:
    """A group consumer that remembers what its last poll was asked and whether it got anything."""

    def __init__(self, inner: SimulatedGroupConsumer) -> None:
        self._inner = inner
        self.timeout = 0.0
        self.got = False
        self.subscribe = inner.subscribe
        self.pause = inner.pause
        self.resume = inner.resume
        self.start = inner.start
        self.commit = inner.commit
        self.membership = inner.membership

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        self.timeout, self.got = timeout, False
        found = self._inner.poll(limit, 0)
        self.got = bool(found)
        return found

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._inner.silence(True)  # one that could not say goodbye sends no heartbeats either


class WatchedProducer:
    """A plain producer that tells when something of it waits for its answer."""

    def __init__(self, inner: PlainProducer, sent: Callable[[], None]) -> None:
        self._inner = inner
        self._sent = sent
        self.outstanding = 0
        self.flush = inner.flush
        self.close = inner.close

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        def told(error: Exception | None) -> None:
            self.outstanding -= 1
            if done is not None:
                done(error)

        self._inner.send(topic, key, value, headers, partition, told)
        self.outstanding += 1
        self._sent()


class WatchedKafka:
    """Kafka as one cycle sees it: its consumer is watched."""

    def __init__(self, inner: Process, sent: Callable[[], None], watcher: Any = None) -> None:
        self._inner = inner
        self._sent = sent
        self._watcher = watcher
        self._producers: list[WatchedProducer] = []
        self.broker = inner.broker
        self.abort_open_transaction = inner.abort_open_transaction

    def of(self, watcher: Any) -> WatchedKafka:
        return WatchedKafka(self._inner, self._sent, watcher)

    def group_consumer(self, group: str, client_id: str) -> WatchedConsumer:
        made = WatchedConsumer(self._inner.group_consumer(group, client_id))
        self._watcher.consumer = made
        return made

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        return self._inner.transactional_producer(transactional_id)

    def plain_producer(self, client_id: str) -> WatchedProducer:
        made = WatchedProducer(self._inner.plain_producer(client_id), self._sent)
        self._producers.append(made)
        return made

    @property
    def reachable(self) -> bool:
        return self._inner.reachable

    @property
    def outstanding(self) -> int:
        """Records of plain producers without an answer yet."""
        return sum(producer.outstanding for producer in self._producers)

    def reader(self, client_id: str) -> Reader:
        return self._inner.reader(client_id)

    def admin(self) -> Admin:
        return self._inner.admin()
