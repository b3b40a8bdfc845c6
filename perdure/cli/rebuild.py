"""The body of ``perdure rebuild``: the engine's state made anew from agent.events."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Final

from perdure.schemas import topics
from perdure.settings import Settings
from perdure.streams.cluster.admin import Admin
from perdure.streams.cluster.losses import read_again
from perdure.streams.cluster.topics import ensure_topics
from perdure.streams.engine.histories import Unread
from perdure.streams.engine.restoring import Made, Restoring
from perdure.streams.runtime.directory_lock import DirectoryLock
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.rocksdb import RocksStores

from .console import FAILED, USAGE, leave, line, say
from .terminal import is_terminal, safe

_WAITING_MS: Final = 600_000
"""Before the last event: a task that no event tells of waited for its agent, 10 s at most."""


def rebuild(made: Settings, yes: bool, as_json: bool) -> None:
    """Make store and changelog anew; ends with 1 where a run's history can't be folded."""
    runtime = made.runtime()
    lock = DirectoryLock(runtime.directory(topics.ENGINE))
    try:
        admin = Admin(made.client_conf())
        group = runtime.group(topics.ENGINE)
        running = admin.members(group)
        if running:
            leave(FAILED, f"{running} engines are running: stop them all, then rebuild")
        _agreed(yes)
        count = ensure_topics(made.client_conf(), made.topic_prefix, made.partitions).partitions
        kafka = ConfluentKafka(runtime)
        producer = kafka.transactional_producer(runtime.transactional_id(topics.ENGINE))
        producer.start()
        work = Restoring(kafka, producer, count, group, lambda: time.time_ns() // 1_000_000, say)
        try:
            parts = [_partition(work, number, as_json) for number in range(count)]
            last = max((part.last_at for part in parts), default=0)
            since = max(last - _WAITING_MS, 0)
            read_again(made.client_conf(), made.topic_prefix, topics.TASKS, count, since)
            stores = RocksStores(runtime.directory(topics.ENGINE))
            for number in range(count):
                work.finish(number)
                stores.wipe(number)
        except Unread as error:
            leave(FAILED, f"{error}. Nothing is lost: run `perdure rebuild` again")
        finally:
            work.close()
            producer.close()
    finally:
        lock.release()
    _tell(parts, as_json)


def _agreed(yes: bool) -> None:
    if yes:
        return
    if not is_terminal(sys.stdin):
        leave(USAGE, "rebuild replaces the engine's state: give --yes")
    say("This replaces the engine's state by what agent.events tells. Lost with the old state:")
    say(
        "  requests sent for a task that has not come yet, and records parked for quarantined runs."
    )
    if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        leave(FAILED, "nothing was changed")


def _partition(work: Restoring, number: int, as_json: bool) -> Made:
    part = work.partition(number)
    say(
        f"partition {number}: {part.events} events, {part.runs} runs ({part.under_way} under way), "
        f"{part.records} records written, {part.deleted} deleted"
    )
    if as_json:
        line(asdict(part))
    return part


def _tell(parts: list[Made], as_json: bool) -> None:
    broken = {run_id: why for part in parts for run_id, why in part.broken.items()}
    for run_id, why in broken.items():
        say(f"{safe(run_id, 200)}: not made: {safe(why, 300)}")
    if broken:
        leave(FAILED, f"{len(broken)} histories could not be folded; all other runs are there")
    if not as_json:
        print(f"{sum(part.runs for part in parts)} runs; start the engines again")
