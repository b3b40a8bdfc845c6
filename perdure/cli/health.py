"""``/live``, ``/ready`` and ``/metrics`` of a role, on loopback unless a host is given."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from perdure.streams.runtime.health import HealthBoard, HealthSnapshot
from perdure.streams.runtime.measures import Family, Histogram

if TYPE_CHECKING:
    from perdure.connectors.reach import Reach, ReachSnapshot

    from .backlog import Backlog, Behind

_COUNTERS = (
    "records",
    "dropped",
    "dead",
    "forwarded",
    "failed",
    "timers",
    "cycles",
    "commits",
    "aborts",
)


class _Collector:
    """The board as Prometheus families."""

    def __init__(
        self,
        board: HealthBoard,
        reach: Reach | None,
        backlog: Backlog | None,
        more: Sequence[Family],
    ) -> None:
        self._board = board
        self._reach = reach
        self._backlog = backlog
        self._more = more

    def collect(self) -> Any:
        snapshots = self._board.snapshots()
        for name in _COUNTERS:
            family = CounterMetricFamily(f"perdure_{name}", f"{name} so far", labels=["processor"])
            for each in snapshots:
                family.add_metric([each.processor], getattr(each, name))
            yield family
        for name in ("live", "restoring", "stopped", "paused"):
            gauge = GaugeMetricFamily(
                f"perdure_partitions_{name}", f"partitions that are {name}", labels=["processor"]
            )
            for each in snapshots:
                gauge.add_metric([each.processor], len(getattr(each, name)))
            yield gauge
        last = GaugeMetricFamily(
            "perdure_last_commit_at_ms", "time of the last commit", labels=["processor"]
        )
        for each in snapshots:
            last.add_metric([each.processor], each.last_commit_at)
        yield last
        yield from _measured([((name,), family) for name, family in self._board.families()])
        yield from _measured([((), family) for family in self._more])
        if self._reach is not None:
            yield from _reached(self._reach.snapshot())
        if self._backlog is not None:
            yield from _behind(self._backlog.look())


class _Measured:
    """Families of a process without a board, and how far it is behind."""

    def __init__(self, families: Sequence[Family], backlog: Backlog | None) -> None:
        self._families = families
        self._backlog = backlog

    def collect(self) -> Any:
        yield from _measured([((), family) for family in self._families])
        if self._backlog is not None:
            yield from _behind(self._backlog.look())


def registry_of(families: Sequence[Family], backlog: Backlog | None = None) -> CollectorRegistry:
    """For a role that serves ``/metrics`` itself."""
    registry = CollectorRegistry()
    registry.register(_Measured(families, backlog))  # type: ignore[arg-type]
    return registry


def _measured(families: Sequence[tuple[tuple[str, ...], Family]]) -> Iterator[Any]:
    """One family of Prometheus for each name; ``processor`` is a label where there is one."""
    made: dict[str, Any] = {}
    for own, family in families:
        name = f"perdure_{family.name}"
        if name not in made:
            labels = [*(["processor"] if own else []), *family.labels]
            made[name] = _FAMILIES[family.kind](name, family.text, labels=labels)
        for labels_, value in family.values().items():
            if isinstance(family, Histogram):
                counts, total = value
                bounds = [*map(floatToGoString, family.bounds), "+Inf"]
                pairs = list(zip(bounds, counts, strict=True))
                made[name].add_metric([*own, *labels_], buckets=pairs, sum_value=total)
            else:
                made[name].add_metric([*own, *labels_], value)
    yield from made.values()


_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _behind(found: Sequence[Behind]) -> Iterator[Any]:
    lag = GaugeMetricFamily(
        "perdure_lag_records",
        "records of an input that are not finished",
        labels=["processor", "topic", "partition"],
    )
    age = GaugeMetricFamily(
        "perdure_oldest_unread_seconds",
        "age of the oldest record of an input that nobody has read; 0: there is none",
        labels=["processor", "topic"],
    )
    ages: dict[tuple[str, str], float] = {}
    now = time.time() * 1000
    for each in found:
        topic, partition = each.spot
        lag.add_metric([each.processor, topic, str(partition)], each.records)
        if not each.first:
            continue
        where = (each.processor, topic)
        seconds = 0.0 if each.oldest_at is None else max(now - each.oldest_at, 0) / 1000
        ages[where] = max(ages.get(where, 0.0), seconds)
    for where, seconds in ages.items():
        age.add_metric(list(where), seconds)
    yield lag
    yield age


def _reached(seen: ReachSnapshot) -> Iterator[Any]:
    """A worker's breakers, of targets that have ever been open in this process."""
    gauge = GaugeMetricFamily(
        "perdure_breaker_open", "1: the target is not called", labels=["target"]
    )
    for target in seen.open:
        gauge.add_metric([target], 1)
    for target in seen.closed:
        gauge.add_metric([target], 0)
    yield gauge
    yield GaugeMetricFamily(
        "perdure_worker_offline",
        "1: this worker has no network and takes no commands",
        value=0 if seen.offline is None else 1,
    )
    yield CounterMetricFamily(
        "perdure_breaker_records_bad",
        "records of agent.breakers that could not be read",
        value=seen.bad_records,
    )


def serve(
    board: HealthBoard,
    port: int,
    ready: Callable[[], bool],
    host: str = "127.0.0.1",
    reach: Reach | None = None,
    backlog: Backlog | None = None,
    more: Sequence[Family] = (),
) -> int:
    """Serve in a daemon thread; returns the port (``port`` 0: any free one). Raises OSError.

    ``reach``: of a worker, which is not ready while it is offline. ``backlog``: how far the role is
    behind. ``more``: what the process measures beside its processors.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(board, reach, backlog, more))  # type: ignore[arg-type]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(
                    200, generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8"
                )
            elif self.path in ("/live", "/ready"):
                seen = None if reach is None else reach.snapshot()
                offline = None if seen is None else seen.offline
                good = self.path == "/live" or (offline is None and ready())
                shown: dict[str, Any] = {
                    "ok": good,
                    "processors": [_shown(each) for each in board.snapshots()],
                }
                if seen is not None:
                    shown |= {"offline": offline, "breakers_open": seen.open}
                body = json.dumps(shown).encode()
                self._answer(200 if good else 503, body, "application/json")
            else:
                self._answer(404, b"", "text/plain")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes are not logged."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return int(server.server_address[1])


def _shown(each: HealthSnapshot) -> dict[str, Any]:
    return {
        "processor": each.processor,
        "live": list(each.live),
        "restoring": {str(p): what for p, what in each.restoring.items()},
        "stopped": {str(p): why for p, why in each.stopped.items()},
        "failure": each.failure,
    }
