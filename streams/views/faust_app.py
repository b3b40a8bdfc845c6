"""The Faust app: agent.events and agent.outcomes into RocksDB tables, batch by batch.

Runs in a thread of its own with a loop of its own. The tables are keyed by run and partitioned as
the topics are; each process holds those of its partitions, restores them from their changelogs and
puts their rows into the index. What Faust promises is at least once: the projection makes that
enough (`projector.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import faust
import msgspec
from faust.streams import _current_event
from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import Outcome

from .broker_settings import broker_urls, credentials
from .faust_driver import CommittedTransport
from .index import Index
from .projections.rows import Row
from .projector import Projector

log = logging.getLogger("perdure.views")

BATCH: Final = 2_000
WITHIN_SECONDS: Final = 0.1
LOADED_AT_ONCE: Final = 2_000
TABLES: Final = topics.VIEW_TABLES
RUNS, HISTORY, OUTCOMES = TABLES
GROUP: Final = topics.VIEWS
_STORE: Final[Mapping[str, Any]] = {
    "driver": "rocksdict",
    # Faust's own defaults suit one table on a server: 2 GB of cache for each.
    "write_buffer_size": 8 * 1024 * 1024,
    "block_cache_size": 32 * 1024 * 1024,
    "target_file_size_base": 32 * 1024 * 1024,
    "max_open_files": 256,
}


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What the app needs to know of the deployment."""

    bootstrap_servers: str
    data_dir: Path
    partitions: int
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict)
    address: str = "http://127.0.0.1:0"
    """Where this process answers HTTP: told to the other view processes of the group."""


class NotHere(LookupError):
    """The partition is another process's, or on its way."""


_rows = msgspec.msgpack.Decoder(Row)


def row_of(raw: bytes) -> Row:
    """A row as the table holds it."""
    return _rows.decode(raw)


class PartitionTables:
    """One partition's tables, written within Faust's stream (its changelogs go along)."""

    def __init__(self, views: ViewsApp, partition: int) -> None:
        self._views = views
        self._partition = partition

    def row(self, run_id: str) -> Row | None:
        raw = self._views.stored(RUNS, self._partition, run_id.encode())
        return None if raw is None else _rows.decode(raw)

    def put_row(self, row: Row) -> None:
        self._views.table(RUNS)[row.run_id.encode()] = msgspec.msgpack.encode(row)

    def chunk(self, run_id: str, number: int) -> bytes | None:
        return self._views.stored(HISTORY, self._partition, f"{run_id}/{number}".encode())

    def put_chunk(self, run_id: str, number: int, chunk: bytes) -> None:
        self._views.table(HISTORY)[f"{run_id}/{number}".encode()] = chunk


class ViewsApp:
    """The only owner of the tables. ``changed`` hears of rows after they are stored, in our thread."""

    def __init__(
        self,
        settings: AppSettings,
        index: Index,
        changed: Callable[[Sequence[Row]], None] = lambda rows: None,
        crashed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.settings = settings
        self.projector = Projector()
        self.failure: BaseException | None = None
        self.frozen = False
        """A batch could not be taken: nothing is committed any more."""
        self.recovered = threading.Event()
        self._index = index
        self._changed = changed
        self._crashed = crashed or (lambda error: os._exit(1))
        self._loaded: set[int] = set()
        self._tables: dict[str, Any] = {}
        self._dbs: list[Any] = []
        self._app: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="faust", daemon=True)

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 20.0) -> None:
        """Commit what is done and leave the group; returns when the thread has ended."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        self._thread.join(timeout)

    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failure = error
            log.error("the views' Faust app has ended", exc_info=error)
        finally:
            left = asyncio.all_tasks(loop)  # Faust leaves waits of its own behind
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            for db in self._dbs:  # Faust drops them, and what still refers to one keeps its lock
                db.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        app = self._app = self._make()
        await app.start()
        ended = asyncio.ensure_future(app.wait_until_stopped())
        asked = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (ended, asked):
            waiting.cancel()
        crashed = getattr(app, "_crash_reason", None)
        self._dbs = [db for table in self._tables.values() for db in table.data._dbs.values()]
        await app.stop()
        if crashed is not None:
            raise crashed

    # --- the app ----------------------------------------------------------------------------

    def _make(self) -> Any:
        made = self.settings
        prefix = made.topic_prefix
        app: Any = faust.App(
            topics.group_id(prefix, GROUP),
            broker=broker_urls(made.bootstrap_servers),
            broker_credentials=credentials(made.kafka),
            store="rocksdb://",
            datadir=str(made.data_dir),
            topic_partitions=made.partitions,
            topic_disable_leader=True,
            topic_allow_declare=False,  # all of them are there: made as every role makes topics
            table_standby_replicas=0,
            web_enabled=False,
            canonical_url=made.address,
            autodiscover=False,
            consumer_auto_offset_reset="earliest",
            broker_commit_interval=1.0,
            broker_session_timeout=10.0,
            broker_heartbeat_interval=2.0,
            stream_buffer_maxsize=4 * BATCH,
            stream_wait_empty=False,
            producer_max_request_size=topics.MAX_RECORD_BYTES + 40_000,
            producer_linger=0.005,
            key_serializer="raw",
            value_serializer="raw",
        )
        app.transport = CommittedTransport(app.conf.broker, app)
        app.frozen = lambda: self.frozen
        app.sources = frozenset(prefix + name for name in (topics.EVENTS, topics.OUTCOMES))
        for name in TABLES:
            self._tables[name] = self._table(app, name)
        self._tables[RUNS].on_recover(self._recovered)
        app.on_partitions_assigned.connect(cast("Any", self._assigned))
        events = self._topic(app, topics.EVENTS)
        outcomes = self._topic(app, topics.OUTCOMES)

        @app.agent(events, name="events")  # type: ignore[untyped-decorator]
        async def project(stream: Any) -> None:
            async for batch in stream.take_events(BATCH, within=WITHIN_SECONDS):
                self._guarded(self._take_events, batch)
                await asyncio.sleep(0)

        @app.agent(outcomes, name="outcomes")  # type: ignore[untyped-decorator]
        async def close(stream: Any) -> None:
            async for batch in stream.take_events(BATCH, within=WITHIN_SECONDS):
                self._guarded(self._take_outcomes, batch)
                await asyncio.sleep(0)

        app.finalize()
        for table in self._tables.values():
            _stay_closed(table.data)
        return app

    def _topic(self, app: Any, name: str) -> Any:
        return app.topic(
            self.settings.topic_prefix + name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            partitions=self.settings.partitions,
        )

    def _table(self, app: Any, name: str) -> Any:
        changelog = app.topic(
            self.settings.topic_prefix + topics.changelog(name),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            partitions=self.settings.partitions,
            compacting=True,
            acks=False,
            internal=True,
        )
        return app.Table(
            name,
            key_type=bytes,
            value_type=bytes,
            partitions=self.settings.partitions,
            changelog_topic=changelog,
            options=dict(_STORE),
        )

    # --- batches ----------------------------------------------------------------------------

    def _guarded(self, take: Callable[[Sequence[Any]], None], batch: Sequence[Any]) -> None:
        """A batch that raises must not be acknowledged, which Faust does whatever comes of it: the
        process ends at once, and the next one reads the batch again."""
        try:
            take(batch)
        except BaseException as error:
            self.frozen = True
            if (
                isinstance(error, NotHere)
                and self._stopping is not None
                and self._stopping.is_set()
            ):
                raise  # its tables were closed under it: the next process reads the batch again
            log.exception("the views stop: a batch could not be taken")
            self.failure = error
            self._crashed(error)
            raise

    def _take_events(self, batch: Sequence[Any]) -> None:
        for partition, events in _by_partition(batch).items():
            token = _current_event.set(weakref.ref(events[-1]))  # tables ask it for the partition
            try:
                tables = PartitionTables(self, partition)
                rows = self.projector.take(tables, [event.message.value for event in events])
            finally:
                _current_event.reset(token)
            self._index.put(partition, rows)
            self._changed(rows)

    def _take_outcomes(self, batch: Sequence[Any]) -> None:
        for partition, events in _by_partition(batch).items():
            token = _current_event.set(weakref.ref(events[-1]))
            changed = []
            try:
                table = self.table(OUTCOMES)
                for event in events:
                    key, value = event.message.key, event.message.value
                    if key is None:
                        continue
                    if value is None:
                        table.pop(key, None)
                    else:
                        table[key] = value
                    run_id = key.decode("utf-8", "replace")
                    self._index.put_outcome(partition, run_id, _outcome(value))
                    row = self._index.row(run_id)
                    if row is not None:
                        changed.append(row)
            finally:
                _current_event.reset(token)
            self._changed(changed)

    # --- tables -----------------------------------------------------------------------------

    def table(self, name: str) -> Any:
        return self._tables[name]

    def stored(self, name: str, partition: int, key: bytes) -> bytes | None:
        """A value as it is stored here, from any thread. Raises `NotHere`."""
        store = self._tables[name].data if self._tables else None
        found = None if store is None else store._dbs.get(partition)
        if found is None:
            raise NotHere(f"partition {partition} is not held by this process")
        value: bytes | None = found.get(key)
        return value

    def _items(self, name: str, partition: int) -> Iterable[tuple[bytes, bytes]]:
        store = self._tables[name].data
        yield from store._visible_items(store._db_for_partition(partition))

    async def _assigned(self, app: Any, *given: Any, **named: Any) -> None:
        """What another process holds now is no longer ours to show."""
        self._keep()

    def _keep(self) -> set[int]:
        held = self.given()
        self._loaded &= held
        self._index.keep_partitions(held)
        return held

    async def _recovered(self) -> None:
        """The tables are as their changelogs are: bring the index to the same partitions."""
        held = self._keep()
        for partition in sorted(held - self._loaded):
            if not await self._load(partition):
                return  # it went to another process meanwhile: once that is settled, this is called again
            self._loaded.add(partition)
        self.recovered.set()

    async def _load(self, partition: int) -> bool:
        """A partition's rows into the index, a few at a time: the group's heartbeats come from this loop
        too. False where the partition was taken away in between."""
        for name, put in ((RUNS, self._put_rows), (OUTCOMES, self._put_outcomes)):
            items = iter(self._items(name, partition))
            while chunk := list(islice(items, LOADED_AT_ONCE)):
                put(partition, chunk)
                await asyncio.sleep(0)
                if partition not in self.given() or not self._is_open(name, partition):
                    return False
        return True

    def _put_rows(self, partition: int, found: list[tuple[bytes, bytes]]) -> None:
        self._index.put(partition, (_rows.decode(raw) for _, raw in found))

    def _put_outcomes(self, partition: int, found: list[tuple[bytes, bytes]]) -> None:
        for key, raw in found:
            self._index.put_outcome(partition, key.decode(), _outcome(raw))

    def _is_open(self, name: str, partition: int) -> bool:
        return partition in self._tables[name].data._dbs

    # --- who holds what ---------------------------------------------------------------------

    def holders(self) -> dict[str, list[int]]:
        """Address of each view process -> partitions of the runs that it holds."""
        if self._app is None:
            return {}
        topic = self.settings.topic_prefix + topics.changelog(RUNS)
        known = self._app.assignor.changelog_distribution
        return {url: sorted(held[topic]) for url, held in dict(known).items() if topic in held}

    def held(self) -> list[int]:
        """Partitions whose tables are here, restored, and in the index."""
        return sorted(self._loaded)

    def given(self) -> set[int]:
        """Partitions that the group gave to this process, restored or not."""
        if self._app is None:
            return set()
        topic = self.settings.topic_prefix + topics.changelog(RUNS)
        return {tp.partition for tp in self._app.assignor.assigned_actives() if tp.topic == topic}


def _stay_closed(store: Any) -> None:
    """Faust notes in a partition's store how far its changelog is, also when the partition was given
    up meanwhile, and opens it again for that: its next owner would find it locked."""
    note = store.set_persisted_offset

    def note_if_open(tp: Any, offset: int) -> None:
        if tp.partition in store._dbs:
            note(tp, offset)

    store.set_persisted_offset = note_if_open


def _by_partition(batch: Sequence[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for event in batch:
        found.setdefault(event.message.partition, []).append(event)
    return found


def _outcome(raw: bytes | None) -> Outcome | None:
    try:
        return None if raw is None else codec.decode(raw, Outcome)
    except RecordError:
        return None
