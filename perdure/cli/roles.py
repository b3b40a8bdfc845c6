"""The processes that do the work: ``perdure engine`` and ``perdure worker``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.settings import Settings

from . import logs, parent
from .console import FAILED, leave, say

if TYPE_CHECKING:
    from perdure.connectors.reach import Reach

    from .tracing import Exporter

log = logging.getLogger(__name__)


def run_engine(settings: Settings, *, url: str | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. Ends the command with the contract's exit codes."""
    from perdure.schemas import topics
    from perdure.streams.cluster.topics import ensure_topics
    from perdure.streams.engine.histories import KafkaHistories
    from perdure.streams.engine.outputs import Outputs
    from perdure.streams.engine.processor import EngineProcessor
    from perdure.streams.engine.signatures import Signatures
    from perdure.streams.engine.traces import Traces
    from perdure.streams.runtime.blobs import Blobs
    from perdure.streams.runtime.kafka import ConfluentKafka

    logs.configure(settings, "engine")
    runtime = settings.runtime()
    ensure_topics(settings.client_conf(), settings.topic_prefix, settings.partitions)
    kafka = ConfluentKafka(runtime)
    admin = kafka.admin()
    ids = dict(admin.topic_ids([topics.TASKS]).result())
    count = admin.partition_counts([topics.TASKS])[topics.TASKS]
    queues = QueueProblems(lambda topic: admin.partition_counts([topic]).get(topic), count)
    spans = _exporter("engine", settings)
    signatures = Signatures(settings.keys_of_approvers(), settings.require_signatures)
    histories = KafkaHistories(kafka, count, f"{runtime.transactional_id('engine')}.histories")
    processor = EngineProcessor(
        Outputs(Blobs(settings.blobs()), url),
        ids.__getitem__,
        queues.problem,
        histories,
        signatures,
        None if spans is None else Traces(spans, settings.trace_share),
    )
    _serve("engine", settings, [processor], spans=spans)


class QueueProblems:
    """Whether a queue's topic can be produced to; asked of Kafka at most once a second a queue."""

    _GOOD_FOR = 60.0
    _BAD_FOR = 1.0

    def __init__(self, partitions_of: Callable[[str], int | None], partitions: int) -> None:
        self._partitions_of = partitions_of
        self._partitions = partitions
        self._known: dict[str, tuple[float, str | None]] = {}

    def problem(self, queue: str) -> str | None:
        """Why nothing can be sent to the queue, or None."""
        from perdure.schemas.topics import commands

        until, found = self._known.get(queue, (0.0, None))
        now = time.monotonic()
        if now < until:
            return found
        topic = commands(queue)
        count = self._partitions_of(topic)
        if count is None:
            found = f"the queue {queue} has no topic {topic}: start a worker for it"
        elif count != self._partitions:
            found = f"{topic} has {count} partitions and agent.tasks {self._partitions}; they must be equal"
        else:
            found = None
        self._known[queue] = (now + (self._GOOD_FOR if found is None else self._BAD_FOR), found)
        return found


def run_worker(settings: Settings, tool_files: list[str], queues: list[str] | None) -> None:
    """Serve tools and models until SIGTERM or Ctrl-C."""
    from perdure.connectors.loading import load_all
    from perdure.connectors.serving import build_processors
    from perdure.streams.cluster.topics import ensure_topics
    from perdure.streams.runtime.kafka import ConfluentKafka

    logs.configure(settings, "worker")
    tools = load_all(tool_files)
    runtime = settings.runtime()
    wanted = queues or list(
        dict.fromkeys(["tools", "models", *(tool.spec.queue for tool in tools)])
    )
    ensure_topics(
        settings.client_conf(),
        settings.topic_prefix,
        settings.partitions,
        queues=tuple(dict.fromkeys(["tools", "models", *wanted])),
        processors=tuple(
            dict.fromkeys(
                ["engine", "worker.tools", "worker.models", *(f"worker.{q}" for q in wanted)]
            )
        ),
    )
    kafka = ConfluentKafka(runtime)
    spans = _exporter("worker", settings)
    pieces = build_processors(
        tools, wanted, runtime, kafka, settings.blobs(), settings.worker(), spans
    )
    try:
        _serve("worker", settings, pieces.processors, pieces.reach, spans)
    finally:
        pieces.close()


def _serve(
    role: str,
    settings: Settings,
    processors: list,  # type: ignore[type-arg]
    reach: Reach | None = None,
    spans: Exporter | None = None,
) -> None:
    from perdure.streams.runtime import runner
    from perdure.streams.runtime.errors import RuntimeFault
    from perdure.streams.runtime.health import HealthBoard
    from perdure.streams.runtime.kafka import ConfluentKafka
    from perdure.streams.runtime.processing import where

    from .backlog import Backlog, Input, held_by
    from .health import serve

    parent.follow()
    # Long-lived caches of acyclic values: the default thresholds scan them for nothing (3 % of CPU).
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    # Threads here work in bursts of 1 to 3 ms; with the default of 5 ms a record waits for a
    # whole burst of another thread (590 -> 640 steps/s in perdure bench at 50 runs at once).
    sys.setswitchinterval(0.0005)
    board = HealthBoard([processor.name for processor in processors])
    for processor in processors:
        board.of(processor.name).also(processor.measures.families)
    runtime = settings.runtime()
    inputs = {p.name: Input(runtime.group(p.name), p.sources) for p in processors}
    more = [] if spans is None else [spans.spans]
    backlog = Backlog(lambda: held_by(board), inputs, ConfluentKafka(runtime))
    started = time.monotonic()

    def ready() -> bool:
        snapshots = board.snapshots()
        settled = all(
            each.started and not each.restoring and each.failure is None for each in snapshots
        )
        return settled and (all(each.live for each in snapshots) or time.monotonic() - started > 10)

    if settings.metrics_port is not None:
        try:
            port = serve(
                board,
                settings.metrics_port,
                ready,
                settings.metrics_host,
                reach=reach,
                backlog=backlog,
                more=more,
            )
        except OSError as error:
            leave(
                FAILED,
                f"--metrics-port {settings.metrics_port}: {error.strerror}; choose another, or 0 for any",
            )
        say(f"{role}: health and metrics on http://{settings.metrics_host}:{port}")
    stop = threading.Event()
    asked = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        stop.set()
        if asked > 1:  # a second Ctrl-C: whoever asks twice does not want to wait
            raise SystemExit(130)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    say(
        f"{role} {settings.instance_id}: serving {', '.join(p.name for p in processors)} on {settings.bootstrap_servers}"
    )
    try:
        runner.run(processors, runtime, stop, board=board)
    except RuntimeFault:
        raise
    except Exception as error:  # not as Python tells it: its text may hold payload
        log.critical("%s ends by a bug", role, exc_info=error)
        leave(FAILED, f"{role} ends by a bug ({where(error)}): please report it with this log")
    finally:
        if spans is not None:
            spans.close()
    say(f"{role} {settings.instance_id}: stopped")


def _exporter(role: str, settings: Settings) -> Exporter | None:
    """Where spans go; nowhere unless a collector is named."""
    from . import tracing

    if not tracing.wanted(os.environ):
        return None
    try:
        return tracing.Exporter(role, settings.instance_id)
    except ImportError:
        say(
            f"{role}: {' or '.join(tracing.ENDPOINTS)} is set, and traces need a library that is not "
            "installed: pip install 'perdure[traces]'. It goes on without traces"
        )
        return None


def tool_paths(files: list[Path | str]) -> list[str]:
    """Tool files as absolute paths (modules as they are), for a child with another directory."""
    return [
        str(Path(each).absolute()) if str(each).endswith(".py") else str(each) for each in files
    ]
