"""A child role ends with its supervisor, also when that was killed -9."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

VARIABLE = "PERDURE_SUPERVISOR_PID"


def follow() -> None:
    """End when the supervisor named in the environment is gone; nothing without one."""
    pid = os.environ.get(VARIABLE)
    if not pid:
        return
    supervisor = int(pid)
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: the kernel kills us; what was in flight is settled at the next start
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(supervisor,), name="parent", daemon=True).start()
    if os.getppid() != supervisor:
        os._exit(1)


def _watch(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(0.5)
    os._exit(1)
