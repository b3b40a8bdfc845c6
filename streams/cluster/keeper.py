"""The process between an owner and its broker: while it lives the broker has an owner.

    owner --(pipe: stdin)--> keeper --> java

The owner holds the write end of the keeper's stdin. However the owner ends, also by kill -9,
the kernel closes that end; the keeper reads end-of-file and ends the broker: SIGTERM, ten
seconds, SIGKILL. If the keeper itself is killed, Linux ends the broker (parent-death signal).
Should a forked child of the owner keep the pipe open, the changed parent id tells.

The lock file is opened and locked here and inherited by the broker, so the lock is held until
both are gone: who gets it next knows that nobody writes to the data directory any more.

Run by its file path, with the standard library only: it must start in milliseconds.
Arguments: owner's pid, lock file, output file, then the command. Prints the broker's pid.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

GRACE_SECONDS = 10
PR_SET_PDEATHSIG = 1


def die_with(keeper: int) -> Callable[[], None]:
    """To be called between fork and exec: end the child when the keeper ends (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def arm() -> None:
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:  # it died between fork and prctl
                os._exit(1)

    return arm


def main(argv: list[str]) -> int:
    owner, lock_file, out_file, *command = argv
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with Path(out_file).open("wb") as out:
        broker = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            preexec_fn=die_with(os.getpid()),
        )

    stopping = threading.Event()

    def stop(*_: object) -> None:
        """Runs in a signal handler too, so it only starts what the loop below waits for."""
        if not stopping.is_set():
            stopping.set()
            killer = threading.Timer(GRACE_SECONDS, broker.kill)
            killer.daemon = True
            killer.start()
            broker.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def until_end_of_file() -> None:
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=until_end_of_file, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        print(broker.pid, flush=True)

    while True:
        try:
            code = broker.wait(timeout=1)
        except subprocess.TimeoutExpired:
            if os.getppid() != int(owner):
                stop()
        else:
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
