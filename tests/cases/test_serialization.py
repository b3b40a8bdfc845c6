"""Cases of the kind "serialization": S01, S02."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import WATCHED, Deployment
from .inputs import Sent
from .scripts import call

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

TOLD = {  # by id: what the model is told, in part
    "S01.1": "null",
    "S01.2": "$.result: bytes has no JSON form",
    "S01.3": "[1,2]",
    "S01.4": '"when":"2024-01-01T00:00:00"',
    "S01.5": "$.result.a.b: object has no JSON form",
}


def result(deployment: Deployment, script: Any, run_id: str, python: str) -> str:
    """What the model is told of a call that returned this."""
    agent = script(call("odd", {"python": python}))
    deployment.task(agent, run_id)
    assert deployment.outcome(run_id)["status"] == "done"
    messages = deployment.model.requests(agent)[1]["messages"]
    assert all(
        isinstance(message.get("content"), str)
        for message in messages
        if message["role"] != "assistant"
    )
    return str(messages[-1]["content"])


@pytest.mark.parametrize("name", inputs.ids("S01"))
def test_s01_a_result_becomes_json_or_an_error_that_names_its_place(
    deployment: Deployment, script: Any, name: str
) -> None:
    run_id = inputs.task(name)["task_id"]
    told = result(deployment, script, run_id, inputs.of(name)["returns_py"])
    assert TOLD[name] in told
    check_settled(deployment, run_id, "no JSON form" in told)


def check_settled(deployment: Deployment, run_id: str, refused: bool) -> None:
    outcome = deployment.outcome(run_id)
    (record,) = outcome["not_completed" if refused else "completed"]
    assert record["tool"] == "odd"
    assert (record["error"] is not None) == refused
    assert record["attempts"] == 1


@pytest.mark.parametrize(
    ("name", "python", "part"),
    [
        ("path", "__import__('pathlib').Path('/a/b')", '"/a/b"'),
        ("generator", "{'rows': (n for n in range(3))}", "$.result.rows: generator"),
        ("function", "[1, [len]]", "$.result[1][0]: builtin_function"),
        ("key", "{(1, 2): 3}", "$.result: the key (1, 2) is no text"),
        ("half", "{'a': '\\ud800'}", "$.result.a: a text with half a character"),
        ("itself", "(lambda x: (x.append(x), x)[1])([])", "nested deeper than 90"),
        ("class", "{'a': int}", "$.result.a: type has no JSON form"),
        ("decimal", "{'a': __import__('decimal').Decimal('1.10')}", '"a":"1.10"'),
    ],
)
def test_s01_other_things_a_tool_returns(
    deployment: Deployment, script: Any, name: str, python: str, part: str
) -> None:
    assert part in result(deployment, script, f"s01-{name}", python)


NOT_NUMBERS = [
    ("float('nan')", "$.result: nan"),
    ("{'a': [1.0, float('inf')]}", "$.result.a[1]: inf"),
    ("{'min': -float('inf')}", "$.result.min: -inf"),
    ("{float('nan'): 1}", "$.result: the key nan"),
]


@pytest.mark.parametrize(("python", "part"), NOT_NUMBERS)
def test_s02_a_tools_nan_is_an_error_with_its_place(
    deployment: Deployment, script: Any, python: str, part: str
) -> None:
    number = NOT_NUMBERS.index((python, part))
    told = result(deployment, script, f"s02-t{number}", python)
    assert part in told
    outcome = deployment.outcome(f"s02-t{number}")
    assert [record["tool"] for record in outcome["not_completed"]] == ["odd"]


def waiting_call(deployment: Deployment, run_id: str) -> dict[str, Any]:
    """A run with one call under way; the call's command."""
    plan = [{"id": "a", "tool": "slow", "arguments": {"s": 0.5}}]
    deployment.task("planner", run_id, plan=plan)
    (found,) = deployment.topics.wait(
        "agent.commands.tools", lambda seen: seen.key == run_id, run_id
    )
    return found.value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, None), (1, '"result":NaN'), (2, '"result":[1e999]'), (3, '"usage":{"cost":NaN}')],
)
def test_s02_a_result_that_is_no_json_is_buried_and_the_true_one_counts(
    deployment: Deployment, number: int, text: str | None
) -> None:
    run_id = f"s02-r{number}"
    command = waiting_call(deployment, run_id)
    fields = f'"run_id":"{run_id}","action_id":"{command["action_id"]}","attempt":1'
    text = text or _the_cases_result()
    raw = f'{{{fields},"status":"succeeded",{text}}}'.encode()
    deployment.send("agent.results", Sent(raw))
    assert deployment.dead(raw).header("reason") in ("not_a_number", "number_range")
    assert deployment.outcome(run_id)["result"] == {"a": {"slept": 0.5}}


def _the_cases_result() -> str:
    raw = inputs.of("S02.1")["raw"]
    return str(raw[raw.index('"result"') : -1])


@pytest.mark.parametrize(
    "budget", [None, '{"seconds":Infinity}', '{"cost":-Infinity}', '{"steps":1e400}']
)
def test_s02_a_budget_that_is_no_number_is_not_unlimited(
    deployment: Deployment, budget: str | None
) -> None:
    (record,) = inputs.records("S02.2")
    raw = record.value or b""
    if budget is not None:
        raw = raw.replace(b'{"tokens":NaN}', budget.encode())
    deployment.send("agent.tasks", Sent(raw))
    assert deployment.dead(raw).header("reason") in ("not_a_number", "number_range")
    assert deployment.topics.on("agent.events", lambda seen: seen.key == "s02") == []


def test_s02_every_record_written_so_far_is_strict_json(deployment: Deployment) -> None:
    """Of those we wrote. Dead letters are excepted: they hold the bytes as they came."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    for topic in WATCHED:
        if topic in ("agent.dead-letters", "agent.forwarded", "agent.approvals", "agent.control"):
            continue  # what stands there is as others wrote it
        ours = deployment.topics.on(topic, lambda seen: "perdure-type" in seen.headers)
        for seen in ours:
            if seen.raw is not None:
                json.loads(seen.raw.decode(), parse_constant=refuse)
        assert ours or topic in ("agent.verdicts", "agent.approvals.pending"), topic
