"""What is sent to the API as a body: too large, cut off, wrongly encoded."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from perdure.schemas.canonical import parse
from perdure.streams.views.api import requests

from .test_api import error
from .world import ANN, World, access, client


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with World(access(tmp_path_factory.mktemp("tokens") / "tokens.jsonl")).served() as made:
        yield made


@pytest.fixture
def ann(address: str) -> Iterator[httpx.Client]:
    with client(address) as made:
        yield made


def connection(address: str, headers: bytes, sent: bytes) -> socket.socket:
    """A submit of which the head and a part of the body are sent."""
    host, port = address.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), timeout=10)
    made.sendall(
        b"POST /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer " + ANN.encode() + b"\r\n" + headers + b"\r\n" + sent
    )
    return made


def test_too_large_a_body_is_refused(ann: httpx.Client) -> None:
    body = b'{"agent":"a","input":"' + b"x" * 4_000_000 + b'"}'
    headers = {"Content-Type": "application/json"}
    assert error(ann.post("/api/tasks", content=body, headers=headers), 413)
    chunked = ann.post("/api/tasks", content=iter([body[:100], body[100:]]), headers=headers)
    assert error(chunked, 413)


@pytest.mark.parametrize("sent", [b"", b'{"agent":'], ids=["nothing", "a part"])
def test_a_caller_that_leaves_in_the_middle_is_no_error_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    world = World(access(tmp_path / "tokens.jsonl"))
    with world.served() as address:
        connection(address, b"Content-Length: 500\r\n", sent).close()
        with client(address) as me:  # what comes after it is answered after it
            assert me.get("/api/health").status_code == 200
    assert world.door.tasks == []
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "headers", [b"Content-Encoding: gzip\r\n", b"Content-Encoding: deflate\r\n"]
)
def test_a_body_not_encoded_as_it_says_is_the_callers_error(
    address: str, caplog: pytest.LogCaptureFixture, headers: bytes
) -> None:
    with connection(address, headers + b"Content-Length: 20\r\n", b"x" * 20) as made:
        answer = made.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"bad_encoding" in answer
    assert [each for each in caplog.records if each.name == "perdure.views"] == []


def test_a_stranger_cannot_keep_the_loop_busy(
    ann: httpx.Client, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(address, None) as stranger:
        found = stranger.post("/api/login", json={"token": "x" * 5_000})
        assert "4000 bytes" in error(found, 413)
    parsed: list[str] = []

    def noting(raw: bytes) -> Any:
        parsed.append(threading.current_thread().name)
        return parse(raw)

    monkeypatch.setattr(requests, "parse", noting)
    for size in (10, 100_000):
        found = ann.post("/api/runs/r1/control", json={"by": "x" * size})
        assert "leave by out" in error(found, 400)
    small, large = parsed
    assert not small.startswith("bodies")
    assert large.startswith("bodies")
