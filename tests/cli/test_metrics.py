"""/metrics as Prometheus reads it, and how far behind a role is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from perdure.streams.engine.measures import EngineMeasures
from perdure.streams.runtime.errors import Unanswered
from perdure.streams.runtime.health import HealthBoard
from perdure.streams.runtime.measures import Counter
from perdure.streams.runtime.ports import End, Polled, Position, Spot
from perdure.streams.runtime.processor import Record
from prometheus_client.parser import text_string_to_metric_families

from perdure.cli import health
from perdure.cli.backlog import Backlog, Input, held_by
from tests.cli.test_health import get
from tests.runtime.fakes import Given

TASKS, RESULTS = Spot("agent.tasks", 0), Spot("agent.results", 0)


class Kafka:
    """Ends at 10; what is asked of it is counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.committed_offsets: Any = {TASKS: Position(7), RESULTS: Position(10)}
        self.reading: dict[Spot, int] = {}
        self.records = True
        self.end = 10

    def admin(self) -> Any:
        return self

    def reader(self, client_id: str) -> Any:
        return self

    def committed(self, group: str, spots: Sequence[Spot], stable: bool) -> Given:
        assert not stable
        self.asked += 1
        return Given(self.committed_offsets)

    def starts(self, spots: Sequence[Spot]) -> Given:
        return Given(dict.fromkeys(spots, 2))

    def ends(self, spots: Sequence[Spot]) -> Given:
        return Given(dict.fromkeys(spots, 10))

    def add(self, spot: Spot, offset: int) -> None:
        self.reading[spot] = offset

    def remove(self, spot: Spot) -> None:
        del self.reading[spot]

    def poll(self, limit: int, timeout: float) -> list[Polled]:
        found: list[Polled] = []
        for spot, at in self.reading.items():
            if self.records:
                found.append(Record(spot.topic, spot.partition, at, 5_000 + at, None, b"{}"))
                found.append(Record(spot.topic, spot.partition, at + 1, 9_000, None, b"{}"))
            found.append(End(spot.topic, spot.partition, self.end))
        return found


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def backlog(kafka: Kafka, watch: Watch, **state: Any) -> Backlog:
    board = HealthBoard(["engine"])
    board.of("engine").update(**state)
    inputs = {"engine": Input("perdure.engine", (TASKS.topic, RESULTS.topic))}
    return Backlog(lambda: held_by(board), inputs, kafka, watch)  # type: ignore[arg-type]


def lags(seen: Backlog) -> Mapping[Spot, tuple[int, int | None]]:
    return {each.spot: (each.records, each.oldest_at) for each in seen.look()}


def test_the_lag_is_the_end_less_what_is_committed_and_tasks_have_an_age() -> None:
    kafka, watch = Kafka(), Watch()
    seen = backlog(kafka, watch, live=(0,))
    assert lags(seen) == {TASKS: (3, 5_007), RESULTS: (0, None)}
    kafka.committed_offsets = {}  # a group that was never here: all there is waits
    watch.now += 9
    assert lags(seen)[TASKS] == (3, 5_007)
    assert kafka.asked == 1
    watch.now += 2
    assert lags(seen)[TASKS] == (8, 5_002)
    assert kafka.reading == {}


def test_markers_alone_are_no_lag_and_what_an_open_transaction_holds_is() -> None:
    kafka, watch = Kafka(), Watch()
    kafka.records = False
    seen = backlog(kafka, watch, live=(0,))
    assert lags(seen) == {TASKS: (0, None), RESULTS: (0, None)}
    kafka.end = 8  # as far as a reader of committed records comes; the log ends at 10
    watch.now += 11
    assert lags(seen)[TASKS] == (3, None)


def test_a_stopped_partition_falls_behind_and_another_owners_does_not_count() -> None:
    seen = backlog(Kafka(), Watch(), stopped={0: "its inputs are gone"})
    assert lags(seen)[TASKS][0] == 3
    assert lags(backlog(Kafka(), Watch())) == {}


def test_without_an_answer_there_are_no_figures() -> None:
    kafka, watch = Kafka(), Watch()
    kafka.committed_offsets = Unanswered("nobody there")
    seen = backlog(kafka, watch, live=(0,))
    assert lags(seen) == {}
    kafka.committed_offsets = {TASKS: Position(10)}
    watch.now += 11
    assert lags(seen)[TASKS] == (0, None)


def test_the_page_is_what_prometheus_reads() -> None:
    board = HealthBoard(["engine", "worker.tools"])
    engine = EngineMeasures()
    board.of("engine").also(engine.families)
    board.of("engine").measures.transaction.observe(0.003)
    board.of("worker.tools").measures.dead_letters.add(("worker_error",), 2)
    engine.verdict(True)
    more = Counter("things", "others")
    more.add(n=4)
    port = health.serve(
        board, 0, lambda: True, backlog=backlog(Kafka(), Watch(), live=(0,)), more=[more]
    )
    status, page = get(port, "metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(page)}
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    own = ("processor", "engine")
    assert samples["perdure_transaction_seconds_bucket", ("le", "0.0025"), own] == 0
    assert samples["perdure_transaction_seconds_bucket", ("le", "0.005"), own] == 1
    assert samples["perdure_transaction_seconds_count", own] == 1
    assert samples["perdure_transaction_seconds_sum", own] == pytest.approx(0.003)
    assert samples["perdure_verdicts_total", ("accepted", "true"), own] == 1
    assert samples["perdure_quarantined_runs", own] == 0
    assert samples["perdure_things_total",] == 4
    worker = (("processor", "worker.tools"), ("reason", "worker_error"))
    assert samples["perdure_dead_letters_total", *worker] == 2
    tasks = (own, ("topic", "agent.tasks"))
    assert samples["perdure_lag_records", ("partition", "0"), *tasks] == 3
    assert samples["perdure_oldest_unread_seconds", *tasks] > 1_000_000
    assert ("perdure_oldest_unread_seconds", own, ("topic", "agent.results")) not in samples
    assert {family.type for family in families.values()} == {"counter", "gauge", "histogram"}
