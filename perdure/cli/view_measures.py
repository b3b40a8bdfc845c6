"""What a view process measures of itself; how far it is behind is asked of Kafka beside it."""

from __future__ import annotations

from collections.abc import Callable

from perdure.streams.runtime.measures import (
    SECONDS,
    CounterOf,
    Family,
    Gauge,
    Histogram,
)
from perdure.streams.views.index import Index
from perdure.streams.views.ports import Histories
from perdure.streams.views.projector import Projector


def http_seconds() -> Histogram:
    """Of requests that are answered and over; streams stay open and are counted as listeners."""
    return Histogram(
        "http_seconds", "an answered HTTP request", SECONDS, ("method", "route", "status")
    )


def families(
    index: Index,
    projector: Projector,
    histories: Histories,
    http: Histogram,
    listeners: Callable[[], int],
) -> tuple[Family, ...]:
    """All of one process. What is looked up is looked up when somebody asks."""
    return (
        CounterOf(
            "views_events",
            "events projected by this process",
            lambda: {(): projector.events},
        ),
        CounterOf(
            "views_bad_records",
            "records of agent.events that are no events",
            lambda: {(): projector.bad},
        ),
        Gauge(
            "views_runs",
            "runs held by this process",
            lambda: {(status,): count for status, count in index.totals().items()},
            ("status",),
        ),
        Gauge(
            "views_waiting",
            "what the runs held here wait for",
            lambda: {(kind,): count for kind, count in index.waiting().items()},
            ("kind",),
        ),
        Gauge(
            "views_ready",
            "1: the tables are as their changelogs are",
            lambda: {(): int(histories.ready())},
        ),
        Gauge(
            "views_listeners",
            "streams of changes that somebody reads now",
            lambda: {(): listeners()},
        ),
        http,
    )
