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
| the URL leads to an address that may not be called | invalid_arguments | forbidden_address |
| 400, 422 | invalid_arguments | http_<status> |
| 401, 403, 407 | permission | http_<status> |
| 409 naming our own key as in progress | unclear | key_in_progress |
| 404, other 409, other 4xx | business | http_<status> |
| 408, 425 | unclear | http_<status> |
| 429 | nothing | rate_limited |
| 503 with Retry-After | nothing | http_503 |
| 5xx, 3xx and 1xx as an error | unclear | http_<status> |
| any of these once a request that writes was answered by a redirect | unclear | the same, but |
| nothing, except http_503, after such a redirect | unclear | redirect_failed |
"""

from __future__ import annotations

import email.utils
import functools
import ssl
import time
import urllib.error
from collections.abc import Iterable, Mapping

import httpx

from .addresses import Allowed
from .errors import Cause, connecting, standard
from .guarded import GuardedTransport, has_written, note_writes, proxies

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
    known = _of_last_request(error, key, now)
    if known is not None and known.known != "unclear" and _was_redirected(error):
        # What the service leads to did nothing; the service itself was asked to write before that.
        # The code must not say otherwise: the core takes those of a connection for proof.
        proves = known.known == "nothing" and known.code != "http_503"
        code = "redirect_failed" if proves else known.code
        return Cause("unclear", code, known.retry_after_seconds)
    return known


def _was_redirected(error: BaseException) -> bool:
    """After a request that writes."""
    if isinstance(error, httpx.HTTPStatusError):
        return has_written(error.request, error.response.history)
    if not isinstance(error, httpx.RequestError):
        return False
    try:
        return has_written(error.request)
    except RuntimeError:  # it was never told which
        return False


def _of_last_request(error: BaseException, key: str, now: float | None) -> Cause | None:
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
    base_url: str = "",
    *,
    timeout_seconds: float = 10.0,
    headers: Mapping[str, str] | None = None,
    allow: Iterable[str] = (),
) -> httpx.AsyncClient:
    """An `httpx.AsyncClient` that raises on error statuses, so that the table above applies, and
    connects to public addresses only: a URL may come from a model.

    ``allow`` names what else may be called: ``host`` or ``host:port`` as it stands in the URL, or a
    network such as ``10.0.0.0/8``. The host and port of ``base_url`` are allowed, so never make that of
    a model's words. Redirects are followed only where asked for (httpx: ``follow_redirects``), and each
    is checked as the first URL is. What may not be called is ``invalid_arguments``,
    ``forbidden_address``.
    """

    async def raise_on_error(response: httpx.Response) -> None:
        if response.status_code >= 400:
            await response.aread()
            response.raise_for_status()

    named = Allowed.of([*allow, *_own(base_url)])
    return httpx.AsyncClient(
        base_url=base_url,
        timeout=timeout_seconds,
        headers=headers,
        transport=GuardedTransport(_trust(), named),
        mounts=proxies(_trust(), named),
        event_hooks={"response": [note_writes, raise_on_error]},
    )


def _own(base_url: str) -> list[str]:
    url = httpx.URL(base_url)
    if not url.host:
        return []
    host = f"[{url.host}]" if ":" in url.host else url.host
    return [f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"]
