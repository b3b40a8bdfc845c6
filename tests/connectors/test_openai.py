"""A test per row of the table in connectors/models/openai.py, through the official client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from perdure.connectors.models.openai import OpenAI, of_error
from perdure.connectors.models.provider import ModelContext, ModelError, Reply

from .servers import Script, free_port, line_server, web_server


async def _in_thread(work: Any) -> Any:
    return work()


@pytest.fixture
def server() -> Iterator[Script]:
    with web_server() as script:
        yield script


def _request(url: str, **more: Any) -> dict[str, Any]:
    return {
        "model": {"provider": "openai", "name": "m-1", "base_url": url},
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [
            {"name": "orders.lookup", "description": "Looks.", "parameters": {"type": "object"}}
        ],
        "seed": 7,
        "temperature": 0,
        "max_output_tokens": None,
        "response_schema": None,
        "turn": 0,
        **more,
    }


def _ask(request: dict[str, Any], seconds: float = 5.0) -> Reply:
    async def ask() -> Reply:
        provider = OpenAI()
        try:
            return await provider.complete(request, ModelContext("r/1", seconds, _in_thread))
        finally:
            await provider.close()

    return asyncio.run(ask())


def _fails(request: dict[str, Any], seconds: float = 5.0) -> tuple[str, str]:
    with pytest.raises(ModelError) as raised:
        _ask(request, seconds)
    return raised.value.failure.kind, raised.value.failure.code


def _said(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
        **more,
    }


def test_text(server: Script) -> None:
    server.say(200, _said({"content": "hello"}, model="m-1-2026"))
    reply = _ask(_request(server.url))
    assert (reply.content, reply.finish_reason, reply.model) == ("hello", "stop", "m-1")
    assert reply.notes == ["answered by m-1-2026"]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 5)


def test_what_is_sent(server: Script) -> None:
    server.say(200, _said({"content": "hello"}))
    _ask(
        _request(
            server.url,
            max_output_tokens=99,
            response_schema={"type": "object"},
            messages=[
                {"role": "system", "content": {"any": "JSON"}},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "name": "orders.lookup", "arguments": {"id": "ö"}},
                        {"id": "c2", "name": "orders.lookup", "arguments": None, "raw": "{broken"},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": {"total": 3}},
                {"role": "tool", "tool_call_id": "c2", "content": None},
            ],
        )
    )
    sent = server.requests[0]
    assert (sent["model"], sent["seed"], sent["temperature"], sent["max_tokens"]) == (
        "m-1",
        7,
        0,
        99,
    )
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert sent["tools"][0]["function"]["name"] == "orders__lookup"
    assert sent["messages"] == [
        {"role": "system", "content": '{"any":"JSON"}'},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "orders__lookup", "arguments": '{"id": "ö"}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "orders__lookup", "arguments": "{broken"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"total":3}'},
        {"role": "tool", "tool_call_id": "c2", "content": "null"},
    ]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Read_Note ", "Read_Note_"),
        ("", "unknown"),
        ("notiz.löschen", "notiz__l_schen"),
        ("x" * 99, "x" * 64),
    ],
)
def test_a_made_up_name_in_the_history_is_sent_as_one_that_is_taken(
    server: Script, name: str, sent: str
) -> None:
    server.say(200, _said({"content": "hello"}))
    call = {"id": "c1", "name": name, "arguments": {}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "there is no such tool"}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    _ask(_request(server.url, messages=messages))
    made = server.requests[0]["messages"][0]["tool_calls"][0]
    assert made["function"]["name"] == sent


def test_tool_calls_are_normalised(server: Script) -> None:
    calls = [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "orders__lookup", "arguments": '{"id": 1}'},
        },
        {"id": "b", "type": "function", "function": {"name": "orders__lookup", "arguments": ""}},
        {"type": "function", "function": {"name": "no__such", "arguments": "[1]"}},
    ]
    server.say(200, _said({"content": None, "tool_calls": calls}, "tool_calls"))
    assert _ask(_request(server.url)).as_result()["tool_calls"] == [
        {"id": "a", "name": "orders.lookup", "arguments": {"id": 1}},
        {"id": "b", "name": "orders.lookup", "arguments": {}},
        {"id": None, "name": "no.such", "arguments": None, "raw": "[1]"},
    ]


@pytest.mark.parametrize("option", ["seed", "temperature"])
def test_a_400_that_names_an_option_is_repeated_without_it(server: Script, option: str) -> None:
    server.say(400, {"error": {"message": f"Unsupported parameter: '{option}'", "param": option}})
    server.say(200, _said({"content": "hello"}))
    reply = _ask(_request(server.url))
    assert reply.notes == [f"the endpoint does not take `{option}`: sent without it"]
    assert option in server.requests[0]
    assert option not in server.requests[1]


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (408, {}, "transient", "http_408"),
        (409, {}, "transient", "http_409"),
        (425, {}, "transient", "http_425"),
        (429, {}, "transient", "rate_limited"),
        (500, {}, "transient", "http_500"),
        (503, "busy", "transient", "http_503"),
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "pay"}},
            "model_unavailable",
            "insufficient_quota",
        ),
        (402, {}, "model_unavailable", "http_402"),
        (401, {}, "permission", "http_401"),
        (403, {}, "permission", "http_403"),
        (404, {"error": {"message": "no such model"}}, "model_unavailable", "http_404"),
        (400, {"error": {"message": "bad tools"}}, "model_unavailable", "http_400"),
        (422, {}, "model_unavailable", "http_422"),
        (
            400,
            {"error": {"code": "context_length_exceeded", "message": "x"}},
            "context_overflow",
            "context_length",
        ),
        (413, {"error": {"message": "prompt is too long"}}, "context_overflow", "context_length"),
        (
            400,
            {"error": {"code": "content_filter", "message": "x"}},
            "content_filter",
            "content_filter",
        ),
        (301, {}, "model_unavailable", "http_301"),
        (200, {"error": {"message": "overloaded"}}, "model_invalid", "error_body"),
        (200, "<html>", "model_invalid", "bad_body"),
        (200, [], "model_invalid", "bad_body"),
        (200, {"choices": None}, "model_invalid", "no_choices"),
        (200, {"choices": []}, "model_invalid", "no_choices"),
        (200, {"choices": [{"finish_reason": "stop"}]}, "model_invalid", "no_choices"),
        (200, _said({"content": "x", "tool_calls": 3}), "model_invalid", "bad_body"),
        (200, _said({"content": None, "tool_calls": True}), "model_invalid", "bad_body"),
        (200, _said({"content": "x", "tool_calls": {"id": "1"}}), "model_invalid", "bad_body"),
        (200, _said({"content": " "}), "model_invalid", "empty_reply"),
        (200, _said({"content": None}, "length"), "model_invalid", "empty_reply"),
        (200, _said({"content": "x"}, "content_filter"), "content_filter", "content_filter"),
        (200, _said({"content": None, "refusal": "no"}), "content_filter", "refusal"),
    ],
)
def test_answers(server: Script, status: int, body: Any, kind: str, code: str) -> None:
    server.say(status, body)
    assert _fails(_request(server.url)) == (kind, code)
    assert len(server.requests) == 1  # retries are the core's


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<html>bad gateway</html>", "<html>bad gateway</html>"),
        ("", "it is empty"),
        ("[1]", "[1]"),
        ({"choices": [], "note": "no capacity"}, "no capacity"),
        ({"error": {"message": "overloaded", "code": 529}}, "overloaded (code 529)"),
        ({"error": {"type": "busy"}}, '{"type":"busy"}'),
        ({"error": "out of order"}, "out of order"),
        (_said({"content": "I cannot."}, "content_filter"), "I cannot."),
        ("x" * 9000, "x" * 500 + "..."),
    ],
)
def test_what_the_provider_said_is_kept_shortly(server: Script, body: Any, words: str) -> None:
    server.say(200, body)
    with pytest.raises(ModelError) as raised:
        _ask(_request(server.url))
    assert words in raised.value.failure.message
    assert len(raised.value.failure.message) < 700


def test_retry_after_is_handed_on(server: Script) -> None:
    server.say(429, {}, {"Retry-After": "9"})
    with pytest.raises(ModelError) as raised:
        _ask(_request(server.url))
    assert raised.value.failure.retry_after_seconds == 9


def test_usage_of_an_empty_reply_counts(server: Script) -> None:
    server.say(200, _said({"content": ""}))
    with pytest.raises(ModelError) as raised:
        _ask(_request(server.url))
    assert raised.value.usage is not None
    assert raised.value.usage.input_tokens == 11


def test_a_reply_cut_by_length_is_handed_on(server: Script) -> None:
    server.say(200, _said({"content": "half a"}, "length"))
    assert _ask(_request(server.url)).finish_reason == "length"


def test_network() -> None:
    assert _fails(_request(f"http://127.0.0.1:{free_port()}")) == ("transient", "connect_refused")
    assert _fails(_request("http://no-such-host.invalid")) == ("transient", "dns_failed")
    with line_server(None) as port:
        assert _fails(_request(f"http://127.0.0.1:{port}")) == ("transient", "connection_lost")
    with line_server() as port:
        assert _fails(_request(f"http://127.0.0.1:{port}"), 0.5) == ("transient", "read_timeout")
    with line_server(greet=b"HTTP/1.1 400 no\r\n\r\n") as port:
        assert _fails(_request(f"https://127.0.0.1:{port}")) == ("transient", "tls_failed")


def test_connect_timeout() -> None:
    import httpx2

    inner = httpx2.ConnectTimeout("slow")
    error = openai.APITimeoutError(httpx2.Request("GET", "http://a"))
    error.__cause__ = inner
    assert of_error(error).failure.code == "connect_timeout"


def test_no_key_for_the_real_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    request = _request("")
    assert _fails(request) == ("permission", "no_api_key")
