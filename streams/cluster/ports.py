"""Ports on loopback: a wanted one, the next free one, any free one."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from perdure.streams.cluster.errors import NoFreePort
from perdure.streams.cluster.server import HOST

DEFAULT_PORT = 9092
PORTS_TRIED = 100


def choose(wanted: int | None) -> int:
    """None: the default port or the next free one; 0: any free one; else that one or an error."""
    if wanted == 0:
        return any_free()
    if wanted is not None:
        if not is_free(wanted):
            raise taken(wanted)
        return wanted
    last = DEFAULT_PORT + PORTS_TRIED - 1
    for port in range(DEFAULT_PORT, last + 1):
        if is_free(port):
            return port
    raise NoFreePort(
        f"all ports from {DEFAULT_PORT} to {last} are taken: stop what uses them, or choose a port"
    )


def taken(port: int) -> NoFreePort:
    return NoFreePort(
        f"port {port} is taken by another program: stop that one, or choose another port"
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def any_free(but: Iterable[int] = ()) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in but:
            return port
