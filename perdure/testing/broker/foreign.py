"""A transaction of a client that is none of the runtime's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.streams.runtime.processor import Headers

if TYPE_CHECKING:
    from .broker import Broker


class Foreign:
    """An open transaction of somebody else. Raises `Fenced` once its id was taken or it timed out."""

    def __init__(self, broker: Broker, transactional_id: str, epoch: int) -> None:
        self._broker = broker
        self._id = transactional_id
        self._epoch = epoch

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> int:
        broker = self._broker
        broker.catch_up()
        log = broker.place(topic, partition, key, value, headers)
        at = broker.stamp(topic, broker.clock.now_ms() if timestamp is None else timestamp)
        return broker.transactions.append(
            self._id, self._epoch, log, at, key, value, tuple(headers)
        )

    def commit(self) -> None:
        self._broker.catch_up()
        self._broker.transactions.end(self._id, self._epoch, True)

    def abort(self) -> None:
        self._broker.catch_up()
        self._broker.transactions.end(self._id, self._epoch, False)
