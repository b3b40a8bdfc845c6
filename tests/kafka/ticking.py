"""One process whose only transactions come from timers: ``ticking.py <as counting.py>``.

Every key's timer counts one up, tells it, and is set again.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from perdure.streams.runtime.errors import RuntimeFault
from perdure.streams.runtime.processor import Context, Message
from perdure.streams.runtime.runner import run
from perdure.streams.runtime.settings import RuntimeSettings

EVERY_MS = 20
LEFT, RIGHT, OUT = "left", "right", "out"


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from counting import Counting

    class Ticking(Counting):
        def process(self, ctx: Context, message: Message) -> None:
            ctx.set_timer(ctx.now, message.record.key or b"-")

        def timer(self, ctx: Context, key: bytes, due: int) -> None:
            n = (ctx.get(b"n/" + key) or 0) + 1
            ctx.put(b"n/" + key, n)
            ctx.send(OUT, key, json.dumps({"n": n, "of": f"{key.decode()}-{n}"}).encode())
            ctx.set_timer(ctx.now + EVERY_MS, key)

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
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
        run([Ticking()], settings, stop)
    except RuntimeFault as e:
        print(e, file=sys.stderr)
        sys.exit(e.exit_code)


if __name__ == "__main__":
    main()
