"""How soon a dead member's partitions go to another one: a matter of the broker, not of ours.

With the group protocol `consumer` (KIP-848) the session timeout is 45 s unless the broker or
the group says otherwise; the client can't. So it is set for each of our groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]
from perdure.streams.cluster.admin import Admin, Connection
from perdure.streams.cluster.errors import Refused

SESSION_MS = 5000
HEARTBEAT_MS = 1000

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """In force for a group. ``problem``: why they are not the ones wanted, else empty."""

    group: str
    session_ms: int
    heartbeat_ms: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Failover:
    """What a cluster allows: how long a killed process's partitions stand still at least.

    ``session_seconds`` is the least that the brokers take for a group; ``protocol`` is
    ``consumer`` or, on brokers that lack it, ``classic``; ``transaction_seconds`` is the time
    after which a dead process's transaction is looked for, past its own timeout.
    """

    protocol: str
    session_seconds: float
    heartbeat_seconds: float
    transaction_seconds: float
    text: str


def set_group_timeouts(
    connection: Connection,
    groups: Iterable[str],
    *,
    session_ms: int = SESSION_MS,
    heartbeat_ms: int = HEARTBEAT_MS,
    timeout: float = 30,
) -> list[GroupTimeouts]:
    """Sets both for each group, within what the brokers allow; tells what is now in force.

    A refusal is no error: work goes on, only a failover takes longer, and the result says so.
    """
    admin = Admin(connection, timeout)
    limits = _broker_settings(admin)
    session = max(session_ms, int(limits.get("group.consumer.min.session.timeout.ms", session_ms)))
    heartbeat = max(
        heartbeat_ms, int(limits.get("group.consumer.min.heartbeat.interval.ms", heartbeat_ms))
    )
    wanted = {_SESSION: str(session), _HEARTBEAT: str(heartbeat)}
    return [_set(admin, group, wanted, session_ms) for group in groups]


def _set(admin: Admin, group: str, wanted: dict[str, str], asked: int) -> GroupTimeouts:
    problem = ""
    found: dict[str, str] = {}
    try:
        admin.set_configs(ResourceType.GROUP, {group: wanted})
        found = admin.configs(ResourceType.GROUP, [group])[group]
    except Refused as error:
        problem = str(error)
    session = int(found.get(_SESSION, 45_000))
    if not problem and session > asked:
        problem = (
            f"the brokers allow {group} no session timeout under {session / 1000:g} s: set "
            f"group.consumer.min.session.timeout.ms={asked} on them"
        )
    return GroupTimeouts(group, session, int(found.get(_HEARTBEAT, 5_000)), problem)


def failover(connection: Connection, *, timeout: float = 30) -> Failover:
    """For `perdure doctor`: reads the brokers' settings; raises `Refused` if it may not."""
    admin = Admin(connection, timeout)
    return judge(_broker_settings(admin, strict=True))


def judge(settings: dict[str, str]) -> Failover:
    modern = "consumer" in settings.get("group.coordinator.rebalance.protocols", "").split(",")
    protocol = "consumer" if modern else "classic"
    part = "consumer." if modern else ""
    session = int(settings.get(f"group.{part}min.session.timeout.ms", 45_000 if modern else 6_000))
    heartbeat = int(settings.get("group.consumer.min.heartbeat.interval.ms", 5_000))
    cleanup = int(
        settings.get("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000)
    )
    reached = max(session, SESSION_MS) / 1000
    text = f"the partitions of a killed process are taken over after about {reached:g} s"
    if session > SESSION_MS:
        text += (
            f"; for 5 s set group.{part}min.session.timeout.ms={SESSION_MS} on the brokers "
            f"(now {session})"
        )
    if not modern:
        text += (
            "; the brokers lack the group protocol `consumer` (Kafka 4.0 and later): set "
            'group_protocol = "classic"'
        )
    return Failover(protocol, session / 1000, heartbeat / 1000, cleanup / 1000, text)


def _broker_settings(admin: Admin, *, strict: bool = False) -> dict[str, str]:
    broker = str(min(admin.metadata().brokers))
    try:
        return admin.configs(ResourceType.BROKER, [broker])[broker]
    except Refused:
        if strict:
            raise
        return {}
