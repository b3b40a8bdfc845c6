"""HTTP: the table of httpx's (and urllib's) exceptions, and a small client for tool authors.

| what happened | known | code |
|---|---|---|
| no connection: refused, unreachable, proxy | nothing | connect_refused |
| no connection: name not found | nothing | dns_failed |
| no connection: TLS | nothing | tls_failed |
| no connection in time, no free connection in the pool | nothing | connect_timeout |
| no answer in time | unclear | read_timeout |
| not sent in time | unclear | write_timeout |
| connection dropped, answer broken off | unclear | connection_lost |
| answer can't be decoded, too many redirects | unclear | bad_response |
| the URL is none, or of an unknown scheme | invalid_arguments | bad_url |
| 400, 422 | invalid_arguments | http_<status> |
| 401, 403, 407 | permission | http_<status> |
| 409 naming our own key as in progress | unclear | key_in_progress |
| 404, other 409, other 4xx | business | http_<status> |
| 408, 425 | unclear | http_<status> |
| 429 | nothing | rate_limited |
| 503 with Retry-After | nothing | http_503 |
| 5xx, 3xx and 1xx as an error | unclear | http_<status> |
"""

from __future__ import annotations

import email.utils
import functools
import ssl
import time
import urllib.error
from collections.abc import Mapping

import httpx

from .errors import Cause, connecting, standard

_DEFINITE = {
    400: "invalid_arguments",
    422: "invalid_arguments",
    401: "permission",
    403: "permission",
    407: "permission",
}

_EXCEPTIONS: tuple[tuple[type[Exception], Cause], ...] = (
    (httpx.ConnectTimeout, Cause("nothing", "connect_timeout")),
    (httpx.PoolTimeout, Cause("nothing", "connect_timeout")),
    (httpx.ReadTimeout, Cause("unclear", "read_timeout")),
    (httpx.WriteTimeout, Cause("unclear", "write_timeout")),
    (httpx.ProxyError, Cause("nothing", "connect_refused")),
    (httpx.UnsupportedProtocol, Cause("invalid_arguments", "bad_url")),
    (httpx.InvalidURL, Cause("invalid_arguments", "bad_url")),
    (httpx.TransportError, Cause("unclear", "connection_lost")),
    (httpx.DecodingError, Cause("unclear", "bad_response")),
    (httpx.TooManyRedirects, Cause("unclear", "bad_response")),
    (httpx.StreamError, Cause("unclear", "bad_response")),
)


def cause(error: BaseException, key: str = "", now: float | None = None) -> Cause | None:
    """The table. ``key`` is the call's idempotency key, ``now`` (s) serves Retry-After dates."""
    if isinstance(error, httpx.HTTPStatusError):
        response = error.response
        return of_status(response.status_code, response.headers, _text(response), key, now)
    if isinstance(error, httpx.ConnectError):
        return connecting(error)
    for kind, known in _EXCEPTIONS:
        if isinstance(error, kind):
            return known
    if isinstance(error, urllib.error.HTTPError):
        return of_status(error.code, dict(error.headers.items()), "", key, now)
    if isinstance(error, urllib.error.URLError):
        return standard(error.reason) if isinstance(error.reason, BaseException) else None
    return None


def of_status(
    status: int,
    headers: Mapping[str, str],
    body: str = "",
    key: str = "",
    now: float | None = None,
) -> Cause:
    """What an answer with this status proves."""
    code = f"http_{status}"
    wait = retry_after(headers, now)
    if status == 429:
        return Cause("nothing", "rate_limited", wait)
    if status == 503 and wait is not None:
        return Cause("nothing", code, wait)
    if status in (408, 425) or not 400 <= status < 500:
        return Cause("unclear", code, wait)
    if status == 409 and _names_key_in_progress(body, key):
        return Cause("unclear", "key_in_progress", wait)
    known = _DEFINITE.get(status)
    if known == "invalid_arguments":
        return Cause("invalid_arguments", code)
    return Cause("permission" if known else "business", code)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds to wait, from either form of Retry-After; None if it is missing or unreadable."""
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    if value is None:
        return None
    text = value.strip()
    if text.replace(".", "", 1).isdigit() and text.isascii():
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, when - (time.time() if now is None else now))


def _names_key_in_progress(body: str, key: str) -> bool:
    text = body.lower()
    if "progress" not in text and "in use" not in text and "in_use" not in text:
        return False
    return (bool(key) and key.lower() in text) or "idempotency" in text


def _text(response: httpx.Response) -> str:
    try:
        return response.text
    except httpx.ResponseNotRead:
        return ""


@functools.cache
def _trust() -> ssl.SSLContext:
    """Reading the certificates takes 26 ms of a worker's loop, in which all its calls stand still:
    a client per call would do that each time."""
    return httpx.create_ssl_context()


def client(
    base_url: str = "", *, timeout_seconds: float = 10.0, headers: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """An `httpx.AsyncClient` that raises on error statuses, so that the table above applies."""

    async def raise_on_error(response: httpx.Response) -> None:
        if response.status_code >= 400:
            await response.aread()
            response.raise_for_status()

    return httpx.AsyncClient(
        base_url=base_url,
        timeout=timeout_seconds,
        headers=headers,
        verify=_trust(),
        event_hooks={"response": [raise_on_error]},
    )
