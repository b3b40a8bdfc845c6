"""httpx's connections, only to addresses that may be called: see `addresses.py`.

The host is looked up here, every address of it is judged, and the connection is made to one that was
judged: a name that is answered differently the next time, or a redirect, leads nowhere else. Each hop
of a redirect is a connection of its own, or one that was judged before.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterable
from typing import Any, Final

import httpcore
import httpx

from .addresses import Allowed, Forbidden, check_name, checked
from .errors import InvalidArguments, OutcomeUnknown

_PORTS: Final = {"http": 80, "https": 443}
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HAS_WRITTEN: Final = "perdure.has_written"
"""Set on a request whose predecessor, which wrote, was answered by a redirect."""


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Connects directly."""

    def __init__(self, trust: ssl.SSLContext, allowed: Allowed) -> None:
        super().__init__(verify=trust)
        if not isinstance(getattr(self, "_pool", None), httpcore.AsyncConnectionPool):
            raise RuntimeError("this httpx is not known: its connections could not be guarded")
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Network(allowed),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _check_scheme(request)
        try:
            return await super().handle_async_request(request)
        except Forbidden as error:
            raise _told(error, request) from error


class ProxiedTransport(httpx.AsyncHTTPTransport):
    """Through a proxy, which looks names up itself: what this machine can look up is judged before."""

    def __init__(self, trust: ssl.SSLContext, allowed: Allowed, proxy: str) -> None:
        super().__init__(verify=trust, proxy=proxy)
        self._allowed = allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _check_scheme(request)
        port = request.url.port or _PORTS[request.url.scheme]
        try:
            check_name(request.url.host, port, self._allowed)
            checked(request.url.host, port, await _found(request.url.host, port), self._allowed)
        except socket.gaierror:
            pass  # a name that only the proxy knows
        except Forbidden as error:
            raise _told(error, request) from error
        return await super().handle_async_request(request)


def proxies(trust: ssl.SSLContext, allowed: Allowed) -> dict[str, httpx.AsyncBaseTransport | None]:
    """Of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ...), as `httpx` takes them."""
    found = urllib.request.getproxies()
    made: dict[str, httpx.AsyncBaseTransport | None] = {}
    for scheme, pattern in (("http", "http://"), ("https", "https://"), ("all", "all://")):
        if scheme in found:
            address = found[scheme] if "://" in found[scheme] else f"http://{found[scheme]}"
            made[pattern] = ProxiedTransport(trust, allowed, address)
    for name in (each.strip() for each in found.get("no", "").split(",")):
        if name == "*":
            return {}
        if name.strip("*."):
            bare = name.lstrip("*.")
            plain = f"[{bare}]" if bare.count(":") > 1 and bare[0] != "[" else bare
            made[f"all://{plain}"] = None
            if not plain[-1].isdigit() and plain[-1] != "]":  # a name, and all below it
                made[f"all://*.{plain}"] = None
    return made


async def note_writes(response: httpx.Response) -> None:
    """A hook: httpx hands a request's extensions on to the request it is redirected to."""
    request = response.request
    if response.is_redirect and request.method not in _READS:
        request.extensions = {**request.extensions, _HAS_WRITTEN: True}


def has_written(request: httpx.Request, history: Iterable[httpx.Response] = ()) -> bool:
    """A request before this one, which wrote, was answered by a redirect. ``history`` tells it of a
    client that has no `note_writes`."""
    hops = (response.request.method for response in history)
    return bool(request.extensions.get(_HAS_WRITTEN)) or any(hop not in _READS for hop in hops)


def _check_scheme(request: httpx.Request) -> None:
    if request.url.scheme not in _PORTS or not request.url.host:
        told = f"the URL must begin with http:// or https://, and {request.url.scheme or 'nothing'}: is another"
        raise _told(InvalidArguments(told, code="bad_url"), request)


def _told(error: InvalidArguments, request: httpx.Request) -> Exception:
    """The first request of a redirected call may have done its work: nothing says that it did not."""
    if has_written(request):
        return OutcomeUnknown(f"the service answered, and redirects: {error}", code=error.code)
    return error


async def _found(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in rows]


class _Network(httpcore.AsyncNetworkBackend):
    """Where `httpcore` gets its connections; TLS goes on to ask for the name of the URL."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._plain = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The addresses one after the other, until one is reached or the time is up."""
        check_name(host, port, self._allowed)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            found = await asyncio.wait_for(_found(host, port), timeout)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} was not looked up in time") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in checked(host, port, found, self._allowed):
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            try:
                return await self._plain.connect_tcp(
                    address, port, left, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
