"""The deployment all end-to-end cases share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from . import inputs
from .deployment import CALLS, DEMO, TOOLS, Deployment, agent_of
from .model_server import ModelServer, model_server

QUIRKS = [name for case in ("Q01", "Q02", "Q03", "Q04", "Q05", "Q07") for name in inputs.ids(case)]
HOSTILE = inputs.ids("Z03")
MODEL_CASES = ["M03.2", "M05.1", "K02.1", "R04.1", "R09.1", "L01.2", *QUIRKS, *HOSTILE]
STOPS = {"steps": 6, "tokens": 1_000_000, "then": "stop"}
UNLIKE = {  # by agent: in what it differs from the others that a model plays
    **{name: {"model": {"max_output_tokens": 300}} for name in ("q03.1", "q03.2", "cut")},
    "q07.1": {"budget": {**STOPS, "steps": 20}},
    "q07.2": {"budget": STOPS},
    "repeats": {"budget": STOPS, "handover_after": 3},
    "turns": {"budget": STOPS, "handover_after": 3},
}
HURRIED = {"kind": "action", "tool": "pay", "within_seconds": 3, "on_timeout": "reject"}
SCRIPTS = 50
"""Further agents `script-0`, ...: a test takes one and gives its model a script of its own."""


@pytest.fixture(scope="session")
def deployment(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with model_server() as model:
        prefix = f"t-{uuid.uuid4().hex[:8]}."
        made = Deployment(tmp_path_factory.mktemp("cases"), broker, prefix, model)
        made.create_topics()
        for task in inputs.produced("T06.2"):  # before anything has ever started
            made.put("agent.tasks", **task)
        made.start(_agents(model), CASES_REDIRECTOR=f"127.0.0.1:{model.port}")
        yield made
        assert made.stop() == 0
    assert model.refused == [], "a model was sent what a strict one refuses"


@pytest.fixture(scope="session")
def script(deployment: Deployment) -> Any:
    """``script(replies, in_order=False) -> name of an agent whose model plays them``."""
    return lambda replies, in_order=False: _take(deployment, replies, in_order)


def _take(deployment: Deployment, replies: list[dict[str, Any]], in_order: bool) -> str:
    name = f"script-{next(_NUMBERS)}"
    deployment.model.play(name, replies, in_order)
    return name


_NUMBERS = iter(range(SCRIPTS))


def _agents(model: ModelServer) -> dict[str, Any]:
    agents: dict[str, Any] = {
        "demo": {
            "tools": TOOLS,
            "model": {"provider": "scripted", "replies": DEMO},
            "window": {"max_tokens": 4_000_000},  # some of its tasks have megabytes
        },
        "planner": {"tools": TOOLS, "retry": {"attempts": 2, "first_wait_seconds": 0.1}},
        "hurried": {"tools": ["pay"], "approvals": [HURRIED]},
        "caller": {"tools": CALLS, "retry": {"attempts": 2, "first_wait_seconds": 0.1}},
    }
    for name in [*map(agent_of, MODEL_CASES), *UNLIKE]:
        agents[name] = _played(model, name)
    for case in MODEL_CASES:
        if "replies" in inputs.of(case):
            redirector = f"http://127.0.0.1:{model.port}/to?"
            replies = inputs.written(inputs.replies(case), **{"$REDIRECTOR->": redirector})
            model.play(agent_of(case), replies)
        elif "replies_forever" in inputs.of(case):
            model.play_forever(agent_of(case), inputs.of(case)["replies_forever"])
    for number in range(SCRIPTS):
        agents[f"script-{number}"] = _played(model, f"script-{number}")
    return agents


def _played(model: ModelServer, name: str) -> dict[str, Any]:
    more = dict(UNLIKE.get(name, {}))
    provider = {"provider": "openai", "name": "m", "base_url": model.url(name)}
    provider |= more.pop("model", {})
    made = {"tools": TOOLS, "model": provider, "budget": {"tokens": 1_000_000}}
    return {**made, "handover_after": 1000, **more}  # scripts may well repeat a call
