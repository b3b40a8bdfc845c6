"""Cases of the kind "malformed input": M01, M02, M03, M05."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment, partition
from .inputs import Sent
from .scripts import call

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def good(task_id: str) -> Sent:
    task = {"task_id": task_id, "agent": "demo", "input": "do the demo"}
    return Sent(json.dumps(task).encode(), task_id)


@pytest.mark.parametrize("name", inputs.ids("M01"))
def test_m01_an_unreadable_record_is_a_dead_letter_and_the_next_one_runs(
    deployment: Deployment, name: str
) -> None:
    *bad, last = inputs.records(name)
    run_id = json.loads(last.value or b"")["task_id"]
    engine, before = deployment.pid("engine"), deployment.metric("engine", DEAD)
    deployment.send("agent.tasks", *bad, last, partition=partition(run_id))
    assert deployment.outcome(run_id)["status"] == "done"
    for record in bad:
        check_dead(deployment, record.value, partition(run_id))
    assert deployment.metric("engine", DEAD) == before + len(bad)
    assert deployment.pid("engine") == engine


DEAD = 'perdure_dead_total{processor="engine"}'


def check_dead(deployment: Deployment, raw: bytes | None, number: int | None = None) -> str:
    letter = deployment.dead(raw)
    assert letter.header("topic").endswith("agent.tasks")
    assert int(letter.header("offset")) >= 0
    assert number is None or letter.header("partition") == str(number)
    assert letter.header("reason")
    assert 0 < len(letter.header("detail")) < 500
    return letter.header("reason")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"task_id":"m01-x1","agent":"demo","input":"\xe2\x82"}', "not_utf8"),
        (b"\x1f\x8b\x08\x00 compressed", "not_utf8"),
        (b'\xef\xbb\xbf{"task_id":"m01-bom","agent":"demo"}', "not_json"),
        (b"\x00\x00\x00\x00\x07avro", "avro"),
        (b'{"task_id":"m01-x2","agent":"demo"} {}', "not_json"),
        (b'{"task_id":"m01-x3","agent":"demo","input":"a\nb"}', "not_json"),
        (b'{"agent":"demo","input":"\\ud800"}', "surrogate"),
        (b"NaN", "not_a_number"),
        (b"17", "not_an_object"),
    ],
)
def test_m01_other_bytes_that_are_no_task(deployment: Deployment, raw: bytes, reason: str) -> None:
    deployment.send("agent.tasks", Sent(raw, "m01"))
    assert check_dead(deployment, raw) == reason


@pytest.mark.parametrize(
    "topic",
    [
        "agent.results",
        "agent.approvals",
        "agent.control",
        "agent.commands.tools",
        "agent.commands.models",
    ],
)
@pytest.mark.parametrize("kind", ["cut", "deep", "bytes"])
def test_m01_every_other_topic_read_buries_it_too(
    deployment: Deployment, topic: str, kind: str
) -> None:
    raw = {
        "cut": b'{"run_id": "' + topic.encode(),
        "deep": b'{"run_id": "' + topic.encode() + b'", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        "bytes": b"{\xff" + topic.encode(),
    }[kind]
    deployment.send(topic, Sent(raw))
    letter = deployment.dead(raw)
    assert letter.header("topic").endswith(topic)
    assert letter.header("reason") in ("not_json", "too_deep", "not_utf8")


@pytest.mark.parametrize("key", ["tool/broken", "agent/demo", "nonsense", None])
def test_m01_garbage_in_the_catalog_changes_nothing(
    deployment: Deployment, key: str | None
) -> None:
    deep = b'{"name": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    for raw in (b'{"name": "broken", "effect": ', deep, b"\xff", b"[]"):
        deployment.send("agent.catalog", Sent(raw, key))
    run_id = f"m01-catalog-{key}".replace("/", "-")
    deployment.send("agent.tasks", good(run_id))
    assert deployment.outcome(run_id)["status"] == "done"


def test_m01_a_foreign_record_on_the_private_topic_is_buried(deployment: Deployment) -> None:
    """Only engines write there; a task that comes that way is none."""
    record = good("m01-private")
    deployment.send("agent.forwarded", record, partition=partition("m01-private"))
    assert deployment.dead(record.value).header("topic").endswith("agent.forwarded")
    assert not deployment.topics.on("agent.events", lambda seen: seen.key == "m01-private")


@pytest.mark.parametrize("name", inputs.ids("M02"))
def test_m02_null_values_headers_and_keys_stop_nothing(deployment: Deployment, name: str) -> None:
    records = inputs.records(name)
    deployment.send("agent.tasks", *records)
    run_id = json.loads(records[-1].value or b"")["task_id"]
    assert deployment.outcome(run_id)["status"] == "done"
    assert [event["type"] for event in deployment.events(run_id)].count("run_started") == 1


@pytest.mark.parametrize(
    "topic", ["agent.tasks", "agent.results", "agent.approvals", "agent.control", "agent.catalog"]
)
def test_m02_a_null_value_on_any_topic(deployment: Deployment, topic: str) -> None:
    run_id = f"m02-{topic.split('.')[1]}"
    deployment.send(topic, Sent(None, "tool/nothing" if topic == "agent.catalog" else run_id))
    deployment.send("agent.tasks", good(run_id))
    assert deployment.outcome(run_id)["status"] == "done"
    if topic != "agent.catalog":
        letters = deployment.topics.wait(
            "agent.dead-letters",
            lambda seen: seen.raw is None and seen.header("topic").endswith(topic),
            topic,
        )
        assert {letter.header("reason") for letter in letters} == {"null"}


@pytest.mark.parametrize("key", [b"", b"\xff\xfe", b"k" * 5_000])
def test_m02_keys_of_every_kind(deployment: Deployment, key: bytes) -> None:
    run_id = f"m02-k{len(key)}"
    made = good(run_id)
    deployment.send("agent.tasks", Sent(made.value, key), partition=1 - partition(run_id))
    assert deployment.outcome(run_id)["status"] == "done"
    deployment.send("agent.tasks", Sent(f"no task {run_id}".encode(), key))
    assert check_dead(deployment, f"no task {run_id}".encode()) == "not_json"


@pytest.mark.parametrize(
    "headers",
    [
        [("perdure-type", None)],
        [("traceparent", b"\xff\xfe not text")],
        [("reason", b"x"), ("reason", None), ("", b"")],
        [("t\u00e4g", b"\x00" * 2000)],
    ],
)
def test_m02_headers_of_every_kind(
    deployment: Deployment, headers: list[tuple[str, bytes | None]]
) -> None:
    run_id = f"m02-h{headers[0][0].encode().hex()}"
    made = good(run_id)
    deployment.send(
        "agent.tasks", Sent(made.value, None, headers), partition=1 - partition(run_id)
    )  # forwarded, headers and all
    assert deployment.outcome(run_id)["status"] == "done"
    bad = f"no task {run_id}".encode()
    deployment.send("agent.tasks", Sent(bad, None, headers))
    assert deployment.dead(bad).header("reason") == "not_json"


def test_m03_a_deep_task_is_rejected(deployment: Deployment) -> None:
    (record,) = inputs.records("M03.1")
    assert record.value is not None
    deployment.send("agent.tasks", record)
    letter = deployment.topics.wait(
        "agent.dead-letters",
        lambda seen: seen.raw is not None and seen.raw[:60] == (record.value or b"")[:60],
        "the deep task",
    )[-1]
    assert letter.header("reason") == "too_deep"
    assert len(letter.header("detail")) < 200
    shown = deployment.cli(
        "show", "m03"
    )  # looks for the task on its topic and among the dead letters
    assert shown.returncode == 1
    assert "m03 never became a run: nested deeper than 100" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(("depth", "runs"), [(98, True), (101, False), (5_000, False)])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_m03_the_limit_is_a_hundred(
    deployment: Deployment, depth: int, runs: bool, left: str, right: str
) -> None:
    run_id = f"m03-{depth}-{ord(left[0])}"
    value = left * depth + ("" if left == "[" else "1") + right * depth
    raw = f'{{"task_id":"{run_id}","agent":"demo","input":{value}}}'.encode()
    deployment.send("agent.tasks", Sent(raw))
    if runs:
        assert deployment.outcome(run_id)["status"] == "done"
    else:
        assert check_dead(deployment, raw) == "too_deep"


def test_m03_deep_arguments_of_a_risky_call_go_back_to_the_model(deployment: Deployment) -> None:
    run_id = deployment.play("M03.2")
    assert deployment.outcome(run_id)["status"] == "done"
    check_told(deployment, "m03.2", "pay")
    assert deployment.effects(run_id, "pay") == []
    assert not any(event["type"] == "approval_requested" for event in deployment.events(run_id))


def check_told(deployment: Deployment, agent: str, tool: str) -> str:
    """The model was told in short what was wrong with its call."""
    told = deployment.model.requests(agent)[1]["messages"][-1]
    assert told["role"] == "tool"
    assert 0 < len(told["content"]) < 1000
    assert tool in told["content"] or "argument" in told["content"]
    return str(told["content"])


@pytest.mark.parametrize(
    "arguments",
    [
        '{"to":' + "[" * 3000 + "]" * 3000 + ',"amount":1}',
        '{"to": "bob", "amount": 1, "note": ' + '{"a":' * 101 + "1" + "}" * 101 + "}",
        '{"to": "bob", "to": "eve", "amount": 1}',
        '{"to": "bob", "amount": 1',
    ],
)
def test_m03_other_arguments_no_parser_agrees_on(
    deployment: Deployment, script: Any, arguments: str
) -> None:
    agent = script(call("pay", arguments))
    deployment.task(agent, f"m03-{agent}")
    assert deployment.outcome(f"m03-{agent}")["status"] == "done"
    check_told(deployment, agent, "pay")
    assert deployment.effects(f"m03-{agent}", "pay") == []


def test_m05_a_long_id_is_the_same_number_everywhere(deployment: Deployment) -> None:
    run_id = deployment.play("M05.1")
    check_digits(deployment, run_id, "m05.1", 2512292042121000001)
    check_shown(deployment, run_id, 2512292042121000001)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**64 - 1, 10**29 + 7])
def test_m05_other_numbers_no_double_holds(
    deployment: Deployment, script: Any, number: int
) -> None:
    agent = script(call("read_note", f'{{"id":{number}}}'))
    run_id = f"m05-{number}"
    deployment.task(agent, run_id, input={"id": number})
    check_digits(deployment, run_id, agent, number)
    if number > 2**64:
        check_shown(deployment, run_id, number)


def check_digits(deployment: Deployment, run_id: str, agent: str, number: int) -> None:
    outcome = deployment.outcome(run_id)
    assert outcome["completed"][0]["arguments"] == {"id": number}
    assert outcome["completed"][0]["result"]["id"] == number
    (effect,) = deployment.effects(run_id, "read_note")
    assert effect["arguments"]["id"] == number
    (command,) = deployment.topics.on("agent.commands.tools", lambda seen: seen.key == run_id)
    assert f'"id":{number}' in (command.raw or b"").decode()
    proposed = [e for e in deployment.events(run_id) if e["type"] == "action_proposed"]
    assert any(event["data"].get("arguments") == {"id": number} for event in proposed)
    messages = deployment.model.requests(agent)[1]["messages"]
    assert f'"id":{number}' in messages[-1]["content"]
    assert json.loads(messages[-2]["tool_calls"][0]["function"]["arguments"]) == {"id": number}


def check_shown(deployment: Deployment, run_id: str, number: int) -> None:
    shown = deployment.cli("show", run_id, "--json")  # from the changelog
    assert shown.returncode == 0, shown.stderr
    actions = json.loads(shown.stdout)["actions"]
    assert any(action["arguments"] == {"id": number} for action in actions)


def test_m05_a_number_beyond_a_double_is_refused(deployment: Deployment) -> None:
    deployment.send("agent.tasks", *inputs.records("M05.2"))
    raw = inputs.records("M05.2")[0].value
    assert check_dead(deployment, raw) == "number_range"


@pytest.mark.parametrize(
    ("text", "reads"), [("1.10", 1.1), ("1e308", 1e308), ("-0.0", -0.0), ("1E2", 100.0)]
)
def test_m05_a_number_keeps_its_meaning(deployment: Deployment, text: str, reads: float) -> None:
    run_id = f"m05-{text}".replace("+", "")
    plan = '[{"id":"a","tool":"ping"}]'
    raw = f'{{"task_id":"{run_id}","agent":"planner","input":{text},"plan":{plan}}}'
    deployment.send("agent.tasks", Sent(raw.encode()))
    assert deployment.outcome(run_id)["status"] == "done"
    started = deployment.events(run_id)[0]
    assert repr(started["data"]["input"]) == repr(reads)
