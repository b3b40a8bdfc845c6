"""The inbox: what is asked, and that exactly what a person says is sent."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from .fake_api import FakeApi, World
from .scenes import HOUR, question

DIGEST = "3b7c" * 16


def open_question(page: Page, api: FakeApi, approval_id: str) -> None:
    page.goto(f"{api.url}/approvals/{approval_id}")
    page.locator(".decision-buttons").wait_for()


def decided(world: World, approval_id: str) -> dict[str, object]:
    ((path, body),) = world.posted
    assert path == f"/api/approvals/{approval_id}/decisions"
    return body


def test_the_inbox_is_by_deadline_and_a_question_says_all(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/approvals")
    expect(page.locator(".ask")).to_have_count(5)
    expect(page.locator(".ask").first).to_contain_text("Was the letter to Kanalgade 4 posted?")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    card = page.locator(".question-card")
    for text in ("Refund 480.00 EUR", "the run is cancelled", "payments.refund", "480.0", "arguments.amount > 100",
                 "The customer sends all of it back", "orders.lookup", "writes once"):  # fmt: skip
        expect(card).to_contain_text(text)
    assert re.match(r"[45]:\d\d:\d\d$", page.locator(".deadline .until").inner_text())


def test_a_handover_says_what_went_wrong(page: Page, api: FakeApi) -> None:
    open_question(page, api, "invoice-2207/a1")
    rule = page.locator(".rule")
    expect(rule).to_contain_text("unavailable · API_UNAVAILABLE Service Unavailable")
    expect(rule).to_contain_text("3 times in a row")


def test_the_deadline_counts_down(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/approvals/sub-88/a1")
    left = page.locator(".deadline .until")
    before = left.inner_text()
    expect(left).not_to_have_text(before)
    expect(left).to_have_class(re.compile("soon"))


def test_approve_by_key_asks_once_more(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog", name="Approve")
    expect(dialog).to_contain_text("480.0")
    assert world.posted == []
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.locator("dialog [data-action=approve]").click()
    expect(page.locator(".toast")).to_have_text("Approved.")
    assert decided(world, "refund-4718/a1") == {"decision": "approve", "digest": DIGEST}


def test_approve_with_changes_shows_them_and_sends_them_exactly(
    page: Page, api: FakeApi, world: World
) -> None:
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    expect(editor).to_have_value(
        '{\n  "order_id": "A-4718",\n  "amount": 480.0,\n  "currency": "EUR"\n}'
    )
    editor.fill('{"order_id": "A-4718", "amount": 240.50, "currency": "SEK"}')
    expect(page.locator(".diff-gone")).to_have_text(
        [re.compile('"amount": 480.0'), re.compile('"currency": "EUR"')]
    )
    expect(page.locator(".diff-new")).to_have_text(
        [re.compile('"amount": 240.50'), re.compile('"currency": "SEK"')]
    )
    expect(page.locator(".advice")).to_contain_text('currency must be one of "EUR", "DKK"')
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("A reason is needed")
    page.get_by_label("Reason").fill("half of it")
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator(".toast")).to_have_text("Approved with changes.")
    assert decided(world, "refund-4718/a1") == {
        "decision": "modify", "digest": DIGEST, "reason": "half of it",
        "arguments": {"order_id": "A-4718", "amount": 240.50, "currency": "SEK"},
    }  # fmt: skip


def test_a_change_that_others_must_confirm_is_not_told_as_a_yes(
    page: Page, api: FakeApi, world: World
) -> None:
    world.reason = "counted: 0 of 1, for another rule asks about these arguments: boss may decide"
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("m")
    page.get_by_label("Arguments (JSON)").fill('{"order_id": "A-4718", "amount": 9000}')
    page.get_by_label("Reason").fill("more")
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator(".toast")).to_contain_text("others are asked about these arguments")


NOT_JSON = [
    ('{"amount": 1,}', "Line 1, column 14"),
    ('{"amount": 1, "amount": 2}', "stands here twice"),
    ("[1]", "must be a JSON object"),
    ('{"amount": NaN}', "can't stand here"),
    ("", "ends too early"),
]


def test_what_is_not_json_is_not_sent(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("m")
    page.get_by_label("Reason").fill("r")
    for text, said in NOT_JSON:
        page.get_by_label("Arguments (JSON)").fill(text)
        expect(page.locator("#editor-fault")).to_contain_text(said)
        page.locator("dialog [data-action=modify]").click()
        expect(page.locator("dialog > form > .fault")).to_contain_text("not JSON yet")
    assert world.posted == []


def test_masked_values_are_not_sent_back(page: Page, api: FakeApi, world: World) -> None:
    world.scenes["refund-4718"].approvals[0]["arguments"] = {"iban": "***", "amount": 5}
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("m")
    page.get_by_label("Arguments (JSON)").fill('{"iban": "***", "amount": 4}')
    page.get_by_label("Reason").fill("r")
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("masked")
    assert world.posted == []


def test_reject_needs_a_reason(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("x")
    page.locator("dialog [data-action=reject]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("A reason is needed")
    assert world.posted == []
    page.get_by_label("Reason").fill("not ours")
    page.locator("dialog [data-action=reject]").click()
    expect(page.locator(".toast")).to_have_text("Rejected.")
    assert decided(world, "refund-4718/a1") == {
        "decision": "reject",
        "digest": DIGEST,
        "reason": "not ours",
    }


def test_answer_a_question(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "address-301/a1")
    expect(page.locator(".question-card")).to_contain_text("A-302 of 9 May")
    page.get_by_role("button", name="Answer").click()
    page.locator("dialog [data-action=answer]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("Write the answer")
    page.locator("#decision-answer").fill("A-302, please")
    page.locator("dialog [data-action=answer]").click()
    expect(page.locator(".toast")).to_have_text("Answered.")
    assert decided(world, "address-301/a1") == {
        "decision": "answer",
        "digest": DIGEST,
        "answer": "A-302, please",
    }


def test_hand_over_an_answer_as_json(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "invoice-2207/a1")
    expect(page.locator(".question-card")).to_contain_text("API_UNAVAILABLE")
    page.get_by_role("button", name="Answer").click()
    page.locator("#decision-answer").fill('{"contract": 12345678901234567890, "ok": true}')
    page.get_by_label("This is JSON").check()
    page.locator("dialog [data-action=answer]").click()
    expect(page.locator(".toast")).to_have_text("Answered.")
    sent = decided(world, "invoice-2207/a1")
    assert sent["answer"] == {"contract": {"$int": "12345678901234567890"}, "ok": True}


def test_a_handover_is_tried_again(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "invoice-2207/a1")
    page.get_by_role("button", name="Try again").click()
    page.locator("dialog [data-action=retry]").click()
    expect(page.locator(".toast")).to_have_text("Tried again.")
    assert decided(world, "invoice-2207/a1") == {"decision": "retry", "digest": DIGEST}


def test_in_doubt_is_settled_with_a_reason(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "sub-88/a1")
    page.get_by_role("button", name="It happened").click()
    page.get_by_label("Reason").fill("the post office says so")
    page.locator("dialog [data-action=mark_done]").click()
    expect(page.locator(".toast")).to_have_text("Marked as done.")
    assert decided(world, "sub-88/a1") == {
        "decision": "mark_done", "digest": DIGEST, "reason": "the post office says so",
    }  # fmt: skip


def test_extend_a_budget_and_cancel_a_run(page: Page, api: FakeApi, world: World) -> None:
    open_question(page, api, "report-19/a1")
    page.get_by_role("button", name="Extend budget").click()
    page.get_by_label("More tokens").fill("lots")
    page.locator("dialog [data-action=extend]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("whole number")
    page.get_by_label("More tokens").fill("20000")
    page.locator("dialog [data-action=extend]").click()
    expect(page.locator(".toast")).to_have_text("Budget extended.")
    assert decided(world, "report-19/a1") == {
        "decision": "extend",
        "digest": DIGEST,
        "budget": {"tokens": 20000},
    }
    world.posted.clear()
    page.get_by_role("button", name="Cancel run").click()
    page.locator("dialog [data-action=cancel_run]").click()
    expect(page.locator(".toast").last).to_have_text("Run cancelled.")
    assert decided(world, "report-19/a1") == {"decision": "cancel_run", "digest": DIGEST}


def test_a_decision_that_does_not_count_says_why(page: Page, api: FakeApi, world: World) -> None:
    world.refuse = "already closed by bob"
    open_question(page, api, "refund-4718/a1")
    page.keyboard.press("a")
    page.locator("dialog [data-action=approve]").click()
    expect(page.locator("dialog > form > .fault")).to_have_text(
        "It did not count: already closed by bob"
    )


def test_who_may_not_decide_is_told_who_may(page: Page, api: FakeApi, world: World) -> None:
    world.scenes["refund-4718"].approvals[0]["may_decide"] = False
    page.goto(f"{api.url}/approvals/refund-4718/a1")
    expect(page.locator(".decision-bar")).to_contain_text("Asked of ann, bob; you are ann.")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_questions_come_and_go_by_themselves(page: Page, api: FakeApi, world: World) -> None:
    page.goto(f"{api.url}/approvals")
    expect(page.locator(".ask")).to_have_count(5)
    page.locator(".connection.live").wait_for()
    made = question(
        "refund-4711/a2", world.now, title="One more thing", expires_at=world.now + HOUR
    )
    world.scenes["refund-4711"].approvals.append(made)
    world.push("approval", {"approval_id": "refund-4711/a2", "run_id": "refund-4711", "open": True})
    expect(page.locator(".ask")).to_have_count(6)
    expect(page.locator(".badge")).to_have_text("6")
    world.scenes["refund-4711"].approvals.clear()
    world.push(
        "approval", {"approval_id": "refund-4711/a2", "run_id": "refund-4711", "open": False}
    )
    expect(page.locator(".ask")).to_have_count(5)
