"""Announcing tools on ``agent.catalog``, keyed ``tool/<name>``.

Written only if it says something new: a lower version never replaces a higher one, and of equal
versions only a different text is written.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable

from perdure.schemas import codec, topics
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ToolSpec
from perdure.streams.runtime.ports import PlainProducer
from perdure.streams.runtime.processor import Record

log = logging.getLogger(__name__)

PREFIX = "tool/"
_HEADERS = (("perdure-type", b"ToolSpec"),)


class Catalog:
    """What the topic says of tools, and what is to be added."""

    def __init__(self, producer: PlainProducer) -> None:
        self._producer = producer
        self.known: dict[str, ToolSpec] = {}

    def saw(self, record: Record) -> None:
        """A record of the topic; agents and what can't be read are not ours."""
        key = (record.key or b"").decode("utf-8", "replace")
        if not key.startswith(PREFIX):
            return
        name = key[len(PREFIX) :]
        if record.value is None:
            self.known.pop(name, None)
            return
        try:
            self.known[name] = codec.decode(record.value, ToolSpec)
        except RecordError as error:
            log.warning("agent.catalog: %s can't be read: %s", key, error)

    def announce(
        self,
        specs: Iterable[ToolSpec],
        create_queue: Callable[[str], None] | None = None,
        failed: Callable[[], None] | None = None,
    ) -> list[str]:
        """Write what is new; returns the names written. Each queue's topic is created before.

        ``failed`` is called for each one the broker did not take; announcing again writes it.
        """
        written = []
        created: set[str] = set()
        for spec in specs:
            known = self.known.get(spec.name)
            if known is not None and (known.version > spec.version or known == spec):
                if known.version > spec.version:
                    log.warning(
                        "%s: version %d is announced already, ours is %d: not announced", spec.name, known.version, spec.version
                    )  # fmt: skip
                continue
            if create_queue is not None and spec.queue not in created:
                create_queue(spec.queue)
                created.add(spec.queue)
            self.known[spec.name] = spec
            self._producer.send(
                topics.CATALOG,
                f"{PREFIX}{spec.name}".encode(),
                codec.encode(spec),
                _HEADERS,
                None,
                functools.partial(self._done, spec, failed),
            )
            written.append(spec.name)
        return written

    def _done(
        self, spec: ToolSpec, failed: Callable[[], None] | None, error: Exception | None
    ) -> None:
        if error is None:
            return
        log.warning("%s could not be announced: %s", spec.name, error)
        if self.known.get(spec.name) is spec:
            del self.known[spec.name]
        if failed is not None:
            failed()
