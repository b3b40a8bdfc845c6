from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from perdure.connectors.models.function import PythonFunction
from perdure.connectors.models.provider import ModelContext, ModelError, Reply, object_of
from perdure.connectors.models.scripted import Scripted

from .world import World, command

Make = Callable[..., World]


async def _in_thread(work: Callable[[], Any]) -> Any:
    return work()


CONTEXT = ModelContext("r/1", 5.0, _in_thread)


def _ask(provider: Any, request: dict[str, Any]) -> Reply:
    reply: Reply = asyncio.run(provider.complete(request, CONTEXT))
    return reply


def _request(**more: Any) -> dict[str, Any]:
    return {
        "model": {"provider": "scripted", "name": "s"},
        "messages": [],
        "tools": [],
        "turn": 2,
        **more,
    }


def test_scripted_reply_with_cel_over_input_and_last() -> None:
    reply = _ask(
        Scripted(),
        _request(
            input={"order_id": "o-1"},
            messages=[
                {"role": "tool", "tool_call_id": "a", "content": '{"total": 1}'},
                {"role": "tool", "tool_call_id": "b", "content": '{"total": 7}'},
            ],
            reply={
                "content": "on it",
                "tool_calls": [
                    {
                        "name": "payments.refund",
                        "arguments": {
                            "order_id": {"$": "input.order_id"},
                            "lines": [{"amount": {"$": "last.total * 2"}}],
                            "other": {"$": 1},
                        },
                    }
                ],
            },
        ),
    )
    assert reply.as_result() == {
        "content": "on it",
        "tool_calls": [
            {
                "id": "call_2_0",
                "name": "payments.refund",
                "arguments": {"order_id": "o-1", "lines": [{"amount": 14}], "other": {"$": 1}},
            }
        ],
        "finish_reason": "tool_calls",
        "model": "s",
        "notes": [],
    }


def test_scripted_content_may_be_computed_and_the_last_result_a_text() -> None:
    reply = _ask(
        Scripted(),
        _request(
            messages=[{"role": "tool", "content": "not JSON"}],
            reply={"content": {"$": "'it says ' + last"}, "usage": {"input_tokens": 3}},
        ),
    )
    assert (reply.content, reply.finish_reason) == ("it says not JSON", "stop")
    assert reply.usage is not None
    assert reply.usage.input_tokens == 3


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (None, "script_ended", "the script has no reply 2"),
        ("text", "script_invalid", "reply 2 must be an object"),
        ({"content": {"$": "last.x"}}, "script_invalid", "'last.x'"),
        ({"content": {"$": "nobody"}}, "script_invalid", "'nobody'"),
        ({"content": {"$": "1 +"}}, "script_invalid", "'1 +'"),
        ({"content": "x", "tool_calls": 3}, "script_invalid", "must be a list of objects"),
        ({"tool_calls": ["orders.lookup"]}, "script_invalid", "must be a list of objects"),
    ],
)
def test_scripts_that_are_wrong(reply: Any, code: str, says: str) -> None:
    with pytest.raises(ModelError) as raised:
        _ask(Scripted(), _request(reply=reply))
    assert (raised.value.failure.kind, raised.value.failure.code) == ("model_invalid", code)
    assert says in raised.value.failure.message


@pytest.mark.parametrize(
    ("raw", "is_object", "left"),
    [
        ('{"a": 1}', {"a": 1}, None),
        ("", {}, None),
        ("null", {}, None),
        (None, {}, None),
        ({"a": 1}, {"a": 1}, None),
        ("[1]", None, "[1]"),
        ('{"a": 1', None, '{"a": 1'),
        ('{"a": 1, "a": 2}', None, '{"a": 1, "a": 2}'),
        ('{"a": NaN}', None, '{"a": NaN}'),
        (7, None, "7"),
    ],
)
def test_arguments_are_an_object_or_kept_as_they_came(raw: Any, is_object: Any, left: Any) -> None:
    assert object_of(raw) == (is_object, left)


def plainly(messages: list[Any], tools: list[Any]) -> str:
    return f"{len(messages)} messages in {threading.current_thread().name[:5]}"


async def calling(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    return {"tool_calls": [{"name": tools[0]["name"], "arguments": '{"a": 1}'}]}


def silent(messages: list[Any], tools: list[Any]) -> None:
    return None


def strange(messages: list[Any], tools: list[Any]) -> int:
    return 3


def broken(messages: list[Any], tools: list[Any]) -> str:
    raise RuntimeError("no weights")


def miscounting(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    return {"content": "x", "tool_calls": 2}


def _function(name: str, **more: Any) -> Reply:
    model = {"provider": "python", "function": f"{__name__}:{name}"}
    return _ask(
        PythonFunction(), _request(model=model, messages=[1], tools=[{"name": "x.y"}], **more)
    )


def test_python_functions() -> None:
    assert (_function("plainly").content or "").startswith("1 messages")
    call = _function("calling").tool_calls[0]
    assert (call.id, call.name, call.arguments) == (None, "x.y", {"a": 1})


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("silent", "model_invalid", "empty_reply"),
        ("strange", "model_invalid", "reply_shape"),
        ("miscounting", "model_invalid", "reply_shape"),
        ("broken", "model_unavailable", "function_raised"),
        ("missing", "model_unavailable", "function_missing"),
    ],
)
def test_python_functions_that_are_wrong(name: str, kind: str, code: str) -> None:
    with pytest.raises(ModelError) as raised:
        _function(name)
    assert (raised.value.failure.kind, raised.value.failure.code) == (kind, code)


# --- through the worker ------------------------------------------------------------------------


def test_model_call_is_answered_on_the_fast_path(world: Make) -> None:
    w = world(models=True)
    answer = w.answer(
        command("s", request=_request(reply={"content": "hi", "usage": {"output_tokens": 2}}))
    )
    assert answer["status"] == "succeeded"
    assert answer["result"]["content"] == "hi"
    assert answer["usage"] == {"output_tokens": 2}
    assert w.store == {}


def test_model_call_that_fails(world: Make) -> None:
    error = world(models=True).answer(command("s", request=_request(reply=None)))["error"]
    assert (error["kind"], error["code"]) == ("model_invalid", "script_ended")


def test_unknown_provider_and_bad_request(world: Make) -> None:
    error = world(models=True).answer(command("s", request={"model": {"provider": "oracle"}}))[
        "error"
    ]
    assert (error["kind"], error["code"]) == ("model_unavailable", "no_such_provider")
    error = world(models=True).answer(command("s", request={"messages": []}))["error"]
    assert (error["kind"], error["code"]) == ("model_invalid", "bad_request")


async def slow(messages: list[Any], tools: list[Any]) -> str:
    await asyncio.sleep(60)
    return ""


def test_model_over_time(world: Make) -> None:
    model = {"provider": "python", "function": f"{__name__}:slow"}
    error = world(models=True).answer(command("s", request={"model": model}, timeout_seconds=0.01))[
        "error"
    ]
    assert (error["kind"], error["code"]) == ("transient", "read_timeout")


def test_worker_without_models(world: Make) -> None:
    error = world().answer(command("s", request=_request()))["error"]
    assert (error["kind"], error["code"]) == ("unavailable", "NO_SUCH_TOOL")
