"""The Faust app on a real broker: what is committed, whatever happens to the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from perdure.schemas import codec, topics
from perdure.schemas.records import RunEvent
from perdure.streams.cluster.anew import delete_topics, forget_group
from perdure.streams.cluster.topics import ensure_topics
from perdure.streams.core.apply import fold
from perdure.streams.core.policies import outcome
from perdure.streams.views.faust_app import GROUP, TABLES, AppSettings, ViewsApp
from perdure.streams.views.index import Index, Query, now_ms
from perdure.streams.views.table_histories import TableHistories

from tests.kafka.world import until

from .histories import golden

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
PARTITIONS = 2


class Log:
    """The topics, written as an engine writes them: in transactions."""

    def __init__(self, broker: str, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.processors = (*topics.PROCESSORS, *TABLES)
        ensure_topics(broker, prefix, PARTITIONS, processors=self.processors)
        self._producer = Producer(
            {
                "bootstrap.servers": broker,
                "transactional.id": f"{prefix}writer",
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 5,
            }
        )
        self._producer.init_transactions(20)

    def write(self, events: list[RunEvent], *, abort: bool = False, ended: bool = False) -> None:
        self._producer.begin_transaction()
        for event in events:
            self._producer.produce(
                self.prefix + topics.EVENTS, codec.encode(event), event.run_id, on_delivery=None
            )
            self._producer.poll(0)
        if ended:
            run = fold(events)
            assert run is not None
            made = outcome.build(run)
            self._producer.produce(self.prefix + topics.OUTCOMES, codec.encode(made), made.run_id)
        if abort:
            self._producer.flush(10)
            self._producer.abort_transaction(20)
        else:
            self._producer.commit_transaction(20)

    def forget_views(self) -> None:
        forget_group(self.broker, topics.group_id(self.prefix, GROUP))
        delete_topics(self.broker, [self.prefix + topics.changelog(name) for name in TABLES])
        ensure_topics(self.broker, self.prefix, PARTITIONS, processors=self.processors)


class View:
    """One process's app, its index and what it reads from its tables."""

    def __init__(self, log: Log, directory: Path, address: str = "http://127.0.0.1:1") -> None:
        self.index = Index()
        self.app = ViewsApp(
            AppSettings(log.broker, directory, PARTITIONS, log.prefix, {}, address), self.index
        )
        self.histories = TableHistories(self.app, address)
        self.app.start()

    def versions(self) -> dict[str, int]:
        page = self.index.find(Query(limit=200), now_ms())
        return {row["run_id"]: row["version"] for row in page.runs}

    def whole(self) -> dict[str, Any]:
        """All it shows of every run: rows, histories, outcomes."""
        found = {}
        for row in self.index.find(Query(limit=10_000), now_ms()).runs:
            run_id = row["run_id"]
            story = [msgspec.to_builtins(event) for event in self.histories.events(run_id)]
            ended = self.histories.outcome(run_id)
            found[run_id] = (row, story, None if ended is None else msgspec.to_builtins(ended))
        return found

    def stop(self) -> None:
        self.app.stop()
        assert self.app.failure is None
        assert not self.app.alive()
        self.index.close()


@pytest.fixture
def log(broker: str, prefix: str) -> Log:
    return Log(broker, prefix)


@pytest.fixture
def started(log: Log) -> Iterator[Callable[[Path], View]]:
    """Starts views; one that a failed test has left running would keep the process from ending."""
    made: list[View] = []

    def start(directory: Path) -> View:
        made.append(View(log, directory))
        return made[-1]

    yield start
    for view in made:
        view.app.stop()


def test_an_aborted_event_is_never_shown_and_the_true_one_of_its_version_is(
    log: Log, tmp_path: Path, started: Callable[[Path], View]
) -> None:
    """The engine rolled its decision back and decided otherwise: same version, other event."""
    events = golden("0.1-first-plan", "r1")
    wrong = golden("0.1-first-plan", "r1", user_id="nobody")[5]
    log.write(events[:5])
    log.write([wrong], abort=True)
    view = started(tmp_path)
    until(lambda: view.versions() == {"r1": 5}, "the first five events")
    log.write(events[5:7])
    log.write([wrong], abort=True)
    log.write(events[7:], abort=True)
    log.write(events[7:9])
    until(lambda: view.versions() == {"r1": 9}, "the true events")
    assert view.histories.events("r1") == events[:9]
    assert view.index.find(Query(), now_ms()).runs[0]["user_id"] == events[0].user_id
    assert view.index.find(Query(), now_ms()).runs[0]["incomplete"] is False
    view.stop()


def test_a_view_that_stops_and_starts_while_events_arrive_equals_one_made_from_zero(
    log: Log, tmp_path: Path, started: Callable[[Path], View]
) -> None:
    names = ["0.1-first-plan", "0.1-first-model_loop", "0.1-first-handover"]
    histories = [golden(names[n % 3], f"r{n}", 1_750_000_000_000 + n) for n in range(24)]
    half = [len(events) // 2 for events in histories]
    for events, middle in zip(histories[:12], half, strict=False):
        log.write(events[:middle])
    view = started(tmp_path / "kept")
    until(view.versions, "something is shown")
    for events, middle in zip(histories[12:], half[12:], strict=True):
        log.write(events[:middle])
    view.stop()  # in the midst of them
    for events, middle in zip(histories, half, strict=True):
        log.write(events[middle:])
    log.write(golden("0.1-first-plan", "over", 1_750_000_000_999), ended=True)
    wanted = {f"r{n}": len(events) for n, events in enumerate(histories)}
    wanted["over"] = len(golden("0.1-first-plan"))
    view = started(tmp_path / "kept")
    until(lambda: view.versions() == wanted, "all events")
    until(lambda: view.index.shown("over")["complete"] is not None, "its outcome")  # type: ignore[index]
    kept = view.whole()
    view.stop()
    log.forget_views()
    view = started(tmp_path / "anew")
    until(lambda: view.versions() == wanted, "all events again")
    until(lambda: view.index.shown("over")["complete"] is not None, "its outcome again")  # type: ignore[index]
    assert view.whole() == kept
    assert [story for _, story, _ in kept.values() if not story] == []
    view.stop()


@pytest.mark.soak
def test_how_fast_it_catches_up(
    log: Log, tmp_path: Path, started: Callable[[Path], View], record_property: Any
) -> None:
    """A figure, not a gate: 20,000 events that were written while no view ran."""
    story = golden("0.1-first-model_loop")
    runs = 20_000 // len(story) + 1
    for first in range(0, runs, 20):
        batch = [
            golden("0.1-first-model_loop", f"r{n}") for n in range(first, min(first + 20, runs))
        ]
        log.write([event for step in zip(*batch, strict=True) for event in step])
    view = started(tmp_path)
    began = time.monotonic()
    until(view.app.recovered.is_set, "the tables are there")
    ready = time.monotonic()
    until(lambda: view.app.projector.events >= runs * len(story), "all of them", 100)
    seconds = time.monotonic() - ready
    record_property("events_per_second", round(runs * len(story) / seconds))
    print(f"\nready after {ready - began:.1f} s; {runs * len(story)} events in {seconds:.1f} s")
    assert view.index.totals() == {"done": runs}
    view.stop()
