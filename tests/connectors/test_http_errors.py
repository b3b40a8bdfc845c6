"""A test per row of the table in connectors/http.py, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from typing import Any

import httpx
import pytest
from perdure.connectors import http
from perdure.connectors.errors import failure
from perdure.connectors.http import retry_after
from perdure.connectors.mapping import cause_of, failure_of
from perdure.streams.core.policies.retry import NOTHING_HAPPENED

from .servers import Script, free_port, line_server, web_server


def _get(url: str, timeout_seconds: float = 5.0, **options: Any) -> BaseException:
    async def ask() -> None:
        async with http.client(timeout_seconds=timeout_seconds, allow=["127.0.0.1"]) as client:
            await client.get(url, **options)

    try:
        asyncio.run(ask())
    except Exception as error:
        return error
    raise AssertionError("it went through")


def _kinds(error: BaseException, key: str = "") -> tuple[str, str, str, str]:
    """Code, and the kind for each effect."""
    each = [failure_of(error, effect, key) for effect in ("read_only", "idempotent", "external")]  # type: ignore[arg-type]
    return each[0].code, each[0].kind, each[1].kind, each[2].kind


def test_connection_refused() -> None:
    error = _get(f"http://127.0.0.1:{free_port()}/")
    assert _kinds(error) == ("connect_refused", "transient", "transient", "transient")


def test_name_not_found() -> None:
    assert _kinds(_get("http://no-such-host.invalid/")) == (
        "dns_failed", "transient", "transient", "transient",
    )  # fmt: skip


def test_tls() -> None:
    with line_server(b"HTTP/1.1 400 no\r\n\r\n", greet=b"HTTP/1.1 400 no\r\n\r\n") as port:
        error = _get(f"https://127.0.0.1:{port}/")
    assert _kinds(error) == ("tls_failed", "transient", "transient", "transient")


def test_read_timeout() -> None:
    with line_server() as port:
        error = _get(f"http://127.0.0.1:{port}/", 0.2)
    assert _kinds(error) == ("read_timeout", "transient", "transient", "unknown")


def test_dropped_connection() -> None:
    with line_server(None) as port:
        error = _get(f"http://127.0.0.1:{port}/")
    assert _kinds(error) == ("connection_lost", "transient", "transient", "unknown")


def test_broken_off_answer(server: Script) -> None:
    server.say(-1, "half")
    assert _kinds(_get(server.url))[0] == "connection_lost"


def test_unreadable_answer(server: Script) -> None:
    server.say(200, "no gzip", {"Content-Encoding": "gzip"})
    assert _kinds(_get(server.url)) == ("bad_response", "transient", "transient", "unknown")


def test_redirects(server: Script) -> None:
    server.say(302, "", {"Location": "/"})
    error = _get(server.url, follow_redirects=True)
    assert _kinds(error) == ("bad_response", "transient", "transient", "unknown")


@pytest.mark.parametrize("url", ["ftp://a/", "nonsense", "http://[::1"])
def test_bad_url(url: str) -> None:
    assert _kinds(_get(url)) == ("bad_url", *3 * ("invalid_arguments",))


@pytest.mark.parametrize(
    ("error", "code", "external"),
    [
        (httpx.ConnectTimeout(""), "connect_timeout", "transient"),
        (httpx.PoolTimeout(""), "connect_timeout", "transient"),
        (httpx.ProxyError(""), "connect_refused", "transient"),
        (httpx.WriteTimeout(""), "write_timeout", "unknown"),
        (httpx.WriteError(""), "connection_lost", "unknown"),
        (httpx.LocalProtocolError(""), "connection_lost", "unknown"),
        (httpx.StreamConsumed(), "bad_response", "unknown"),
    ],
)
def test_what_is_hard_to_provoke(error: Exception, code: str, external: str) -> None:
    assert _kinds(error) == (code, "transient", "transient", external)


@pytest.mark.parametrize(
    ("status", "headers", "code", "kind", "external"),
    [
        (400, {}, "http_400", "invalid_arguments", "invalid_arguments"),
        (422, {}, "http_422", "invalid_arguments", "invalid_arguments"),
        (401, {}, "http_401", "permission", "permission"),
        (403, {}, "http_403", "permission", "permission"),
        (407, {}, "http_407", "permission", "permission"),
        (404, {}, "http_404", "business", "business"),
        (409, {}, "http_409", "business", "business"),
        (410, {}, "http_410", "business", "business"),
        (408, {}, "http_408", "transient", "unknown"),
        (425, {}, "http_425", "transient", "unknown"),
        (429, {}, "rate_limited", "transient", "transient"),
        (503, {"Retry-After": "7"}, "http_503", "transient", "transient"),
        (503, {}, "http_503", "transient", "unknown"),
        (500, {}, "http_500", "transient", "unknown"),
        (504, {}, "http_504", "transient", "unknown"),
    ],
)
def test_statuses(
    server: Script, status: int, headers: dict[str, str], code: str, kind: str, external: str
) -> None:
    server.say(status, "", headers)
    error = _get(server.url)
    assert _kinds(error) == (code, kind, kind, external)
    wait = failure_of(error, "read_only").retry_after_seconds
    assert wait == (7.0 if headers else None)


def test_a_conflict_that_names_our_key_as_in_progress_is_tried_again(server: Script) -> None:
    server.say(409, {"error": "request r/1/0a is still in progress"})
    error = _get(server.url)
    assert _kinds(error, "r/1/0a")[:3] == ("key_in_progress", "transient", "transient")
    assert _kinds(error, "r/2/0b")[1] == "business"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-3", None),
    ],
)
def test_both_forms_of_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, now=60.0) == seconds
    assert retry_after({}, now=60.0) is None


def test_urllib(server: Script) -> None:
    server.say(404)
    with pytest.raises(urllib.request.HTTPError) as raised:
        urllib.request.urlopen(server.url)
    with raised.value as error:
        assert _kinds(error)[:2] == ("http_404", "business")
    with pytest.raises(urllib.request.URLError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{free_port()}/")
    assert _kinds(refused.value)[3] == "transient"


def test_the_text_never_is_empty() -> None:
    error = httpx.ReadError("")
    assert failure(error, cause_of(error), "external").message == "ReadError"


def test_the_certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    http.client()

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("certificates are read again")

    monkeypatch.setattr(ssl, "create_default_context", again)
    http.client()
    with pytest.raises(AssertionError):
        httpx.AsyncClient()


@pytest.fixture
def server() -> Any:
    with web_server() as script:
        yield script


_LED_TO = (
    (429, {"Retry-After": "1"}), (503, {"Retry-After": "1"}), (404, {}), (409, {}), (401, {}),
    (400, {}), (500, {}),
)  # fmt: skip


def _posted(client: httpx.AsyncClient, url: str) -> BaseException:
    async def ask() -> None:
        async with client:
            (await client.post(url, json={}, follow_redirects=True)).raise_for_status()

    try:
        asyncio.run(ask())
    except Exception as error:
        return error
    raise AssertionError("it went through")


@pytest.mark.parametrize("hop", [302, 303, 307])
@pytest.mark.parametrize(("status", "headers"), _LED_TO)
def test_what_a_redirect_leads_to_says_nothing_of_the_post_before_it(
    server: Script, status: int, headers: dict[str, str], hop: int
) -> None:
    """Or a payment that was taken would be called "not completed", or be made again."""
    for client in (http.client(allow=["127.0.0.1"]), httpx.AsyncClient()):
        server.answers = [(hop, {"Location": "/x"}, b""), (status, headers, b"")]
        error = _posted(client, server.url)
        assert failure_of(error, "external").kind == "unknown"
        again = failure_of(error, "idempotent")
        assert again.kind == "transient"
        assert again.code not in NOTHING_HAPPENED


def test_a_redirect_after_a_post_to_where_nobody_listens(server: Script) -> None:
    server.say(303, "", {"Location": f"http://127.0.0.1:{free_port()}/"})
    error = _posted(http.client(allow=["127.0.0.1"]), server.url)
    assert _kinds(error) == ("redirect_failed", "transient", "transient", "unknown")


def test_a_redirected_get_is_answered_by_what_it_leads_to(server: Script) -> None:
    server.answers = [(302, {"Location": "/x"}, b""), (404, {}, b"")]
    assert _kinds(_get(server.url, follow_redirects=True))[3] == "business"
