"""A small company's afternoon: the runs that the screenshots and most tests look at."""

from __future__ import annotations

from typing import Any

from .scenes import HOUR, MINUTE, SECOND, Json, Scene

UNAVAILABLE = {
    "kind": "transient",
    "code": "http_503",
    "message": "Service Unavailable",
    "retry_after_seconds": None,
}
REFUSED = {
    "kind": "business",
    "code": "not_open",
    "message": "invoice 2207 is closed",
    "retry_after_seconds": None,
}


def refunded(now: int) -> Scene:
    """Parallel calls, a retry, an approval with changes, an end."""
    run = Scene(
        "refund-4711", now - 22 * MINUTE, "Refund order A-4711: two of five cups arrived broken"
    )
    run.wait(40)
    run.decide(None, "orders.lookup", "customers.get", "fraud.score")
    lookup = run.call("orders.lookup", {"order_id": "A-4711"})
    customer = run.call("customers.get", {"customer_id": 9007199254740993})
    fraud = run.call("fraud.score", {"order_id": "A-4711", "amount": 250.0})
    run.attempt(lookup, 420, "succeeded", result={"order_id": "A-4711", "total": 250.0, "items": 5})
    run.attempt(customer, 610, "succeeded", result={"name": "J. Okafor", "since": 2019})
    run.attempt(fraud, 180, "failed", error=UNAVAILABLE)
    run.attempt(fraud, 300, "succeeded", after=1260, result={"score": 0.02})
    run.wait(1560)
    run.decide(None, "payments.refund")
    refund = run.call(
        "payments.refund", {"order_id": "A-4711", "amount": 250.0, "currency": "EUR"}, "idempotent"
    )
    asked = run.ask(
        "action", "Refund 250.00 EUR for order A-4711", action=refund, reason="Two cups are broken."
    )
    run.wait(14 * MINUTE + 21 * SECOND)
    run.answer(asked, "modify", "ann", "Only two of the five cups: refund these.",
               arguments={"order_id": "A-4711", "amount": 100.0, "currency": "EUR"})  # fmt: skip
    run.attempt(refund, 780, "succeeded", result={"refund_id": "re_83201", "state": "booked"})
    run.wait(780)
    run.decide("I refunded 100.00 EUR and let the customer know.", "mail.send")
    mail = run.call(
        "mail.send", {"to": "j.okafor@example.org", "subject": "Your refund"}, "external"
    )
    run.attempt(mail, 350, "succeeded", result={"message_id": "m-118"})
    run.wait(350)
    run.decide(
        "The refund of 100.00 EUR for order A-4711 is booked and the customer knows.", ms=900
    )
    run.finish("done", "The refund of 100.00 EUR for order A-4711 is booked and the customer knows.",
               result="refunded")  # fmt: skip
    return run.close()


def asking(now: int) -> Scene:
    """A refund that waits for a person right now, and one call beside it that goes on."""
    run = Scene(
        "refund-4718",
        now - 4 * MINUTE,
        "Refund order A-4718: wrong colour, customer wants all back",
    )
    run.decide(None, "orders.lookup")
    lookup = run.call("orders.lookup", {"order_id": "A-4718"})
    run.attempt(lookup, 380, "succeeded", result={"total": 480.0})
    run.wait(380)
    run.decide(None, "payments.refund", "notes.add")
    refund = run.call(
        "payments.refund", {"order_id": "A-4718", "amount": 480.0, "currency": "EUR"}, "idempotent"
    )
    note = run.call("notes.add", {"order_id": "A-4718", "text": "Colour complaint"}, "idempotent")
    run.ask("action", "Refund 480.00 EUR for order A-4718", action=refund, within=5 * HOUR,
            reason="The customer sends all of it back; the shop's rules allow a full refund within 14 days.",
            rule={"source": "tool", "when": "arguments.amount > 100", "asks": True},
            history={"completed": [{"action_id": "refund-4718/2", "tool": "orders.lookup",
                                    "arguments": {"order_id": "A-4718"}}], "errors": []})  # fmt: skip
    run.attempt(note, 240, "succeeded", result={"ok": True})
    run.wait(240)
    return run.close()


def clarifying(now: int) -> Scene:
    run = Scene(
        "address-301",
        now - 9 * MINUTE,
        "Change the delivery address of order A-301",
        agent="support",
        user_id="ann",
    )
    run.decide(None, "ask_user")
    run.ask("clarification", "Which of the two open orders is meant?", within=26 * HOUR, approvers=["ann"],
            question="You have two open orders, A-301 of 3 May and A-302 of 9 May.\nWhich one is to be sent to the new address?")  # fmt: skip
    return run.close()


def handed_over(now: int) -> Scene:
    """A service that stays away, until a person takes over."""
    run = Scene(
        "invoice-2207",
        now - 50 * MINUTE,
        "Check the supplier's invoice 2207 against the contract",
        agent="invoices",
    )
    run.decide(None, "contracts.find")
    find = run.call("contracts.find", {"supplier": "Nordlicht AS", "invoice": 2207})
    for tries in range(3):
        run.attempt(find, 900, "failed", after=tries * 3200, error=UNAVAILABLE)
    find["error"] = {**UNAVAILABLE, "kind": "unavailable", "code": "API_UNAVAILABLE"}
    run.wait(9 * SECOND)
    run.ask("handover", "contracts.find failed three times: take over invoice 2207", within=6 * 24 * HOUR,
            rule={"error": {"kind": "unavailable", "code": "API_UNAVAILABLE", "message": "Service Unavailable"},
                  "in_a_row": 3},
            history={"completed": [], "errors": [{"kind": "unavailable", "code": "API_UNAVAILABLE",
                                                  "message": "Service Unavailable"}]})  # fmt: skip
    return run.close()


def doubtful(now: int) -> Scene:
    run = Scene(
        "sub-88", now - 35 * MINUTE, "Cancel subscription S-88 and confirm by mail", agent="support"
    )
    run.decide(None, "letters.post")
    letter = run.call(
        "letters.post", {"to": "Kanalgade 4, 7100 Vejle", "template": "goodbye"}, "external"
    )
    run.attempt(letter, 30_000, "unknown", error={"kind": "unknown", "code": "read_timeout",
                "message": "no answer within 30 s", "retry_after_seconds": None})  # fmt: skip
    run.wait(30_000)
    letter["status"] = "in_doubt"
    run.ask("in_doubt", "Was the letter to Kanalgade 4 posted?", within=40 * MINUTE)
    asked = run.approvals[-1]
    asked.update(
        tool="letters.post",
        action_id=letter["action_id"],
        arguments=letter["arguments"],
        effect="external",
    )
    return run.close()


def over_budget(now: int) -> Scene:
    run = Scene(
        "report-19", now - 80 * MINUTE, "Write the weekly report on open invoices", agent="invoices"
    )
    run.decide("I have read 40 of 112 invoices.")
    run.ask("budget", "50,000 tokens are used up: extend the budget?", within=3 * 24 * HOUR)
    return run.close()


def failed(now: int) -> Scene:
    """What was done is undone, last first."""
    run = Scene(
        "invoice-2190", now - 3 * HOUR, "Book invoice 2190 and order its transfer", agent="invoices"
    )
    run.decide(None, "ledger.book", "transfers.order")
    book = run.call("ledger.book", {"invoice": 2190, "amount": 1830.5}, "idempotent")
    order = run.call("transfers.order", {"invoice": 2190}, "idempotent")
    run.attempt(book, 340, "succeeded", result={"entry": 77120})
    run.attempt(order, 520, "failed", error=REFUSED)
    run.wait(520)
    run.say("ending_started", "Failing: transfers.order was refused", tone="bad")
    run.say("compensation_started", "Undoing ledger.book")
    undo = run.call("ledger.unbook", {"entry": 77120}, "idempotent", kind="compensation")
    run.attempt(undo, 290, "succeeded")
    run.wait(290)
    book["status"] = "compensated"
    run.finish(
        "failed",
        "The transfer was refused: invoice 2190 is closed. The booking was undone.",
        complete=False,
    )
    return run.close()


def showcase(now: int) -> list[Scene]:
    return [
        f(now) for f in (refunded, asking, clarifying, handed_over, doubtful, over_budget, failed)
    ]


def agents() -> list[Json]:
    def one(name: str, instructions: str, tools: list[str], **runs: int) -> Json:
        return {
            "name": name, "instructions": instructions, "tools": tools, "version": 3, "runs": runs,
            "model": {"provider": "openai", "name": "gpt-4.1-mini"},
            "budget": {"steps": 20, "tokens": 50_000, "seconds": 86_400.0, "then": "ask"},
        }  # fmt: skip

    return [
        one("refunds", "You handle refund requests. Look the order up before anything else.",
            ["orders.lookup", "customers.get", "fraud.score", "payments.refund", "mail.send"], running=14, waiting_approval=3, done=4210, failed=31),
        one("support", "You answer customers' questions about their orders and subscriptions.",
            ["orders.lookup", "letters.post", "mail.send"], running=4, waiting_approval=2, done=2980),
        one("invoices", "You check suppliers' invoices against their contracts and book them.",
            ["contracts.find", "ledger.book", "transfers.order"], waiting_approval=2, done=1106, failed=12),
    ]  # fmt: skip


def tools(now: int) -> list[Json]:
    amount: Json = {"type": "number", "minimum": 0, "maximum": 1000}

    def one(
        name: str, description: str, effect: str, calls: int, failures: int, **more: Any
    ) -> Json:
        parameters = {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        }
        made = {
            "name": name, "description": description, "effect": effect, "approval": "never", "has_query": False,
            "parameters": parameters, "timeout_seconds": 30.0, "queue": "tools", "version": 1, "calls": calls,
            "failures": failures, "last_status": "succeeded", "breaker": None,
        }  # fmt: skip
        return {**made, **more}

    return [
        one("orders.lookup", "Look an order up by its id.", "read_only", 8412, 3),
        one("fraud.score", "How likely an order is a fraud, 0 to 1.", "read_only", 4120, 212),
        one("payments.refund", "Refund an order, whole or in part.", "idempotent", 1804, 9, has_query=True,
            approval="arguments.amount > 100", compensate="payments.cancel_refund", timeout_seconds=10.0,
            parameters={"type": "object", "additionalProperties": False, "required": ["order_id", "amount"],
                        "properties": {"order_id": {"type": "string"}, "amount": amount,
                                       "currency": {"type": "string", "enum": ["EUR", "DKK"]}}}),
        one("mail.send", "Send a mail to a customer.", "external", 6033, 4),
        one("letters.post", "Print and post a letter.", "external", 88, 1, approval="always", last_status="unknown"),
        one("contracts.find", "Find the contract with a supplier.", "read_only", 1130, 406, last_status="failed",
            breaker={"open_until": now + 42 * SECOND, "reason": "5 of the last 5 calls failed: http_503"}),
    ]  # fmt: skip
