"""What we set on Kafka's clients, and why."""

from __future__ import annotations

import logging
from typing import Any

from .settings import RuntimeSettings

_MAX_MESSAGE = 4_300_000  # a forwarded record of 4 MB with its headers
_log = logging.getLogger("perdure.kafka")

_RECOVERY = "none"
"""For clients that ask coordinators. The default, rebootstrap, takes down the known brokers' handles
when all connections are lost, but librdkafka 2.16.0 keeps asking a cached coordinator through the
dead one: offsets sent after a broker's restart never come back, and an admin client may end the
process (``eonce->refcnt > 0``; both measured). Consumers need the default: with ``none`` one whose
broker was restarted, and later was silent for 13 s, never connects again (measured too)."""


class ClientSettings:
    def __init__(self, settings: RuntimeSettings) -> None:
        self.prefix = settings.topic_prefix
        self.eager = settings.group_protocol == "classic"
        self._runtime = settings

    def _client(self, client_id: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._runtime.bootstrap_servers,
            "client.id": client_id,
            "logger": _log,
            "error_cb": _on_error,
            "log.connection.close": False,
            "socket.keepalive.enable": True,
            # A request the broker took along when it died is given up for a new one after this.
            "socket.timeout.ms": 10_000,
            "socket.connection.setup.timeout.ms": 5_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 50,
            "topic.metadata.refresh.interval.ms": 30_000,
        }

    def _final(self, own: dict[str, Any]) -> dict[str, Any]:
        return own | dict(self._runtime.kafka)

    def admin(self) -> dict[str, Any]:
        own = self._client(f"{self.prefix}perdure.admin.{self._runtime.instance_id}")
        return self._final(own | {"metadata.recovery.strategy": _RECOVERY})

    def _consumer(self, client_id: str) -> dict[str, Any]:
        return self._client(client_id) | {
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # never silently to either end
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 100,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 16_384,
        }

    def group_consumer(self, group: str, client_id: str) -> dict[str, Any]:
        own = self._consumer(client_id) | {
            "group.id": group,
            # An end is told by a fetch that found nothing, so this is how late it is known; it
            # is also what a newly resumed partition may wait for the fetch under way.
            "fetch.wait.max.ms": 100,
        }
        if self.eager:
            own |= {
                "group.protocol": "classic",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": self._runtime.session_timeout_ms,
                "heartbeat.interval.ms": self._runtime.heartbeat_ms,
            }
        else:  # session and heartbeat are the group's settings, on the broker
            own |= {"group.protocol": "consumer", "group.remote.assignor": "range"}
        return self._final(own)

    def reader(self, client_id: str) -> dict[str, Any]:
        # librdkafka wants a group's name, though nothing is ever committed under it. The wait is
        # what a takeover pays to see the changelog's end, and how often idle global topics ask.
        return self._final(
            self._consumer(client_id) | {"group.id": f"{client_id}.reader", "fetch.wait.max.ms": 50}
        )

    def _producer(self, client_id: str) -> dict[str, Any]:
        return self._client(client_id) | {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # Java's default: the contract's owner of a run
            "linger.ms": 1,  # one request for the results of a burst, or for what a cycle staged
            "message.max.bytes": _MAX_MESSAGE,
            "topic.metadata.propagation.max.ms": 3_000,  # how long an unknown topic is hoped for
        }

    def plain_producer(self, client_id: str) -> dict[str, Any]:
        return self._final(self._producer(client_id))

    def transactional_producer(self, transactional_id: str) -> dict[str, Any]:
        own = self._producer(transactional_id) | {
            "transactional.id": transactional_id,
            # A transaction begun right after another one is answered CONCURRENT_TRANSACTIONS until
            # the markers of the first are written (2 to 5 ms): this is how long until it is asked again.
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 100,
            "transaction.timeout.ms": self._runtime.transaction_timeout_ms,
            "metadata.recovery.strategy": _RECOVERY,
        }
        return self._final(own)


def _on_error(error: Any) -> None:
    """Lost connections and the like; librdkafka reconnects by itself."""
    _log.warning("%s: %s", error.name(), error.str())
