"""A client of Perdure for Python programs: submit, wait, decide, control, look.

Everything goes through the public topics (contract section 2), so any Kafka client can do the
same. Blocking; one `Client` may be used from several threads.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Message, Producer

from perdure.schemas import codec, records, topics

from . import tables
from .topics_reader import Scanner, Unreachable


class SubmitError(Exception):
    """Kafka did not take a record; the text says which and why."""


class Client:
    """``bootstrap_servers`` as Kafka takes it; ``kafka`` goes to the Kafka clients as it is."""

    def __init__(
        self, bootstrap_servers: str, *, topic_prefix: str = "", kafka: dict[str, str] | None = None
    ) -> None:
        conf = {**(kafka or {}), "bootstrap.servers": bootstrap_servers}
        self._prefix = topic_prefix
        self.reader = Scanner(conf, topic_prefix)
        self._producer = Producer(
            {
                **conf,
                "acks": "all",
                "enable.idempotence": "true",
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "message.max.bytes": str(topics.MAX_INBOUND_BYTES + 100_000),
                "delivery.timeout.ms": "30000",
                "log_level": "0",
            }
        )

    # --- write --------------------------------------------------------------------------------

    def submit(
        self, tasks: Iterable[records.Task | dict[str, Any]], timeout: float = 60.0
    ) -> list[str]:
        """Produce tasks; returns their run ids once Kafka has acknowledged all of them.

        A task without an id gets one. Raises `SubmitError` naming what was not taken, and
        `perdure.schemas.errors.RecordError` for a task that breaks the contract.
        """
        ids = []
        values = []
        for given in tasks:
            task = codec.convert(given, records.Task) if isinstance(given, dict) else given
            if task.task_id is None:
                task = msgspec.structs.replace(task, task_id=f"r-{uuid.uuid4().hex[:12]}")
            run_id = task.task_id or ""
            ids.append(run_id)
            values.append((topics.TASKS, run_id, codec.encode(task)))
        self._produce(values, timeout)
        return ids

    def submit_soon(self, task: records.Task) -> None:
        """Produce one task with an id without waiting; its outcome tells that it came."""
        self._producer.produce(
            self._prefix + topics.TASKS, codec.encode(task), (task.task_id or "").encode()
        )
        self._producer.poll(0)

    def decide(self, decision: records.ApprovalDecision, timeout: float = 30.0) -> str:
        """Produce a decision; returns its request id. The verdict says whether it counted."""
        if decision.request_id is None:
            decision = msgspec.structs.replace(decision, request_id=f"{uuid.uuid4()}")
        run_id = decision.approval_id.rpartition("/")[0]
        self._produce([(topics.APPROVALS, run_id, codec.encode(decision))], timeout)
        return decision.request_id or ""

    def control(self, request: records.ControlRequest, timeout: float = 30.0) -> str:
        """Produce a control request; returns its request id."""
        if request.request_id is None:
            request = msgspec.structs.replace(request, request_id=f"{uuid.uuid4()}")
        self._produce([(topics.CONTROL, request.run_id, codec.encode(request))], timeout)
        return request.request_id or ""

    def catalog(self, key: str, value: msgspec.Struct | None, timeout: float = 30.0) -> None:
        """Write (None: delete) ``agent/<name>`` or ``tool/<name>``."""
        self._produce(
            [(topics.CATALOG, key, None if value is None else codec.encode(value))], timeout
        )

    def _produce(self, values: Sequence[tuple[str, str, bytes | None]], timeout: float) -> None:
        failed: list[str] = []

        def done(error: Any, message: Message) -> None:
            if error is not None:
                failed.append(f"{(message.key() or b'').decode()}: {error.str()}")

        for topic, key, value in values:
            while True:
                try:
                    self._producer.produce(
                        self._prefix + topic, value, key.encode(), on_delivery=done
                    )
                    break
                except BufferError:  # the local queue is full: let deliveries catch up
                    self._producer.poll(0.1)
                except KafkaException as error:
                    raise SubmitError(f"{key}: {error.args[0].str()}") from error
            self._producer.poll(0)
        left = self._producer.flush(timeout)
        if left:
            raise Unreachable(
                f"Kafka has not acknowledged {left} of {len(values)} records in {timeout:g} s"
            )
        if failed:
            raise SubmitError(
                f"{len(failed)} of {len(values)} records were not taken: {'; '.join(failed[:5])}"
            )

    # --- wait ---------------------------------------------------------------------------------

    def outcomes(
        self, run_ids: Iterable[str], timeout: float | None = None
    ) -> Iterator[records.Outcome]:
        """The outcomes of runs as they come; ends when all are there or ``timeout`` s have passed."""
        missing = set(run_ids)
        if not missing:
            return
        for seen in self.reader.read([topics.OUTCOMES], follow=True, timeout=timeout):
            if seen.key in missing and seen.value is not None:
                missing.discard(seen.key)
                yield codec.decode(seen.value, records.Outcome)
                if not missing:
                    return

    def verdict(
        self,
        run_id: str,
        request_id: str,
        timeout: float = 30.0,
        since: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> records.Verdict | None:
        """The verdict on a request, or None if none came within ``timeout`` s, or before it was ``stopped``.

        ``since`` (ms): when the request was made, or earlier; older verdicts are not looked through.
        """
        return tables.verdict(self.reader, run_id, request_id, timeout, since, stopped)

    # --- look ---------------------------------------------------------------------------------

    def events(
        self, run_id: str, *, follow: bool = False, timeout: float | None = None
    ) -> Iterator[records.RunEvent]:
        """A run's events, oldest first. Where an ended run's id was forgotten and taken by another run,
        those of the former come first; each begins with version 1."""
        for seen in self.reader.read(
            [topics.EVENTS], run_id=run_id, follow=follow, timeout=timeout
        ):
            if seen.key == run_id and seen.value is not None:
                yield codec.decode(seen.value, records.RunEvent)

    def pending(self) -> dict[str, records.ApprovalRequest]:
        """The open questions by approval id."""
        return tables.questions(self.reader)

    def agents(self) -> dict[str, records.AgentSpec]:
        """The agents of the catalog by name."""
        return tables.catalog(self.reader)[1]

    def tools(self) -> dict[str, records.ToolSpec]:
        """The announced tools by name."""
        return tables.catalog(self.reader)[0]

    def wait_until(self, done: Any, timeout: float, every: float = 0.05) -> bool:
        """Poll ``done()`` until it is true; False after ``timeout`` s."""
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(every)
        return True
