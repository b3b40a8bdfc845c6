"""The runtime's settings: one frozen object, checked when made."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    bootstrap_servers: str
    """Kafka's ``host:port[,host:port]``."""
    data_dir: Path
    """Stores and locks live in ``<data_dir>/<processor>.<instance_id>/``."""
    topic_prefix: str = ""
    """Before every topic, group and transactional id: a deployment (or test) of its own."""
    instance_id: str = field(default_factory=socket.gethostname)
    """Who this process is, also after a restart: transactional id and data directory."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Goes to every Kafka client as it is, over our own choices."""
    group_protocol: Literal["consumer", "classic"] = "consumer"
    """KIP-848 with the server's ``range``; ``classic``: the client's, for brokers without it."""
    store: Literal["rocksdb", "memory"] = "rocksdb"
    """Where state is cached; memory restores all of it at every start."""
    max_batch: int = 1_000
    """Records taken in one cycle."""
    max_timers: int = 500
    """Due timers fired in one cycle."""
    max_staged_bytes: int = 4_000_000
    """A cycle that staged so much is committed before more is processed."""
    max_processing_ms: int = 100
    """A cycle that processed so long is committed before more is processed."""
    max_unfinished: int = 1_000
    """Offsets between the lowest unfinished record and the newest; more pauses the partition."""
    idle_poll_ms: int = 100
    """The longest wait of a poll when nothing is expected; bounds how fast ``stop`` is seen."""
    plain_commit_ms: int = 200
    """How often offsets are committed when nothing is staged."""
    session_timeout_ms: int = 5_000
    """A member silent for so long is expelled (set on the group under KIP-848)."""
    heartbeat_ms: int = 1_000
    transaction_timeout_ms: int = 10_000
    """The broker aborts a transaction open for so long."""
    commit_patience_ms: int = 30_000
    """How long an unanswered commit or abort is asked again before the process ends."""
    stuck_ms: int = 90_000
    """A cycle that does not come round for so long ends the process (longer than any wait here)."""
    stall_ms: int = 1_000
    """A takeover that stands still for so long aborts the former owner's open transaction."""
    revoke_wait_ms: int = 20_000
    """How long a revoked partition is held for calls that write."""
    drain_seconds: float = 60.0
    """How long a stop waits for work in flight."""
    connect_timeout_ms: int = 10_000
    """Kafka silent for so long at the start ends the process with exit code 3."""
    changelog_delete_retention_ms: int = 7 * 86_400_000
    """delete.retention.ms of changelogs: a store older than half of it is restored anew."""
    cache_bytes: int = 4_000_000
    """Decoded values kept per partition, by the size of their stored form."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.instance_id):
            raise ValueError(
                f"instance_id {self.instance_id!r} must be 1 to 100 of letters, digits and . _ -"
            )
        if self.topic_prefix and not _ID.fullmatch(self.topic_prefix):
            raise ValueError(
                f"topic_prefix {self.topic_prefix!r} may have letters, digits and . _ -"
            )
        for name in ("max_batch", "max_timers", "max_staged_bytes", "max_unfinished"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    def group(self, processor: str) -> str:
        return f"{self.topic_prefix}perdure.{processor}"

    def transactional_id(self, processor: str) -> str:
        return f"{self.topic_prefix}{processor}.{self.instance_id}"

    def directory(self, processor: str) -> Path:
        return self.data_dir / f"{processor}.{self.instance_id}"
