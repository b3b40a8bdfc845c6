"""The outcome is made from the action records, never from a model's words."""

from __future__ import annotations

from typing import Any

from perdure.streams.core.policies import outcome

from .harness import World, accepted, refused, tool


def world() -> World:
    made = World(
        tool("look"),
        tool("pay", "external", approval="always"),
        tool("mail", "external"),
        tool("put", "idempotent"),
    )
    accepted(made.start("go", metadata={"shop": "1"}, session_id="s1", tenant="t1"))
    return made


def test_every_action_stands_in_exactly_one_list() -> None:
    made = world()
    made.reply(None, ("look", {}), ("pay", {"n": 1}), ("mail", {}), ("put", {}))
    made.answer(made.command("look"), result={"total": 3})
    made.answer(made.command("mail"), "unknown")
    made.fails(made.command("put"), "business", "NO")
    made.decide("reject", n=1, reason="no")
    made.decide("cancel_run")
    assert made.listed() == {
        "completed": ["look"],
        "not_completed": ["pay", "put"],
        "in_doubt": ["mail"],
    }
    assert not made.outcome().complete


def test_a_model_that_claims_success_does_not_make_it_so() -> None:
    made = world()
    made.reply(None, ("put", {}))
    made.fails(made.command("put"), "business", "NO")
    made.reply("I have put it.")
    assert made.listed() == {"completed": [], "not_completed": ["put"], "in_doubt": []}
    assert not made.outcome().complete
    assert "Not done: put (2)" in made.outcome().text


def test_a_run_that_is_done_with_something_in_doubt_is_not_complete() -> None:
    made = world()
    made.reply(None, ("put", {}))
    made.fails(made.command("put"), "transient", "connection_lost")
    made.timer("act/2")
    made.fails(made.command("put"), "business", "NO")
    made.reply("done")
    assert (made.status, made.listed()["in_doubt"]) == ("done", ["put"])
    assert not made.outcome().complete


def test_a_record_says_what_ran_and_who_allowed_it() -> None:
    made = world()
    made.reply(None, ("pay", {"n": 1}))
    made.decide("approve")
    made.answer(made.command("pay"), result={"id": 5})
    made.reply("done")
    (record,) = made.outcome().completed
    assert record["arguments"] == {"n": 1}
    assert record["result"] == {"id": 5}
    assert (record["approval_id"], record["approved_by"]) == ("r1/a1", "ann")
    assert record["idempotency_key"] == "r1/2/abcd1234"
    assert record["cache_key"] == "s1_r1/2"
    assert (record["attempts"], record["phase"]) == (1, "finished")


def test_the_outcome_carries_the_run_and_its_last_event() -> None:
    made = world()
    made.reply("done")
    told = made.outcome()
    assert (told.run_id, told.user_id, told.session_id, told.tenant) == ("r1", "uma", "s1", "t1")
    assert told.metadata == {"shop": "1"}
    assert (told.version, told.hash) == (made.events[-1].version, made.events[-1].hash)
    assert told.finished_at == made.now


def state_of(made: World) -> dict[str, Any]:
    return outcome.run_state(made.run, [])


def test_run_state_says_what_a_run_waits_for() -> None:
    made = world()
    made.reply(None, ("pay", {"n": 1}), ("put", {}))
    made.fails(made.command("put"), "transient", "http_503")
    waits = state_of(made)["waiting_for"]
    assert [(wait["kind"], wait.get("approval_id"), wait.get("target")) for wait in waits] == [
        ("action", "r1/a1", None),
        ("retry", None, "put"),
    ]
    assert waits[0]["until"] == made.approval(1).expires_at
    assert waits[1]["until"] == made.header.timers["act/3"]


def test_phases_are_those_of_the_lifecycle() -> None:
    made = world()
    assert state_of(made)["actions"][0]["phase"] == "model_calling"
    made.reply(None, ("pay", {"n": 1}), ("put", {}), ("mail", {}))
    made.answer(made.command("mail"), "started")
    made.fails(made.command("put"), "transient", "http_503")
    phases = [record["phase"] for record in state_of(made)["actions"]]
    assert phases == ["finished", "condition_check", "idle", "waiting_result"]


def test_the_last_status_of_each_target_is_kept_with_its_count() -> None:
    made = world()
    made.reply(None, ("put", {}))
    for _ in range(2):
        made.fails(made.command("put"), "transient", "http_503")
        made.timer("act/2")
    calls = state_of(made)["last_api_call_status"]
    assert calls["put"]["code"] == "http_503"
    assert (calls["put"]["consecutive"], calls["put"]["attempt"]) == (2, 2)
    made.answer(made.command("put"))
    assert state_of(made)["last_api_call_status"]["put"]["status"] == "ok"
    assert calls["m"]["consecutive"] == 1


def test_an_unknown_agent_is_refused_naming_a_near_one() -> None:
    made = World(tool("look"))
    refused(made.start(agent="demp"), "agent: demp is unknown", "did you mean demo?")


def test_a_tool_that_no_worker_announced_is_refused_by_name() -> None:
    made = world()
    del made.tools["mail"]
    refused(made.start(run_id="r2"), "tool mail", "announced by no worker")
