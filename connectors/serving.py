"""Putting a worker process together: one processor per queue, one loop and one producer for all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.streams.runtime.blobs import Blobs
from perdure.streams.runtime.ports import Kafka, PlainProducer
from perdure.streams.runtime.settings import RuntimeSettings
from perdure.streams.runtime.spans import Sink

from .executor import Executor, ThreadedExecutor
from .models.providers import Providers
from .reach import Reach
from .tool import Tool
from .worker import WorkerProcessor, WorkerSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What `runner.run` takes, and what is to be closed after it."""

    processors: list[WorkerProcessor]
    executor: Executor
    producer: PlainProducer
    reach: Reach

    def close(self) -> None:
        """End what still runs and send what was said. Calls not ended are settled at the next start."""
        self.executor.close()
        left = self.producer.flush(5.0)
        if left:
            log.warning("%d results could not be sent: their calls are made again", left)
        self.producer.close()


def queues_of(tools: Iterable[Tool[..., Any]]) -> list[str]:
    """What a worker with these tools serves unless told otherwise."""
    return list(dict.fromkeys([*(tool.spec.queue for tool in tools), "models"]))


def build_processors(
    tools: Sequence[Tool[..., Any]],
    queues: Sequence[str] | None,
    runtime: RuntimeSettings,
    kafka: Kafka,
    blob_url: str,
    settings: WorkerSettings | None = None,
    spans: Sink | None = None,
) -> Pieces:
    """The processors of ``queues`` (None: those of the tools, and `models`).

    Their topics must exist: the caller creates them first, so that no tool is announced before
    its queue is there. The queue `tools` is left out when there is no tool for it: its commands
    would all be answered NO_SUCH_TOOL, also those another worker could have served.
    """
    wanted = list(queues_of(tools) if queues is None else dict.fromkeys(queues))
    by_queue = {queue: [tool for tool in tools if tool.spec.queue == queue] for queue in wanted}
    if len(wanted) > 1 and not by_queue.get("tools", [None]):
        del by_queue["tools"]
    unserved = sorted(
        {tool.name for tool in tools} - {t.name for own in by_queue.values() for t in own}
    )
    if unserved:
        log.warning("not served here, their queues are not among --queues: %s", ", ".join(unserved))
    limits = settings or WorkerSettings(instance_id=runtime.instance_id)
    executor = ThreadedExecutor()
    producer = kafka.plain_producer(f"{runtime.topic_prefix}worker.{runtime.instance_id}.results")
    blobs = Blobs(blob_url)
    models = Providers()
    reach = limits.reach(producer, executor)
    processors = [
        WorkerProcessor(
            queue,
            own,
            settings=limits,
            executor=executor,
            producer=producer,
            models=models,
            blobs=blobs,
            reach=reach,
            spans=spans,
        )
        for queue, own in by_queue.items()
    ]
    return Pieces(processors, executor, producer, reach)
