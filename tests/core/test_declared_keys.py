"""``key``: a second call with the same declared arguments adopts the first one's result."""

from __future__ import annotations

import pytest
from perdure.schemas.records import ToolSpec
from perdure.streams.core.decide.dispatch import decide
from perdure.streams.core.decide.inputs import Timer

from .harness import BudgetPolicy, PlanStep, World, accepted, agent, refused, tool

KEYED = tool("pay", "external", key=["order"])


def world(*tools: ToolSpec, calls: int = 2) -> World:
    made = World(*(tools or (KEYED,)))
    made.start()
    made.reply(None, *[("pay", {"order": 7, "note": f"note {n}"}) for n in range(calls)])
    return made


def test_a_second_call_at_the_same_time_waits_and_adopts() -> None:
    made = world(calls=3)
    (sent,) = [command for command in made.sent if command.target == "pay"]
    assert sent.idempotency_key.startswith("r1/pay~")
    assert sent.idempotency_key.endswith("/abcd1234")
    assert [made.action(n).status for n in (2, 3, 4)] == ["requested", "proposed", "proposed"]
    made.answer(sent, result={"paid": 1})
    assert [made.action(n).result for n in (2, 3, 4)] == [{"paid": 1}] * 3
    made.reply("done")
    assert len([command for command in made.sent if command.target == "pay"]) == 1
    assert made.outcome().complete


def test_a_later_call_adopts_and_asks_nobody() -> None:
    asks = tool("pay", "external", key=["order"], approval="always")
    made = world(asks, calls=1)
    made.decide("approve")
    made.answer(made.command("pay"), result={"paid": 1})
    made.reply(None, ("pay", {"order": 7}))
    assert made.action(4).status == "succeeded"
    assert made.action(4).attempt == 0
    assert not made.header.asks
    made.reply(None, ("pay", {"order": 8}))
    assert made.header.asks


def test_after_a_call_that_did_not_happen_the_second_is_made() -> None:
    made = world()
    made.fails(made.command("pay"), "business", "closed")
    second = made.command("pay")
    assert second.action_id == "r1/3"
    assert second.idempotency_key == made.action(2).key
    made.answer(second, result={"paid": 1})
    made.reply(None, ("pay", {"order": 7}))
    assert made.action(5).result == {"paid": 1}


def test_of_three_at_once_one_goes_after_the_first_has_failed() -> None:
    made = world(calls=3)
    made.fails(made.command("pay"), "business", "closed")
    assert [made.action(n).status for n in (2, 3, 4)] == ["failed", "requested", "proposed"]
    made.answer(made.command("pay"), result={"paid": 1})
    assert made.action(4).result == {"paid": 1}


def test_a_rejected_call_lets_the_second_ask_for_itself() -> None:
    asks = tool("pay", "external", key=["order"], approval="always")
    made = world(asks)
    assert len(made.header.asks) == 1
    made.decide("reject", reason="no")
    assert made.approval().action == 3
    assert made.approval().open


def test_ending_while_the_second_waits_calls_it_never() -> None:
    made = world()
    made.control("cancel")
    made.answer(made.command("pay", "cancel"), "cancelled")
    assert made.status == "cancelled"
    assert made.listed()["not_completed"] == ["pay", "pay"]


def test_the_model_is_told_whose_result_it_reads() -> None:
    made = world()
    made.answer(made.command("pay"), result={"paid": 1})
    told = [m["content"] for m in made.command("m").request["messages"] if m["role"] == "tool"]
    assert told[0] == '{"paid":1}'
    assert "r1/2" in told[1]
    assert '"note":"note 0"' in told[1]


def two_of_one_key() -> World:
    made = World(KEYED, tool("look"))
    made.plan(
        PlanStep(id="a", tool="pay", arguments={"order": 7}, depends_on=[]),
        PlanStep(id="t", tool="pay", arguments={"order": 7}, depends_on=[]),
        PlanStep(id="b", tool="look", depends_on=[]),
    )
    return made


@pytest.mark.parametrize("end", ["succeeded", "unknown"])
def test_a_retry_finds_the_call_that_lives_behind_one_that_was_cancelled(end: str) -> None:
    made = two_of_one_key()
    first = made.command("pay")
    made.fails(made.command("look"), "business", "x")
    error = {"error": {"kind": "unknown", "code": "lost"}} if end == "unknown" else {"result": 1}
    made.answer(made.command("pay", "cancel"), end, **error)
    assert made.status == "failed"
    made.control("retry")
    made.answer(made.command("look"), result=1)
    if end == "unknown":
        made.decide("mark_done", reason="looked", answer=1)
    assert [c.action_id for c in made.sent if c.target == "pay" and c.verb == "call"] == [
        first.action_id
    ]
    assert made.status == "done"
    assert made.outcome().complete


def test_a_call_that_was_denied_is_not_made_again_once_its_key_has_a_result() -> None:
    made = world(calls=1)
    made.fails(made.command("pay"), "permission", "http_403")
    made.reply(None, ("pay", {"order": 7}))
    made.answer(made.command("pay"), result={"paid": 1})
    made.reply(None, ("ask_authority", {"reason": "the first one"}))
    made.decide("approve")
    assert len([c for c in made.sent if c.target == "pay"]) == 2
    assert made.action(2).result == {"paid": 1}


def test_a_modify_that_would_change_the_key_is_refused() -> None:
    asks = tool("pay", "external", key=["order"], approval="always")
    made = world(asks, calls=1)
    refused(
        made.decide("modify", arguments={"order": 8}, reason="the other"),
        "order make the call's key",
    )
    accepted(made.decide("modify", arguments={"order": 7, "note": "new"}, reason="clearer"))


# --- a call that was denied and allowed again, while another of its key waits for a person ---------

ASKS = tool("pay", "idempotent", key=["order"], approval="arguments.amount > 1")


def allowed_beside_another(*, seconds: float | None = None) -> World:
    """Call 2 is denied; the model asks for authority and makes call 5 of the same key, which needs a
    word of its own. The authority is given first."""
    made = World(ASKS, agent_spec=agent("pay", budget=BudgetPolicy(seconds=seconds)))
    made.start()
    made.reply(None, ("pay", {"order": 7, "amount": 0}))
    made.fails(made.command("pay"), "permission", "http_403")
    made.reply(None, ("ask_authority", {"reason": "r"}), ("pay", {"order": 7, "amount": 2}))
    accepted(made.decide("approve", n=1))
    return made


def test_a_call_whose_key_another_has_waits_with_it_for_the_person() -> None:
    made = allowed_beside_another()
    assert made.status == "waiting_approval"
    assert [(wait["kind"], wait["approval_id"]) for wait in made.waits()] == [("action", "r1/a2")]
    assert list(made.header.timers) == ["ask/2"], "nothing comes round until somebody answers"


def test_the_time_that_it_waits_is_nobodys_budget() -> None:
    made = allowed_beside_another(seconds=3600)
    made.now += 86_400_000
    made.decide("approve", n=2)
    made.answer(made.command("pay"), result={"paid": 1})
    assert made.command("m"), "the run goes on"


def test_it_adopts_what_the_other_came_to() -> None:
    made = allowed_beside_another()
    made.decide("approve", n=2)
    assert made.status == "running"
    made.answer(made.command("pay"), result={"paid": 1})
    assert [made.action(n).result for n in (2, 5)] == [{"paid": 1}] * 2
    made.reply("done")
    assert len([c for c in made.sent if c.target == "pay"]) == 2
    assert made.outcome().complete


def test_it_is_made_once_the_other_is_declined() -> None:
    made = allowed_beside_another()
    made.decide("reject", n=2, reason="not twice")
    again = made.command("pay")
    assert (again.action_id, again.attempt) == ("r1/2", 2)
    made.answer(again, result={"paid": 1})
    assert made.command("m")


def test_what_happens_to_the_run_meanwhile_says_nothing_of_it() -> None:
    made = allowed_beside_another()
    for command in ("pause", "resume"):
        before = len(made.events)
        accepted(made.control(command))
        assert {event.type for event in made.events[before:]} <= {"run_paused", "run_resumed"}
    made.control("pause")
    made.decide("reject", n=2, reason="no")
    assert not made.commands
    made.control("resume")
    assert made.command("pay").action_id == "r1/2"


def test_it_is_not_made_when_the_run_is_cancelled() -> None:
    made = allowed_beside_another()
    made.control("cancel")
    assert made.status == "cancelled"
    assert not made.commands


def test_one_that_an_earlier_version_left_on_a_timer_looks_once_more() -> None:
    made = allowed_beside_another()
    last = next(e for e in reversed(made.events) if e.type == "retry_scheduled")
    assert last.data["error"]["code"] == "SAME_KEY"
    made.header.timers = {**made.header.timers, "act/2": made.now + 1000}
    found = accepted(decide(made.run, Timer("act/2"), made.now + 1000, made))
    assert [event.type for event in found.events] == ["retry_scheduled"]
    assert list(found.run.header.timers) == ["ask/2"]


def test_of_two_that_were_allowed_again_one_waits_for_the_other_and_never_both() -> None:
    made = World(tool("pay", "idempotent", key=["order"]))
    made.start()
    made.reply(None, ("pay", {"order": 7}), ("pay", {"order": 7}))
    for _ in range(2):
        made.fails(made.command("pay"), "permission", "http_403")
    made.reply(None, *[("ask_authority", {"reason": "r"})] * 2)
    for n in (1, 2):
        accepted(made.decide("approve", n=n))
    made.fails(made.command("pay"), "transient", "http_503")
    before = len(made.events)
    made.timer()
    assert len(made.events) == before + 1, "it is tried again, and nothing else happens"
    made.answer(made.command("pay"), result={"paid": 1})
    assert [made.action(n).result for n in (2, 3)] == [{"paid": 1}] * 2
    made.reply("done")
    assert made.outcome().complete
