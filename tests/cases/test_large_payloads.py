"""Cases of the kind "large payloads": L01, L02."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perdure.streams.runtime.blobs import Blobs

from . import inputs
from .deployment import WATCHED, Deployment
from .inputs import Sent
from .scripts import END, asks, call

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

MEGABYTE_AND_A_HALF = len(inputs.generated(inputs.of("L01.1")["returns_gen"]))
LIMIT = 1_000_000


def value(deployment: Deployment, told: Any) -> Any:
    """What a reader sees: the value, or the one behind the reference."""
    if not (isinstance(told, dict) and "$blob" in told):
        return told
    blobs = Blobs(str(deployment.directory / "data" / "blobs"))
    return json.loads(blobs.get(told))


def check_once(deployment: Deployment, run_id: str, tool: str, size: int) -> dict[str, Any]:
    """One attempt, the whole value in the outcome, a shorter one for the model."""
    outcome = deployment.outcome(run_id)
    assert outcome["status"] == "done"
    (record,) = value(deployment, outcome["completed"])
    assert (record["tool"], record["attempts"]) == (tool, 1)
    assert len(deployment.effects(run_id, tool)) == 1
    kept = value(deployment, record["result"] if tool == "big" else record["arguments"])
    assert len(kept if tool == "big" else kept["text"]) == size
    return outcome


def test_l01_a_large_result_is_kept_by_reference_and_a_neighbour_runs(
    deployment: Deployment, script: Any
) -> None:
    task = inputs.task("L01.1")
    agent = script(call("big", {"size": MEGABYTE_AND_A_HALF}))
    deployment.task(agent, task["task_id"])
    deployment.task("demo", "l01-next")
    check_once(deployment, task["task_id"], "big", MEGABYTE_AND_A_HALF)
    assert deployment.outcome("l01-next")["status"] == "done"
    told = deployment.model.requests(agent)[1]["messages"][-1]["content"]
    assert 0 < len(told) < 100_000


def test_l01_large_arguments_go_the_same_way(deployment: Deployment) -> None:
    run_id = deployment.play("L01.2")
    check_once(deployment, run_id, "put_note", MEGABYTE_AND_A_HALF)
    (command,) = deployment.topics.on("agent.commands.tools", lambda seen: seen.key == run_id)
    assert len(command.raw or b"") < LIMIT


@pytest.mark.parametrize("size", [255_990, 256_010, 999_000, 1_000_100])
def test_l01_sizes_at_the_borders(deployment: Deployment, script: Any, size: int) -> None:
    run_id = f"l01-{size}"
    deployment.task(script(call("big", {"size": size})), run_id)
    check_once(deployment, run_id, "big", size)


@pytest.mark.parametrize("size", [1_572_864, 3_900_000])
def test_l01_a_large_task_runs(deployment: Deployment, size: int) -> None:
    run_id = f"l01-task-{size}"
    deployment.task("demo", run_id, input="y" * size)
    assert deployment.outcome(run_id)["complete"] is True
    started = deployment.events(run_id)[0]["data"]["input"]
    assert value(deployment, started) == "y" * size


def test_l01_what_no_window_can_take_is_not_sent_for_ever(
    deployment: Deployment, script: Any
) -> None:
    """The task itself is the message that is never cut: refused, with the sizes."""
    agent = script([END])
    deployment.task(agent, "l01-window", input="word " * 300_000)
    deployment.task("demo", "l01-window-next")
    assert deployment.outcome("l01-window-next")["status"] == "done"
    refused = deployment.outcome("l01-window")
    assert (refused["status"], refused["errors"][0]["kind"]) == ("failed", "refused")
    assert "input has about 5000" in refused["text"]
    assert "a model request takes 8000 at most" in refused["text"]
    assert deployment.model.requests(agent) == []


def test_l02_ten_results_of_150_kb_in_one_run(deployment: Deployment, script: Any) -> None:
    case = inputs.of("L02.1")
    size = len(inputs.generated(case["returns_gen"]))
    agent = script([*(asks(("big", {"size": size})) for _ in range(case["times"])), END], True)
    run_id = case["task"]["task_id"]
    deployment.task(agent, run_id)
    deployment.task("demo", "l02-next")
    check_all(deployment, run_id, case["times"], size)
    assert deployment.outcome("l02-next")["status"] == "done"


def check_all(deployment: Deployment, run_id: str, count: int, size: int) -> None:
    outcome = deployment.outcome(run_id, 60)
    assert outcome["status"] == "done"
    completed = value(deployment, outcome["completed"])
    assert [len(value(deployment, r["result"])) for r in completed] == [size] * count
    assert len(deployment.effects(run_id, "big")) == count


@pytest.mark.parametrize(("count", "size"), [(40, 30_000), (8, 250_000)])
def test_l02_many_parallel_calls_whose_results_add_up(
    deployment: Deployment, script: Any, count: int, size: int
) -> None:
    agent = script([asks(*(("big", {"size": size}) for _ in range(count))), END])
    deployment.task(agent, f"l02-{count}")
    check_all(deployment, f"l02-{count}", count, size)


def test_l02_many_parallel_calls_whose_arguments_add_up(
    deployment: Deployment, script: Any
) -> None:
    """One reply of the model holds them all."""
    agent = script([asks(*(("put_note", {"text": "z" * 30_000}) for _ in range(40))), END])
    deployment.task(agent, "l02-arguments")
    outcome = deployment.outcome("l02-arguments")
    assert outcome["status"] == "done"
    assert len(value(deployment, outcome["completed"])) == 40


def test_l02_a_large_task_comes_again_in_its_question(deployment: Deployment, script: Any) -> None:
    (record,) = inputs.records("L02.2")
    task = {**json.loads(record.value or b""), "agent": "planner"}
    task["plan"] = [{"id": "a", "tool": "pay", "arguments": {"to": "bob", "amount": 1}}]
    deployment.send("agent.tasks", Sent(json.dumps(task).encode(), record.key))
    question = deployment.question("l02b")
    assert value(deployment, question["input"]) == task["input"]
    shown = deployment.cli("pending", "--json")
    assert shown.returncode == 0, shown.stderr
    assert any(json.loads(line)["run_id"] == "l02b" for line in shown.stdout.splitlines())
    deployment.decide(question["approval_id"])
    assert deployment.outcome("l02b")["complete"] is True


def test_l02_no_record_written_so_far_is_too_large(deployment: Deployment) -> None:
    """Forwarded records go as they came, and dead letters may too."""
    for topic in WATCHED:
        if topic not in ("agent.forwarded", "agent.dead-letters"):
            sizes = [len(seen.raw or b"") for seen in deployment.topics.on(topic)]
            assert max(sizes, default=0) < LIMIT, topic
    assert "MSG_SIZE_TOO_LARGE" not in Path(deployment.directory / "up.log").read_text()
