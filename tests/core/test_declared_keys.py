"""``key``: a second call with the same declared arguments adopts the first one's result."""

from __future__ import annotations

import pytest
from perdure.schemas.records import ToolSpec

from .harness import PlanStep, World, accepted, refused, tool

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
