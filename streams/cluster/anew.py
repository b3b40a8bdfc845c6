"""Forgetting what can be made again: a group's offsets, a processor's changelogs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from .admin import Connection, _admin_settings
from .errors import ClusterError

_TIMEOUT: Final = 15.0


def _client(connection: Connection) -> Any:
    conf = {"bootstrap.servers": connection} if isinstance(connection, str) else dict(connection)
    return AdminClient(_admin_settings(conf))


def forget_group(connection: Connection, group: str) -> None:
    """Delete a group with its offsets. Raises `ClusterError` while it has members."""
    client = _client(connection)
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            for future in client.delete_consumer_groups([group], request_timeout=_TIMEOUT).values():
                future.result(_TIMEOUT)
            return
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if code == KafkaError.NON_EMPTY_GROUP and time.monotonic() < deadline:
                time.sleep(0.5)  # a member that was killed is one until its session ends
                continue
            if code == KafkaError.NON_EMPTY_GROUP:
                raise ClusterError(
                    f"the group {group} still has members: stop every `perdure views` first"
                ) from error
            raise ClusterError(
                f"the group {group} can't be deleted: {error.args[0].str()}"
            ) from error


def delete_topics(connection: Connection, names: Sequence[str]) -> None:
    """Delete topics and wait until they are gone; those that are not there are no fault."""
    client = _client(connection)
    for name, future in client.delete_topics(list(names), request_timeout=_TIMEOUT).items():
        try:
            future.result(_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise ClusterError(f"{name} can't be deleted: {error.args[0].str()}") from error
    deadline = time.monotonic() + _TIMEOUT
    while set(names) & set(client.list_topics(timeout=_TIMEOUT).topics):
        if time.monotonic() > deadline:
            raise ClusterError(f"{', '.join(names)} were not deleted in {_TIMEOUT:g} s")
        time.sleep(0.05)
