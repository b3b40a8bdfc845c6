"""The producing ports over confluent-kafka.

Errors of a transaction are sorted here, by what librdkafka says of them: fatal -> `ProducerFenced`;
the group does not know us -> `GroupFenced`; requires abort -> `Aborted`; retriable -> asked again
within the patience of the settings, then `OutcomeUnknown`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from .errors import (
    Aborted,
    DoesNotFit,
    GroupFenced,
    OutcomeUnknown,
    ProducerFenced,
    RuntimeFault,
    Unanswered,
)
from .kafka_consumers import GROUP_FENCE, as_offsets
from .kafka_settings import ClientSettings
from .ports import Position, Spot
from .processor import Headers

log = logging.getLogger(__name__)

_PRODUCER_FENCE = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        # The broker has forgotten the id (transactional.id.expiration.ms, 7 days of idleness):
        # every further transaction of this producer is refused. A new process asks for it anew.
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
_CALL_TIMEOUT = 5.0  # of one call; retriable ones are repeated


class ConfluentTransactionalProducer:
    def __init__(self, settings: ClientSettings, transactional_id: str, patience: float) -> None:
        self._id = transactional_id
        self._prefix = settings.prefix
        self._patience = patience
        self._undelivered = ""
        self._does_not_fit = False
        own = settings.transactional_producer(transactional_id)
        self._producer = Producer(own | {"on_delivery": self._on_delivery})

    def _on_delivery(self, error: Any, message: Any) -> None:
        """The commit only says that something was not delivered; keep what and why."""
        if error is not None and not self._undelivered:
            self._undelivered = f"; not delivered to {message.topic()}: {error.str()}"
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._does_not_fit = True

    def start(self) -> None:
        self._call("init_transactions", self._producer.init_transactions)

    def begin(self) -> None:
        self._undelivered, self._does_not_fit = "", False
        try:
            self._producer.begin_transaction()
        except KafkaException as e:
            raise self._sorted("begin", e) from e

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int | None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        _produce(
            self._producer,
            self._prefix + topic,
            key,
            value,
            headers,
            partition,
            _on_delivery(delivered),
            self._sorted,
        )

    def send_offsets(self, positions: Mapping[Spot, Position], membership: object) -> None:
        offsets = as_offsets(positions, self._prefix)
        self._call(
            "send_offsets",
            lambda t: self._producer.send_offsets_to_transaction(offsets, membership, t),
        )

    def commit(self) -> None:
        self._call("commit", self._producer.commit_transaction)

    def abort(self) -> None:
        self._call("abort", self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _call(self, what: str, call: Callable[[float], object]) -> None:
        """Asked again while the answer is 'retriable': for a commit, nothing else is allowed then."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                call(_CALL_TIMEOUT)
                return
            except KafkaException as e:
                error = e.args[0]
                if not error.retriable() or error.fatal() or error.txn_requires_abort():
                    raise self._sorted(what, e) from e
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(
                        f"Kafka has not answered {what} of {self._id} for {self._patience:.0f} s: {error.str()}"
                    ) from e
                log.warning("%s of %s is asked again: %s", what, self._id, error.str())

    def _sorted(self, what: str, e: KafkaException) -> Exception:
        error = e.args[0]
        text = f"{what} of {self._id}: {error.name()}: {error.str()}"
        if error.fatal() or error.code() in _PRODUCER_FENCE:
            return ProducerFenced(
                f"{text}; another process has this identity, or the producer is past repair"
            )
        if error.code() in GROUP_FENCE:
            return GroupFenced(text)
        if what == "abort":
            return RuntimeFault(text)
        if self._does_not_fit or error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return DoesNotFit(text + self._undelivered)
        return Aborted(text + self._undelivered)


def _on_delivery(delivered: Callable[[int], None] | None) -> Callable[[Any, Any], None] | None:
    if delivered is None:
        return None

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:  # an undelivered record fails the commit
            delivered(message.offset())

    return on_delivery


def _produce(
    producer: Any,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    partition: int | None,
    on_delivery: Callable[[Any, Any], None] | None,
    sort: Callable[[str, KafkaException], Exception],
) -> None:
    at = -1 if partition is None else partition
    listed = list(headers) if headers else None
    while True:
        try:
            if on_delivery is None:
                producer.produce(topic, value, key, at, headers=listed)
            else:
                producer.produce(topic, value, key, at, on_delivery, headers=listed)
            return
        except BufferError:
            producer.poll(0.05)  # the client's queue is full: let it drain
        except KafkaException as e:
            raise sort("send", e) from e


class ConfluentPlainProducer:
    """Delivery answers are served by a thread of its own, so callers never have to poll."""

    def __init__(self, settings: ClientSettings, client_id: str) -> None:
        self._prefix = settings.prefix
        self._producer = Producer(settings.plain_producer(client_id))
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name=f"{client_id}.answers", daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.1)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        def on_delivery(error: Any, _: Any) -> None:
            if done is not None:
                done(None if error is None else Unanswered(error.str()))

        def sort(what: str, e: KafkaException) -> Exception:
            return Unanswered(f"{what}: {e.args[0].str()}")

        _produce(
            self._producer, self._prefix + topic, key, value, headers, partition, on_delivery, sort
        )

    def flush(self, timeout: float) -> int:
        left: int = self._producer.flush(timeout)
        return left

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2)
        self._producer.flush(0)
