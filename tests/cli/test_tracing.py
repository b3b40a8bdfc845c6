"""Spans on their way out: to a collector that is there, that is not, and that is slow."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from perdure.streams.runtime.spans import Span, SpanEvent, span_id, trace_id

from perdure.cli import tracing
from perdure.cli.roles import _exporter
from perdure.settings import Settings


class Collector:
    """An OTLP receiver; ``hold`` keeps its answers back."""

    def __init__(self) -> None:
        self.spans: list[tuple[Any, dict[str, str]]] = []
        self.raw: list[bytes] = []
        self.came = threading.Event()
        self.hold = threading.Event()
        self.hold.set()

    def take(self, raw: bytes) -> None:
        self.raw.append(raw)
        request = ExportTraceServiceRequest.FromString(raw)
        for of in request.resource_spans:
            resource = {each.key: each.value.string_value for each in of.resource.attributes}
            for scope in of.scope_spans:
                self.spans += [(span, resource) for span in scope.spans]
        self.came.set()
        self.hold.wait(10)


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            collector.take(raw)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Not told."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        collector.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def span(n: int = 1, **more: Any) -> Span:
    return Span(trace_id("r"), span_id(f"r/{n}"), span_id("r"), "action t", 1_000, 2_000, **more)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tracing.Exporter]]:
    made: list[tracing.Exporter] = []

    def make(url: str, **more: Any) -> tracing.Exporter:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        made.append(tracing.Exporter("engine", "me", **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_span_arrives_with_its_ids_times_and_attributes(
    exporter: Callable[..., tracing.Exporter],
) -> None:
    with collecting() as (collector, url):
        out = exporter(url)
        event = SpanEvent("attempt", 1_500, {"perdure.attempt": 2})
        out(span(attributes={"perdure.steps": 3}, events=(event,), error="business", outgoing=True))
        out.close()
        ((got, resource),) = collector.spans
    assert got.trace_id.hex() == trace_id("r")
    assert (got.span_id.hex(), got.parent_span_id.hex()) == (span_id("r/1"), span_id("r"))
    assert (got.start_time_unix_nano, got.end_time_unix_nano) == (10**9, 2 * 10**9)
    assert [(each.key, each.value.int_value) for each in got.attributes] == [("perdure.steps", 3)]
    assert (got.events[0].name, got.events[0].time_unix_nano) == ("attempt", 1_500_000_000)
    assert (got.status.code, got.status.message, got.kind) == (2, "business", 3)
    assert (resource["service.name"], resource["service.instance.id"]) == ("perdure-engine", "me")
    assert out.spans.values() == {("sent",): 1}


def test_a_full_queue_drops_counts_and_waits_for_nobody(
    exporter: Callable[..., tracing.Exporter],
) -> None:
    with collecting() as (collector, url):
        collector.hold.clear()
        out = exporter(url, most_waiting=tracing.MOST_AT_ONCE)
        out(span())
        assert collector.came.wait(10)  # it is under way, and held: what comes now waits
        for n in range(tracing.MOST_AT_ONCE + 5):
            out(span(n))
        assert out.spans.values() == {("dropped",): 5}
        collector.hold.set()
        out.close(10)
    assert out.spans.values() == {("dropped",): 5, ("sent",): 1 + tracing.MOST_AT_ONCE}


def test_a_collector_that_refuses_is_counted_and_ends_nothing(
    exporter: Callable[..., tracing.Exporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = exporter("http://127.0.0.1:1")
    monkeypatch.setattr(out._exporter, "export", lambda batch: 1 / 0)
    out(span())
    out.close()
    assert out.spans.values() == {("failed",): 1}


def test_without_an_endpoint_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert _exporter("engine", Settings(instance_id="me")) is None


LOOKS = """
import sys
import perdure.cli.app, perdure.cli.roles, perdure.cli.tracing, perdure.cli.views
import perdure.connectors.serving, perdure.connectors.tracing
import perdure.streams.engine.processor, perdure.streams.engine.traces
from perdure.settings import Settings
assert perdure.cli.roles._exporter("engine", Settings(instance_id="me")) is None
print(sorted(name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "google")))
"""


def test_without_an_endpoint_no_library_of_traces_is_imported() -> None:
    """In a process of its own: this one has it."""
    without = {name: value for name, value in os.environ.items() if name not in tracing.ENDPOINTS}
    command = [sys.executable, "-c", LOOKS]
    found = subprocess.run(command, env=without, capture_output=True, text=True, timeout=60)
    assert (found.stdout.strip(), found.stderr) == ("[]", "")


def test_without_the_extra_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any) -> None:
        raise ImportError("no module")

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setattr(tracing, "Exporter", missing)
    assert _exporter("worker", Settings(instance_id="me")) is None
    assert "pip install 'perdure[traces]'" in capsys.readouterr().err
