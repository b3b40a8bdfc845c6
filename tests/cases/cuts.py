"""A way to a broker whose connections can all be cut at once, as a balancer does with idle ones."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Cuts:
    """A proxy of TCP connections on a port of its own; ``to`` is set before anybody comes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.to = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)
        self.cut()

    def cut(self) -> int:
        """Ends all connections, on both sides; how many there were."""
        with self._lock:
            found, self._open = self._open, set()
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(found) // 2

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to), 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            ends = [0]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other, ends), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, ends: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {one, other}
            ends[0] += 1
            over = ends[0] == 2
        if over:
            one.close()
            other.close()
