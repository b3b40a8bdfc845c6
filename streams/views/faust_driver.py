"""Faust's Kafka driver, reading committed records only, and all of them.

Faust's driver picks `read_committed` in exactly-once mode alone, and no setting changes it. Read
otherwise, a view would show what the engine has rolled back, and take the true event of the same
version for one it has seen already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport


class _CommittedThread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Read when the consumer starts its fetcher; a test with an aborted event guards it.
        consumer._isolation_level = "read_committed"
        return consumer

    async def seek_to_committed(self) -> Mapping[Any, int]:
        """Before records flow (again): also where nothing is committed yet, to the beginning.

        What was fetched while a rebalance began is thrown away; Faust goes back to what is committed,
        and of a partition that has nothing committed it would never show those records.
        """
        found = await super().seek_to_committed()
        begin = [tp for tp, offset in found.items() if offset is None and self._is_source(tp.topic)]
        if begin:
            await self.seek_to_beginning(*begin)
        return found

    def _is_source(self, topic: str) -> bool:
        """Not a changelog: recovery has a place of its own in each."""
        return topic in getattr(self.consumer.app, "sources", ())


class _CommittedConsumer(Consumer):
    """Commits nothing once a batch could not be taken: Faust acknowledges it whatever comes of it."""

    async def commit(self, *args: Any, **options: Any) -> bool:
        frozen = getattr(self.app, "frozen", None)
        if frozen is not None and frozen():
            return False
        return bool(await super().commit(*args, **options))

    def _new_consumer_thread(self) -> Any:
        return _CommittedThread(self, loop=self.loop, beacon=self.beacon)


class CommittedTransport(Transport):
    """Install with ``app.transport = CommittedTransport(app.conf.broker, app)``."""

    Consumer = _CommittedConsumer
