"""Holds a broker until Ctrl-C or SIGTERM: ``python -m perdure.streams.cluster --data-dir D``."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from perdure.streams.cluster.broker import EmbeddedKafka
from perdure.streams.cluster.errors import BrokerDied, ClusterError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m perdure.streams.cluster", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, help="default: 9092 or the next free one; 0: any")
    parser.add_argument("--fsync", action="store_true", help="on disk before it is acknowledged")
    options = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with EmbeddedKafka(options.data_dir, port=options.port, fsync=options.fsync) as broker:
            print(f"{broker.bootstrap_servers} (pid {broker.pid})", flush=True)
            while not stop.wait(0.5):
                if not broker.alive():
                    raise BrokerDied(f"the broker died: see {options.data_dir / 'broker.log'}")
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
