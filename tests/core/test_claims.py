"""What an answer says of its calls: flagged when no call of that tool was completed."""

from __future__ import annotations

import pytest
from perdure.streams.core.policies.claims import spoken_of

from .harness import World, accepted, tool

TOOLS = ["payments.refund", "mail.send", "orders.lookup", "pay", "put_note"]


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("I have refunded the order and used mail.send.", ["payments.refund", "mail.send"]),
        ("payments__refund completed for order 5", ["payments.refund"]),
        ("The order was successfully refunded. I've sent a mail.", ["payments.refund", "mail.send"]),
        ("Refunded 30 EUR. The mail was not sent.", ["payments.refund"]),
        ("I have paid the bill.", ["pay"]),
        ("Your parcel was sent on Monday.", []),
        ("I used put note twice", ["put_note"]),
        ("I could not call payments.refund.", []),
        ("The payments.refund call was declined by a person.", []),
        ("If you want, I can use mail.send.", []),
        ("Was it refunded?", []),
        ("I haven’t refunded anything.", []),
        ("All done.", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_sentence_that_names_a_tool_and_denies_nothing_is_a_claim(
    text: str, claims: list[str]
) -> None:
    assert spoken_of(text, TOOLS) == claims


def test_the_outcome_flags_a_claim_and_tells_the_user() -> None:
    made = World(tool("orders.lookup"), tool("payments.refund", "external", approval="always"))
    made.start()
    made.reply(None, ("orders.lookup", {}), ("payments.refund", {}))
    made.answer(made.command("orders.lookup"), result=1)
    made.decide("reject", reason="no")
    made.reply("I looked it up with orders.lookup and refunded it with payments.refund.")
    outcome = made.outcome()
    assert [error["tool"] for error in outcome.errors if error["kind"] == "claim"] == [
        "payments.refund"
    ]
    assert "(No call of payments.refund was completed, whatever the answer says.)" in outcome.text
    assert not outcome.complete


def test_a_claim_of_what_was_done_is_none() -> None:
    made = World(tool("payments.refund", "idempotent"))
    made.start()
    made.reply(None, ("payments.refund", {}))
    made.answer(made.command("payments.refund"), result={"ok": True})
    accepted(made.reply("Refunded."))
    assert made.outcome().errors == []
    assert made.outcome().complete


def test_what_was_done_and_undone_is_a_claim() -> None:
    """The lists say that it was undone; an answer that speaks of it as done is wrong."""
    assert spoken_of("The order is refunded.", ["payments.refund"]) == ["payments.refund"]
