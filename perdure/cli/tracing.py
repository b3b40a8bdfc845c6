"""Spans on their way to a collector (OTLP over HTTP): a bounded queue and a thread of its own.

Nothing waits for a collector: where the queue is full a span is dropped and counted. The library
is an extra (``pip install 'perdure[traces]'``) and is loaded only where an endpoint is named, by
OpenTelemetry's own variables.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from perdure.streams.runtime.measures import Counter
from perdure.streams.runtime.spans import Span

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_WAITING: Final = 20_000
MOST_AT_ONCE: Final = 512
EVERY_SECONDS: Final = 1.0
_NS: Final = 1_000_000  # of a millisecond


class Exporter:
    """A `Sink`. Closed it sends what waits, for at most ``seconds``."""

    def __init__(self, role: str, instance: str, most_waiting: int = MOST_WAITING) -> None:
        """Raises ImportError where the extra is not installed."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self.spans = Counter("trace_spans", "spans by what became of them", ("outcome",))
        self._make = _Maker(role, instance)
        self._exporter: Any = OTLPSpanExporter()
        self._most_waiting = most_waiting
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def __call__(self, span: Span) -> None:
        if len(self._waiting) >= self._most_waiting:
            self.spans.add(("dropped",))
            return
        self._waiting.append(span)
        if len(self._waiting) >= MOST_AT_ONCE:
            self._wake.set()

    def close(self, seconds: float = 2.0) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(EVERY_SECONDS)
            self._wake.clear()
            self._send_all()
        self._send_all()
        self._exporter.shutdown()

    def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]
            try:
                sent = self._exporter.export([self._make.of(span) for span in batch])
                good = sent.name == "SUCCESS"
            except Exception:  # whatever a library does: the thread goes on, and it is counted
                good = False
            self.spans.add(("sent" if good else "failed",), len(batch))


class _Maker:
    """Our spans as OpenTelemetry's."""

    def __init__(self, role: str, instance: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        named = {"service.instance.id": instance, "perdure.role": role}
        if "OTEL_SERVICE_NAME" not in os.environ:
            named["service.name"] = f"perdure-{role}"
        self._resource = Resource.create(named)
        self._scope = InstrumentationScope("perdure")

    def of(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        good = Status(StatusCode.UNSET)
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=None if span.parent is None else _context(span.trace_id, span.parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[Event(e.name, dict(e.attributes), e.at * _NS) for e in span.events],
            kind=SpanKind.CLIENT if span.outgoing else SpanKind.INTERNAL,
            status=good if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.started_at * _NS,
            end_time=max(span.ended_at, span.started_at) * _NS,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether an endpoint is named."""
    return any(environment.get(name) for name in ENDPOINTS)
