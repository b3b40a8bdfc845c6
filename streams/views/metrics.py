"""What a view process counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from .index import Index
from .ports import Histories
from .projector import Projector


class _Collector:
    def __init__(self, index: Index, projector: Projector, histories: Histories) -> None:
        self._index = index
        self._projector = projector
        self._histories = histories

    def collect(self) -> Iterator[Any]:
        yield CounterMetricFamily(
            "perdure_views_events", "events projected by this process", value=self._projector.events
        )
        yield CounterMetricFamily(
            "perdure_views_bad_records",
            "records of agent.events that are no events",
            value=self._projector.bad,
        )
        runs = GaugeMetricFamily("perdure_runs", "runs held by this process", labels=["status"])
        for status, count in self._index.totals().items():
            runs.add_metric([status], count)
        yield runs
        waiting = GaugeMetricFamily("perdure_waiting", "what runs wait for", labels=["kind"])
        for kind, count in self._index.waiting().items():
            waiting.add_metric([kind], count)
        yield waiting
        yield GaugeMetricFamily(
            "perdure_views_ready", "1: the tables are there", value=int(self._histories.ready())
        )


def registry_of(index: Index, projector: Projector, histories: Histories) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Collector(index, projector, histories))
    return registry
