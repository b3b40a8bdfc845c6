"""A processor for tests, and what it needs: counts records per key and emits the sequence.

Run as a script it is one process of the chaos test: ``counting.py <bootstrap> <prefix>
<instance> <data dir>``.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from perdure.streams.runtime.errors import RuntimeFault
from perdure.streams.runtime.processor import Assignment, Context, Message, Record, Undecodable
from perdure.streams.runtime.runner import run
from perdure.streams.runtime.settings import RuntimeSettings

LEFT, RIGHT, OUT, CHANGELOG = "left", "right", "out", "counting.changelog"
FORWARDED, LETTERS = "forwarded", "agent.dead-letters"


class Counting:
    """State per key: how many records; output: ``{"n": count, "of": topic-partition-offset}``."""

    name = "counting"
    sources: tuple[str, ...] = (LEFT, RIGHT)
    forwarded: str | None = None
    changelog = CHANGELOG
    accepting = True
    global_topics: tuple[str, ...] = ()

    def encode(self, key: bytes, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, key: bytes, raw: bytes) -> Any:
        return json.loads(raw)

    def read(self, record: Record) -> Message | None:
        if record.value is None:
            raise Undecodable("empty", "the record has no value")
        return Message(None, record.value, record)

    def process(self, ctx: Context, message: Message) -> None:
        record = message.record
        key = record.key or b"-"
        n = (ctx.get(b"n/" + key) or 0) + 1
        ctx.put(b"n/" + key, n)
        of = f"{record.topic}-{record.partition}-{record.offset}"
        ctx.send(OUT, key, json.dumps({"n": n, "of": of}).encode())

    def timer(self, ctx: Context, key: bytes, due: int) -> None:
        raise AssertionError("no timers here")

    def timer_delay(self, key: bytes, due: int, live_since: int) -> int:
        return 0

    def completed(self, ctx: Context, event: Any) -> None:
        raise AssertionError("no calls here")

    def live(self, ctx: Context) -> None:
        pass

    def revoked(self, assignment: Assignment) -> None:
        pass

    def failed(
        self,
        ctx: Context,
        message: Message | None,
        timer: bytes | None,
        error: Exception,
        event: Any = None,
    ) -> None:
        if message is not None:
            ctx.dead_letter(message.record, "failed", type(error).__name__)

    def global_record(self, record: Record) -> None:
        pass


def main() -> None:
    import faulthandler
    import logging

    faulthandler.register(signal.SIGUSR1)

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    bootstrap, prefix, instance, data_dir = sys.argv[1:5]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = RuntimeSettings(
        bootstrap_servers=bootstrap,
        data_dir=Path(data_dir),
        topic_prefix=prefix,
        instance_id=instance,
        session_timeout_ms=3_000,
    )
    try:
        run([Counting()], settings, stop)
    except RuntimeFault as e:
        print(e, file=sys.stderr)
        sys.exit(e.exit_code)


if __name__ == "__main__":
    main()
