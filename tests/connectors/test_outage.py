"""The table of `connectors/outage.py`, a test for each row, by real exceptions."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from typing import Any

import httpx
import pytest
from perdure.connectors import BusinessError, OutcomeUnknown, TransientError
from perdure.connectors.errors import PermissionDenied, ResultError
from perdure.connectors.mapping import failure_of
from perdure.connectors.models.provider import ModelError
from perdure.connectors.outage import Said, said_by
from perdure.connectors.target import host_of, target_of

from .world import command

UNREACHED, LOST, DOWN, ANSWERED, NOTHING = Said


def status(code: int, headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://shop.example:81/x")
    answer = httpx.Response(code, request=request, headers=headers)
    return httpx.HTTPStatusError("no", request=request, response=answer)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError("no"), UNREACHED),
        (socket.gaierror("no"), UNREACHED),
        (ssl.SSLCertVerificationError("no"), UNREACHED),
        (httpx.ConnectTimeout("no"), UNREACHED),
        (httpx.ConnectError("no"), UNREACHED),
        (TransientError("before DATA", code="connection_lost"), UNREACHED),
        (TransientError("my own", code="dns_failed"), UNREACHED),
        (TimeoutError(), LOST),
        (httpx.ReadTimeout("no"), LOST),
        (httpx.WriteTimeout("no"), LOST),
        (httpx.ReadError("no"), LOST),
        (ConnectionResetError("no"), LOST),
        (OutcomeUnknown("mine", code="read_timeout"), LOST),
        (status(500), DOWN),
        (status(503), DOWN),
        (status(503, {"Retry-After": "9"}), DOWN),
        (status(429, {"Retry-After": "9"}), DOWN),
        (smtplib.SMTPResponseException(421, b"closing"), DOWN),
        (status(400), ANSWERED),
        (status(403), ANSWERED),
        (status(404), ANSWERED),
        (status(409), ANSWERED),
        (BusinessError("no money"), ANSWERED),
        (PermissionDenied("no"), ANSWERED),
        (ResultError("$.result: bytes", "bad_result"), ANSWERED),
        (smtplib.SMTPResponseException(550, b"no such user"), ANSWERED),
        (status(429), NOTHING),
        (TransientError("later"), NOTHING),
        (OutcomeUnknown("who knows"), NOTHING),
        (KeyError("a bug"), NOTHING),
        (asyncio.CancelledError(), NOTHING),
    ],
)
@pytest.mark.parametrize("effect", ["read_only", "idempotent", "external"])
def test_tools(error: Exception, said: Said, effect: Any) -> None:
    assert said_by(failure_of(error, effect), error) is said


def raised(inner: Exception) -> ModelError:
    made = ModelError("model_unavailable", "function_raised", "mine")
    made.__cause__ = inner
    return made


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("transient", "connect_refused", ""), UNREACHED),
        (ModelError("transient", "read_timeout", ""), LOST),
        (ModelError("transient", "http_502", ""), DOWN),
        (ModelError("transient", "rate_limited", "", retry_after_seconds=3.0), DOWN),
        (ModelError("transient", "rate_limited", ""), NOTHING),
        (ModelError("model_unavailable", "insufficient_quota", ""), DOWN),
        (ModelError("model_unavailable", "http_402", ""), DOWN),
        (ModelError("model_unavailable", "http_404", ""), ANSWERED),
        (ModelError("model_invalid", "empty_reply", ""), ANSWERED),
        (ModelError("content_filter", "refusal", ""), ANSWERED),
        (ModelError("context_overflow", "context_length", ""), ANSWERED),
        (ModelError("permission", "http_401", ""), ANSWERED),
        (ModelError("permission", "no_api_key", ""), NOTHING),
        (ModelError("model_invalid", "script_ended", ""), NOTHING),
        (ModelError("model_unavailable", "no_such_provider", ""), NOTHING),
        (raised(ConnectionRefusedError("no")), UNREACHED),
        (raised(ZeroDivisionError("my own")), NOTHING),
    ],
)
def test_models(error: ModelError, said: Said) -> None:
    assert said_by(error.failure, error) is said


# --- whom a call goes to ------------------------------------------------------------------------


def model(**spec: Any) -> Any:
    return command("gpt", request={"model": spec})


@pytest.mark.parametrize(
    ("of", "target"),
    [
        (command("orders.lookup"), "orders.lookup"),
        (model(provider="openai", name="gpt-4.1-mini"), "openai gpt-4.1-mini"),
        (
            model(provider="openai", name="m", base_url="http://u:secret@127.0.0.1:9000/v1"),
            "openai m 127.0.0.1:9000",
        ),
        (model(provider="openai", name="m", base_url="https://llm.example/v1"), "openai m llm.example"),
        (model(provider="openai", name="m", base_url="http://[bad"), "openai m http://[bad"),
        (model(provider="scripted"), "scripted scripted"),
        (command("gpt", request={"$blob": "x"}), " "),
    ],
)  # fmt: skip
def test_targets(of: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert target_of(of) == target


def test_the_endpoint_of_the_environment_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://10.0.0.9:1/v1")
    assert target_of(model(provider="openai", name="m")) == "openai m 10.0.0.9:1"
    assert host_of(None, model(provider="openai", name="m")) == "10.0.0.9"
    assert target_of(model(provider="scripted", name="m")) == "scripted m"


def test_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    tool = command("orders.lookup")
    request = httpx.Request("GET", "http://shop.example:81/x")
    wrapped = TransientError("no")
    wrapped.__cause__ = httpx.ConnectError("no", request=request)
    assert host_of(httpx.ConnectError("no", request=request), tool) == "shop.example"
    assert host_of(wrapped, tool) == "shop.example"
    assert host_of(httpx.ConnectError("no"), tool) == "orders.lookup"
    assert host_of(TransientError("no", host="mail.example"), tool) == "mail.example"
    assert host_of(ConnectionRefusedError("no"), tool) == "orders.lookup"
    assert host_of(None, model(provider="openai", name="m")) == "api.openai.com"
    assert host_of(None, model(provider="openai", base_url="http://[::1]:9/v1")) == "::1"
