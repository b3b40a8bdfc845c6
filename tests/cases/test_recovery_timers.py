"""Cases of the kind "crash & recovery" that turn on stored deadlines and records: R05, R08.

On the engine with its store in memory; a crash is a new engine on the same store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ToolSpec
from perdure.streams.engine.processor import EngineProcessor

from tests.engine.desk import Desk, agent, tool

from . import inputs

COMMANDS = "agent.commands.tools"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def restart(desk: Desk) -> None:
    """The process dies; what is committed is there again, the rest is not."""
    catalog = desk.engine.catalog
    desk.engine = EngineProcessor(
        desk.engine._outputs, lambda topic: "AbCdEfGhIjKl", lambda queue: None
    )
    desk.engine.catalog = desk.engine._lookup._catalog = catalog


def fails(desk: Desk, command: Any, kind: str, code: str = "", **error: Any) -> None:
    desk.feed(
        topics.RESULTS,
        run_id=command["run_id"],
        action_id=command["action_id"],
        attempt=command["attempt"],
        status="failed",
        error={"kind": kind, "code": code, "message": "it went wrong", **error},
    )


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_r05_a_worker_that_never_answers_is_a_handover_in_the_end(
    desk: Desk, effect: str, crash: bool
) -> None:
    """One attempt fails, then silence: the stored deadlines go on, also in the next process."""
    spec = ToolSpec(name="call", effect=effect, approval="never", timeout_seconds=5.0)  # type: ignore[arg-type]
    desk.catalog(spec, agent("call"))
    (task,) = inputs.produced("R05.1")
    plan = [{"id": "a", "tool": "call"}]
    desk.feed(topics.TASKS, **{**task, "plan": plan})
    fails(desk, desk.on(COMMANDS)[-1], "transient", "http_503")
    assert len(desk.on(COMMANDS)) == 1
    if crash:
        restart(desk)
    desk.tick(5)
    assert [command["attempt"] for command in desk.on(COMMANDS)] == [1, 2]
    desk.feed(topics.TASKS, **{**task, "task_id": "r05-next", "plan": plan})
    desk.answer({"ok": True})
    assert desk.outcome()["run_id"] == "r05-next"  # the session is not blocked
    if crash:
        restart(desk)
    desk.tick(1000)
    commands = [c for c in desk.on(COMMANDS) if c["run_id"] == "r05" and c["verb"] == "call"]
    assert [command["attempt"] for command in commands] == [1, 2, 3]
    assert len({command["idempotency_key"] for command in commands}) == 1
    question = desk.on(topics.PENDING)[-1]
    assert (question["run_id"], question["kind"]) == ("r05", "handover")
    assert "cancel_run" in question["allowed_decisions"]


def test_r05_a_silent_external_call_is_asked_about_and_not_made_again(desk: Desk) -> None:
    desk.catalog(tool("call", effect="external"), agent("call"))
    desk.feed(topics.TASKS, task_id="r", agent="demo", plan=[{"id": "a", "tool": "call"}])
    restart(desk)
    desk.tick(2000)
    assert [c["attempt"] for c in desk.on(COMMANDS) if c["verb"] == "call"] == [1]
    assert desk.on(topics.PENDING)[-1]["kind"] == "in_doubt"


def test_r05_cancelled_runs_in_backoff_emit_nothing_more(desk: Desk) -> None:
    desk.catalog(tool("call"), agent("call"))
    runs = [f"r{n}" for n in range(inputs.of("R05.2")["steps"][0][2])]
    for run_id in runs:
        desk.feed(topics.TASKS, task_id=run_id, agent="demo", plan=[{"id": "a", "tool": "call"}])
        fails(desk, desk.on(COMMANDS)[-1], "transient", retry_after_seconds=30)
    sent = len(desk.on(COMMANDS))
    for run_id in runs:
        desk.feed(topics.CONTROL, run_id=run_id, command="cancel", by="uma")
    assert {key.rpartition(b"/")[2] for key in desk.timers} == {b"purge"}
    restart(desk)
    desk.tick(40)
    assert len(desk.on(COMMANDS)) == sent
    assert {o["status"] for o in desk.on(topics.OUTCOMES)} == {"cancelled"}
    assert len(desk.on(topics.OUTCOMES)) == len(runs)


SAGA = [{"id": name, "tool": name} for name in inputs.of("R08.1")["saga"]]


def saga(desk: Desk, plan: list[dict[str, Any]]) -> None:
    names = [step["tool"] for step in plan]
    desk.catalog(*(tool(name, effect="idempotent") for name in names), agent(*names))
    desk.feed(topics.TASKS, task_id="r08", agent="demo", plan=plan)


def test_r08_a_step_is_done_only_with_a_recorded_success(desk: Desk) -> None:
    saga(desk, SAGA)
    for _ in SAGA[:-1]:
        desk.answer({"ok": True})
    fails(desk, desk.on(COMMANDS)[-1], "business", "refused")
    outcome = desk.outcome()
    assert (outcome["status"], outcome["complete"]) == ("failed", False)
    assert [record["tool"] for record in outcome["completed"]] == ["w1", "w2", "w3"]
    assert [record["tool"] for record in outcome["not_completed"]] == [inputs.of("R08.1")["fail"]]
    assert outcome["compensated"] == []


@pytest.mark.parametrize("status", ["started", "progress"])
def test_r08_word_of_a_call_under_way_is_no_success(desk: Desk, status: str) -> None:
    saga(desk, SAGA)
    desk.answer({"ok": True}, status)
    assert len(desk.on(COMMANDS)) == 1
    desk.feed(topics.CONTROL, run_id="r08", command="cancel", by="uma")
    command = next(c for c in desk.on(COMMANDS) if c["verb"] == "cancel")
    desk.feed(
        topics.RESULTS,
        run_id="r08",
        action_id=command["action_id"],
        attempt=1,
        status="cancelled",
    )
    outcome = desk.outcome()
    assert outcome["completed"] == []
    assert [record["tool"] for record in outcome["not_completed"]] == ["w1"]


def test_r08_of_parallel_steps_each_is_what_its_own_result_says(desk: Desk) -> None:
    saga(desk, [{**step, "depends_on": []} for step in SAGA])
    by_tool = {command["target"]: command for command in desk.on(COMMANDS)}
    fails(desk, by_tool["w2"], "business", "refused")
    for name in ("w4", "w1"):
        desk.feed(
            topics.RESULTS,
            run_id="r08",
            action_id=by_tool[name]["action_id"],
            attempt=1,
            status="succeeded",
            result={"error": "this is what success looks like here"},
        )
    fails(desk, by_tool["w3"], "permission", "http_403")
    outcome = desk.outcome()
    assert sorted(record["tool"] for record in outcome["completed"]) == ["w1", "w4"]
    assert sorted(record["tool"] for record in outcome["not_completed"]) == ["w2", "w3"]
