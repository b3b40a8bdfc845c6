"""Cases of the kind "model API quirks": Q01, Q02, Q03, Q04, Q05, Q07.

All runs start together; then each test waits for its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import inputs
from .deployment import Deployment, agent_of
from .scripts import END, asks

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

PLAYED = [name for case in ("Q01", "Q02", "Q03", "Q04", "Q05") for name in inputs.ids(case)]
LONG = '{"text": "' + "x" * 100_000
CUT = {**asks(("put_note", {"text": "whole"})), "finish_reason": "length"}
SHORTLY = 400
"""Characters of an error that a model is told."""


@pytest.fixture(scope="module")
def begun(deployment: Deployment, script: Any) -> dict[str, str]:
    """All runs of this module; those of scripts of ours, by what they show: their agents."""
    ours = {
        "long": script([asks(("put_note", LONG), ("read_note", {"id": 2})), END]),
        "whole": script([CUT, END]),
        "made-up": script([asks(("no_such_tool", {}))] * 4),
    }
    again = inputs.of("Q07.1")["replies_forever"]
    deployment.model.play("cut", [{"content": "half a sen", "finish_reason": "length"}, END])
    deployment.model.play_forever("repeats", again)
    deployment.model.play_forever("q07.2", again)
    pair = [asks(("read_note", {"id": 1})), asks(("read_note", {"id": 2}))]
    deployment.model.play("turns", pair * 5)
    fifth = deployment.model.hold("q07.1", 5)
    deployment.play("Q07.1")
    for agent in (*ours.values(), "repeats", "turns", "cut"):
        deployment.task(agent, f"quirk-{agent}")
    for name in PLAYED:
        deployment.play(name)
    deployment.until(lambda: len(deployment.model.requests("q07.1")) == 5, "step 5 is under way")
    deployment.kill("engine")
    fifth.set()
    return ours


def run_of(name: str) -> str:
    return str(inputs.task(name)["task_id"])


def told(request: dict[str, Any]) -> list[str]:
    """What the calls of the last reply came to, one text per call, in their order."""
    messages = request["messages"]
    last = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    results = messages[last + 1 :]
    asked = [call["id"] for call in messages[last]["tool_calls"]]
    assert [result["tool_call_id"] for result in results] == asked
    return [result["content"] for result in results]


def calls(deployment: Deployment, run_id: str) -> list[tuple[str, Any]]:
    """The calls that left the engine: tool and arguments, once each."""
    sent = deployment.topics.on("agent.commands.tools", lambda seen: seen.key == run_id)
    made = {seen.value["action_id"]: seen.value for seen in sent if seen.value["verb"] == "call"}
    return [(call["target"], call["arguments"]) for call in made.values()]


def done(deployment: Deployment, run_id: str, agent: str) -> list[dict[str, Any]]:
    """The run went on to its end; the requests it took."""
    outcome = deployment.outcome(run_id)
    assert (outcome["status"], outcome["result"]) == ("done", "done")
    return deployment.model.requests(agent)


def handed_over(deployment: Deployment, run_id: str, agent: str, asked: int) -> dict[str, Any]:
    """A person was asked, after so many requests, and the run has no outcome; the question."""
    question = deployment.question(run_id)
    assert question["kind"] == "handover"
    assert len(deployment.model.requests(agent)) == asked
    assert deployment.topics.on("agent.outcomes", lambda seen: seen.key == run_id) == []
    return question


# --- Q01: arguments that are none -----------------------------------------------------------------

WRONG = {  # by id: what the model is told of them, in part
    "Q01.1": '{"text": "abc',
    "Q01.2": "{'text':'x'}",
    "Q01.3": '{"text":"x"} trailing',
    "Q01.4": "[]",
    "Q01.5": "'text' is a required property",
    "Q01.6": '"text"',
    "Q01.7": "'text' is a required property",
}


@pytest.mark.parametrize("name", inputs.ids("Q01"))
def test_q01_arguments_of_any_shape(deployment: Deployment, begun: Any, name: str) -> None:
    run_id = run_of(name)
    _, second = done(deployment, run_id, agent_of(name))
    first_result, sibling = told(second)
    assert json.loads(sibling) == {"id": 2, "text": "note 2 of u1"}
    assert [effect["arguments"] for effect in deployment.effects(run_id, "read_note")] == [
        {"id": 2}
    ]
    if name not in WRONG:  # nothing, for a tool that takes nothing
        assert first_result == '"pong"'
        assert len(deployment.effects(run_id, "ping")) == 1
        assert ("ping", {}) in calls(deployment, run_id)
        return
    assert first_result.startswith("Error: ")
    assert WRONG[name] in first_result
    assert len(first_result) < SHORTLY
    assert deployment.effects(run_id, "put_note") == []
    assert [tool for tool, _ in calls(deployment, run_id)] == ["read_note"]


def test_q01_what_is_told_of_long_arguments_is_short(deployment: Deployment, begun: Any) -> None:
    agent = begun["long"]
    first, second = done(deployment, f"quirk-{agent}", agent)
    assert len(told(second)[0]) < SHORTLY
    assert len(json.dumps(second)) < len(json.dumps(first)) + 2000


# --- Q02: ids and names ---------------------------------------------------------------------------


def keys(deployment: Deployment, run_id: str) -> set[str]:
    sent = deployment.topics.on("agent.commands.tools", lambda seen: seen.key == run_id)
    return {seen.value["idempotency_key"] for seen in sent}


@pytest.mark.parametrize(
    ("name", "tool", "results"),
    [
        ("Q02.1", "read_note", ["note 1", "note 2"]),
        ("Q02.2", "put_note", ['"a"', '"b"']),
        ("Q02.3", "read_note", ["note 1"]),
    ],
)
def test_q02_ids_that_are_none_or_equal_are_calls_of_their_own(
    deployment: Deployment, begun: Any, name: str, tool: str, results: list[str]
) -> None:
    """That their ids differ and are paired in order, the model's server checks."""
    _, second = done(deployment, run_of(name), agent_of(name))
    texts = told(second)
    assert len(texts) == len(results)
    assert all(part in text for part, text in zip(results, texts, strict=True))
    assert len(deployment.effects(run_of(name), tool)) == len(results)
    assert len(keys(deployment, run_of(name))) == len(results)


def test_q02_a_name_that_is_no_tools_is_told_with_the_tools_there_are(
    deployment: Deployment, begun: Any
) -> None:
    _, second = done(deployment, run_of("Q02.4"), "q02.4")
    for text, name in zip(told(second), ("''", "'launch_rocket'", "'Read_Note '"), strict=True):
        assert text.startswith(f"Error: there is no tool {name}.")
        assert "read_note, put_note, pay" in text
        assert "denied" not in text
    assert calls(deployment, run_of("Q02.4")) == []


def test_q02_a_name_made_up_again_and_again_goes_to_a_person(
    deployment: Deployment, begun: Any
) -> None:
    agent = begun["made-up"]
    question = handed_over(deployment, f"quirk-{agent}", agent, 3)
    assert "there is no tool 'no_such_tool'" in question["title"]


def test_q02_an_id_of_an_earlier_turn_is_a_new_call(deployment: Deployment, begun: Any) -> None:
    _, second, third = done(deployment, run_of("Q02.5"), "q02.5")
    assert ["note 1" in told(second)[0], "note 2" in told(third)[0]] == [True, True]
    assert len(keys(deployment, run_of("Q02.5"))) == 2


# --- Q03: cut off ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", inputs.ids("Q03"))
def test_q03_half_arguments_never_run_and_soon_a_person_is_asked(
    deployment: Deployment, begun: Any, name: str
) -> None:
    question = handed_over(deployment, run_of(name), agent_of(name), 3)
    assert json.dumps(question["rule"]).count("truncated") == 3
    requests = deployment.model.requests(agent_of(name))
    assert [request["max_tokens"] for request in requests] == [300, 600, 1200]
    assert all("truncated" in told(request)[0] for request in requests[1:])
    assert all("lorem" not in json.dumps(request) for request in requests)
    assert calls(deployment, run_of(name)) == []


def test_q03_whole_arguments_of_a_reply_that_was_cut_run(
    deployment: Deployment, begun: Any
) -> None:
    agent = begun["whole"]
    done(deployment, f"quirk-{agent}", agent)
    assert calls(deployment, f"quirk-{agent}") == [("put_note", {"text": "whole"})]


# --- Q04: status 200, and no reply ----------------------------------------------------------------


@pytest.mark.parametrize("name", inputs.ids("Q04"))
def test_q04_what_is_no_reply_is_a_failure_that_keeps_the_providers_words(
    deployment: Deployment, begun: Any, name: str
) -> None:
    assert len(done(deployment, run_of(name), agent_of(name))) == 2
    body = inputs.of(name)["replies"][0]["body_raw"]
    (error,) = deployment.outcome(run_of(name))["errors"]
    assert error["kind"] == "model_invalid"
    assert (body or "is empty") in error["message"] or "rate limited upstream" in error["message"]
    assert "TypeError" not in deployment.log()


# --- Q05: filtered, or empty ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Q05.1", "Q05.2", "Q05.3"])
def test_q05_a_filtered_reply_is_not_asked_for_again(
    deployment: Deployment, begun: Any, name: str
) -> None:
    question = handed_over(deployment, run_of(name), agent_of(name), 1)
    error = question["rule"]["error"]
    assert error["kind"] == "content_filter"
    assert error["message"] in question["title"]
    said = inputs.of(name)["replies_forever"].get("content")
    assert (said or "") in error["message"]
    deployment.decide(question["approval_id"], "cancel_run", reason="it never passes")
    outcome = deployment.outcome(run_of(name))
    assert (outcome["status"], outcome["result"]) == ("cancelled", None)
    assert len(deployment.model.requests(agent_of(name))) == 1
    assert calls(deployment, run_of(name)) == []


def test_q05_the_reason_stands_where_a_person_looks(deployment: Deployment, begun: Any) -> None:
    deployment.question(run_of("Q05.2"))
    shown = deployment.cli("show", run_of("Q05.2")).stdout
    assert "content_filter" in shown
    assert "I cannot help with that." in shown


def test_q05_an_empty_reply_is_asked_for_a_few_times(deployment: Deployment, begun: Any) -> None:
    question = handed_over(deployment, run_of("Q05.4"), "q05.4", 3)
    assert [error["code"] for error in question["rule"]["errors"]] == ["empty_reply"] * 3


def test_q05_half_an_answer_is_none(deployment: Deployment, begun: Any) -> None:
    first, second = done(deployment, "quirk-cut", "cut")
    assert [first["max_tokens"], second["max_tokens"]] == [300, 600]


# --- Q07: the same again --------------------------------------------------------------------------


def test_q07_a_budget_is_for_the_whole_life_of_a_run(deployment: Deployment, begun: Any) -> None:
    """Its engine was killed while the model answered for the fifth time."""
    outcome = deployment.outcome(run_of("Q07.1"), 40)
    assert (outcome["status"], outcome["complete"]) == ("done", False)
    assert len(deployment.model.requests("q07.1")) == 10
    assert [record["tool"] for record in outcome["completed"]] == ["read_note"] * 10
    assert len(deployment.effects(run_of("Q07.1"), "read_note")) == 10
    assert "all 10 steps are used" in outcome["text"]
    assert "read_note" in outcome["text"]
    assert outcome["usage"]["input_tokens"] == 100


def test_q07_the_same_call_for_the_third_time_goes_to_a_person(
    deployment: Deployment, begun: Any
) -> None:
    question = handed_over(deployment, "quirk-repeats", "repeats", 3)
    assert (question["tool"], question["arguments"]) == ("read_note", {"id": 1})
    assert len(deployment.effects("quirk-repeats", "read_note")) == 2


def test_q07_two_calls_in_turns_stop_at_the_budget(deployment: Deployment, begun: Any) -> None:
    outcome = deployment.outcome("quirk-turns")
    assert (outcome["status"], outcome["complete"]) == ("done", False)
    assert len(deployment.model.requests("turns")) == 6
    assert len(outcome["completed"]) == 6


def test_q07_an_odd_budget_is_never_no_limit(deployment: Deployment, begun: Any) -> None:
    tasks = [json.loads(sent.value or b"") for sent in inputs.records("Q07.2")]
    for task in tasks:
        deployment.put("agent.tasks", **{**task, "agent": "q07.2"})
    deployment.task("q07.2", "q07-large", budget={"steps": 10**9})
    for task in tasks:
        outcome = deployment.outcome(task["task_id"])
        assert outcome["errors"][0]["kind"] == "refused"
        assert "steps" in outcome["text"]
    outcome = deployment.outcome("q07-large")
    assert (outcome["status"], outcome["complete"]) == ("done", False)
    assert len(deployment.model.requests("q07.2")) == 6  # the agent's own limit
