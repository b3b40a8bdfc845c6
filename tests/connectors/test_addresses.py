"""Where a tool's URL may lead: addresses in all their spellings, names that change, redirects."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from perdure.connectors import guarded, http
from perdure.connectors.addresses import Allowed, Forbidden, checked, refusal
from perdure.connectors.errors import InvalidArguments, OutcomeUnknown
from perdure.connectors.mapping import failure_of

from .servers import Script, web_server

Client = httpx.AsyncClient


@pytest.fixture
def server() -> Iterator[Script]:
    with web_server() as script:
        script.say(200, {"secret": "of the inside"})
        yield script


def asked(
    work: Callable[[Client], Awaitable[httpx.Response]], **options: Any
) -> httpx.Response | Exception:
    async def ask() -> httpx.Response:
        async with http.client(**options) as client:
            return await work(client)

    try:
        return asyncio.run(ask())
    except Exception as error:
        return error


def get(url: str, **options: Any) -> httpx.Response | Exception:
    return asked(lambda client: client.get(url, follow_redirects=True), **options)


def port_of(server: Script) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1",
        "169.254.169.254", "168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1",
        "fe80::1%lo", "fd00:ec2::254", "fc00::1", "ff02::1", "2001:db8::1",
    ],
)  # fmt: skip
def test_an_address_of_the_inside_is_refused(address: str) -> None:
    assert refusal(address, Allowed()) is not None


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_not(address: str) -> None:
    assert refusal(address, Allowed()) is None


def test_an_address_of_this_machine_is_its_own_whatever_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perdure.connectors.addresses._is_ours", lambda address: True)
    assert refusal("1.1.1.1", Allowed()) == "1.1.1.1 is this machine's own"


@pytest.mark.parametrize(
    ("names", "host", "port", "is_so"),
    [
        (["inside.example"], "Inside.Example.", 80, True),
        (["inside.example:8080"], "inside.example", 8080, True),
        (["inside.example:8080"], "inside.example", 80, False),
        (["127.0.0.1"], "127.0.0.1", 9092, True),
        (["127.0.0.1"], "2130706433", 9092, False),
        (["[::1]:80"], "::1", 80, True),
        (["::1"], "::1", 80, True),
        (["127.0.0.0/8"], "2130706433", 9092, True),
        (["127.0.0.0/8"], "::ffff:127.0.0.1", 9092, True),
        (["10.0.0.0/8"], "127.0.0.1", 80, False),
    ],
)
def test_what_an_author_names_is_allowed_and_nothing_near_it(
    names: list[str], host: str, port: int, is_so: bool
) -> None:
    found = [row[4][0] for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)] if (
        "example" not in host.lower()
    ) else ["10.0.0.7"]  # fmt: skip
    allowed = Allowed.of(names)
    if is_so:
        assert checked(host, port, map(str, found), allowed)
    else:
        with pytest.raises(Forbidden):
            checked(host, port, map(str, found), allowed)


def test_one_bad_address_among_good_ones_is_enough() -> None:
    with pytest.raises(Forbidden, match=r"10\.0\.0\.1 is not public"):
        checked("two.example", 80, ["8.8.8.8", "10.0.0.1"], Allowed())


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "localhost.",
     "localhost", "a.localhost", "user@127.0.0.1", "user:pw@localhost", "0"],
)  # fmt: skip
def test_no_spelling_reaches_this_machine(server: Script, host: str) -> None:
    error = get(f"http://{host}:{port_of(server)}/")
    assert isinstance(error, Forbidden)
    assert server.requests == []
    for effect in ("read_only", "idempotent", "external"):
        told = failure_of(error, effect)  # type: ignore[arg-type]
        assert (told.kind, told.code) == ("invalid_arguments", "forbidden_address")
        assert "pw" not in told.message


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1:9092/_x", "ftp://h/", "//127.0.0.1/"]
)
def test_other_schemes_are_refused(url: str) -> None:
    error = get(url)
    assert isinstance(error, InvalidArguments)
    assert error.code == "bad_url"


def test_what_the_author_names_is_called(server: Script) -> None:
    for options in (
        {"allow": ["127.0.0.1"]},
        {"allow": [f"127.0.0.1:{port_of(server)}"]},
        {"allow": ["127.0.0.0/8"]},
        {"base_url": server.url},
    ):
        assert getattr(get(server.url, **options), "status_code", None) == 200
    other = f"http://localhost:{port_of(server)}"
    assert isinstance(get(other, base_url=server.url), Forbidden)


def test_a_name_that_changes_its_answer_is_judged_by_the_address_it_is_called_at(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is public, every later one is not: only one is asked for, and that is called."""
    answers = iter(["192.0.2.1", "127.0.0.1"])
    called: list[str] = []

    async def found(host: str, port: int) -> list[str]:
        return [next(answers)]

    async def connect(self: Any, host: str, *rest: Any) -> Any:
        called.append(host)
        raise guarded.httpcore.ConnectError("nobody there")

    monkeypatch.setattr(guarded, "_found", found)
    monkeypatch.setattr(guarded.httpcore.AnyIOBackend, "connect_tcp", connect)
    error = get("http://flip.example/", allow=["192.0.2.0/24"])
    assert isinstance(error, httpx.ConnectError)
    assert called == ["192.0.2.1"]
    assert isinstance(get("http://flip.example/", allow=["192.0.2.0/24"]), Forbidden)
    assert called == ["192.0.2.1"]


def test_a_redirect_is_judged_as_the_first_url_is(server: Script) -> None:
    with web_server() as outside:
        outside.say(302, "", {"Location": f"http://localhost:{port_of(server)}/"})
        named = {"allow": ["127.0.0.1"]}
        assert isinstance(get(outside.url, **named), Forbidden)
        post = asked(lambda c: c.post(outside.url, json={}, follow_redirects=True), **named)
        # It was asked to write, and nobody knows whether it did.
        assert isinstance(post, OutcomeUnknown)
        assert failure_of(post, "external").kind == "unknown"
        plain = asked(lambda c: c.get(outside.url), **named)
        assert getattr(plain, "status_code", None) == 302  # httpx follows only where it is told to
        outside.answers = [(302, {"Location": "file:///etc/passwd"}, b"")]
        assert isinstance(get(outside.url, **named), InvalidArguments)
    assert server.requests == []


def test_a_proxy_is_asked_for_no_address_of_the_inside(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    assert getattr(get("http://1.1.1.1/x"), "status_code", None) == 200
    assert len(server.requests) == 1
    assert isinstance(get("http://169.254.169.254/latest/meta-data/"), Forbidden)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert isinstance(get(server.url), Forbidden)
    assert len(server.requests) == 1
