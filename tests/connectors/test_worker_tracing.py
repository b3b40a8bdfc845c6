"""A worker's spans: children of their actions', by the GenAI conventions, without payload."""

from __future__ import annotations

from typing import Any

import pytest
from perdure.connectors.answers import HEADERS
from perdure.connectors.errors import BusinessError
from perdure.connectors.models.provider import ModelContext, Reply
from perdure.connectors.tool import tool
from perdure.schemas.records import Usage
from perdure.streams.runtime.spans import Span, span_id

from .world import World, command

CANARY = "canary-9e21"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode()),)


def spans(w: World) -> list[Span]:
    found: list[Span] = []
    w.worker._spans = found.append
    return found


@tool("t", effect="read_only")
async def t(secret: str, fails: bool = False) -> str:
    if fails:
        raise BusinessError(secret)
    return secret


def test_a_tools_call_is_a_child_of_its_action() -> None:
    w = World([t])
    try:
        found = spans(w)
        w.take(command(arguments={"secret": CANARY}), headers=TRACED)
        w.until(lambda: len(w.results()) == 1)
        failing = command(arguments={"secret": CANARY, "fails": True}, action_id="r/2", attempt=3)
        w.take(failing, headers=TRACED)
        w.until(lambda: len(w.results()) == 2)
    finally:
        w.close()
    good, bad = found
    assert (good.trace_id, good.name) == (TRACE, "execute_tool t")
    assert (good.span_id, good.parent) == (span_id("r/1/1"), span_id("r/1"))
    assert (good.started_at, good.error) == (1_000_000, None)
    assert good.attributes["gen_ai.tool.call.id"] == "r/1"
    assert (bad.span_id, bad.parent, bad.error) == (span_id("r/2/3"), span_id("r/2"), "business")
    assert bad.attributes["error.type"] == "business"
    assert CANARY not in repr(found)


def test_a_models_call_has_its_model_and_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    class Paid:
        async def complete(self, request: Any, context: ModelContext) -> Reply:
            return Reply(CANARY, [], "stop", "m-2026", usage=Usage(input_tokens=7, output_tokens=3))

    w = World(models=True)
    try:
        found = spans(w)
        assert w.worker._models is not None
        monkeypatch.setattr(w.worker._models, "get", lambda name: Paid())
        request = {
            "model": {"provider": "paid", "name": "m", "api_key_env": CANARY},
            "messages": [{"role": "user", "content": CANARY}],
            "seed": 7,
            "max_output_tokens": 100,
        }
        w.take(command("m", request=request, arguments=None), headers=TRACED)
        w.until(lambda: len(w.results()) == 1)
    finally:
        w.close()
    (span,) = found
    assert (span.name, span.outgoing) == ("chat m", True)
    told = {name: value for name, value in span.attributes.items() if name.startswith("gen_ai.")}
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "paid",
        "gen_ai.request.model": "m",
        "gen_ai.request.seed": 7,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    assert CANARY not in repr(found)


@pytest.mark.parametrize("headers", [HEADERS, ((TRACED[0][0], TRACED[0][1][:-1] + b"0"),)])
def test_a_run_that_is_not_traced_has_none(headers: Any) -> None:
    w = World([t])
    try:
        found = spans(w)
        w.take(command(arguments={"secret": CANARY}), headers=headers)
        w.until(lambda: len(w.results()) == 1)
    finally:
        w.close()
    assert found == []
