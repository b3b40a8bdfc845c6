"""A run's page: what one reads in it, and what an operator may do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .fake_api import FakeApi, World
from .scenes import MINUTE, Scene
from .showcase import asking


def call(page: Page, action_id: str) -> str:
    text = page.locator(f'[data-action="{action_id}"]').inner_text()
    return " ".join(text.split())


def test_the_story_of_a_run(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/runs/refund-4711")
    page.locator(".step").nth(3).wait_for()
    together = page.locator(".calls.together")
    expect(together).to_have_count(1)
    expect(together.locator(".call")).to_have_count(3)
    assert "2 attempts" in call(page, "refund-4711/4")
    assert "changed and approved by ann" in call(page, "refund-4711/6")
    decided = page.locator('[data-action="refund-4711/1"]')
    expect(decided).to_contain_text("decides: orders.lookup, customers.get, fraud.score")
    expect(page.locator(".outcome")).to_contain_text("Done, nothing is missing")
    facts = page.locator(".run > .facts").inner_text()
    assert re.search(r"Waited for people\s+14 min 21 s", facts), facts
    assert re.search(r"Calls\s+9 \+ 1 again", facts), facts


def test_bars_stand_where_the_calls_ran(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/runs/refund-4711")
    page.locator(".step").nth(3).wait_for()

    def bar(action: int, kind: str) -> dict[str, float]:
        box = page.locator(f'[data-action="refund-4711/{action}"] .bar-{kind}').first.bounding_box()
        assert box is not None
        return {"left": box["x"], "right": box["x"] + box["width"]}

    model, lookup, customer = bar(1, "good"), bar(2, "good"), bar(3, "good")
    assert model["right"] <= lookup["left"] + 1
    assert abs(lookup["left"] - customer["left"]) < 2  # began together
    assert lookup["right"] < customer["right"]
    failed, again = bar(4, "bad"), bar(4, "good")
    assert failed["right"] < again["left"]
    waited, ran = bar(6, "person"), bar(6, "good")
    assert waited["right"] <= ran["left"] + 1
    assert ran["right"] - ran["left"] > 20  # seen, though the wait was a thousand times longer


def test_a_call_opens_with_arguments_result_attempts(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/runs/refund-4711")
    page.locator(".step").nth(3).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    detail = page.locator('[data-action="refund-4711/4"] .call-detail')
    expect(detail).to_contain_text("http_503: Service Unavailable")
    expect(detail).to_contain_text("0.02")
    expect(page.locator('[data-action="refund-4711/4"] .call-toggle')).to_have_attribute(
        "aria-expanded", "true"
    )
    page.keyboard.press("Enter")
    expect(detail).to_have_count(0)
    page.locator('[data-action="refund-4711/6"] .call-toggle').click()
    changed = page.locator('[data-action="refund-4711/6"] .call-detail')
    expect(changed).to_contain_text("Asked with these arguments first")
    expect(changed).to_contain_text("250.0")
    expect(changed).to_contain_text("Only two of the five cups")


def test_what_failed_and_was_undone(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/runs/invoice-2190")
    expect(page.locator(".outcome")).to_contain_text("Undone (1)")
    expect(page.locator('[data-action="invoice-2190/3"]')).to_contain_text(
        "not_open: invoice 2207 is closed"
    )
    expect(page.locator(".step").nth(1)).to_contain_text("Undoing")


def test_every_event_and_one_of_them_whole(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/runs/refund-4711")
    page.locator(".step").first.wait_for()
    page.keyboard.press("e")
    expect(page.locator(".event-row").first).to_contain_text("Started with Refund order A-4711")
    page.locator("[data-version='8']").click()
    dialog = page.get_by_role("dialog", name="Event 8")
    expect(dialog).to_contain_text("http_503")
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="State").click()
    expect(page.locator(".state-grid")).to_contain_text("confirmed_items")
    page.reload()
    expect(page.get_by_role("tab", name="State")).to_have_attribute("aria-selected", "true")


def test_a_waiting_run_names_what_it_waits_for_and_goes_on_live(
    page: Page, api: FakeApi, world: World
) -> None:
    page.goto(f"{api.url}/runs/refund-4718")
    expect(page.locator(".standing")).to_contain_text("Refund 480.00 EUR for order A-4718")
    page.locator(".connection.live").wait_for()
    scene = world.scenes["refund-4718"]
    scene.at = world.now
    scene.answer(scene.approvals[0], "approve", "bob")
    scene.attempt(scene.actions[3], 500, "succeeded", result={"refund_id": "re_1"})
    scene.wait(500)
    scene.finish("done", "Refunded.")
    scene.close()
    world.push("run", scene.row)
    expect(page.locator(".outcome")).to_contain_text("Refunded.")
    expect(page.locator(".standing")).to_have_count(0)
    expect(page.locator('[data-action="refund-4718/4"]')).to_contain_text("approved by bob")


@pytest.mark.parametrize(
    ("button", "command", "more"),
    [
        ("Pause", "pause", {}),
        ("Message", "message", {"content": "The customer called again."}),
        ("Extend", "extend", {"budget": {"steps": 5, "cost": 1.5}}),
        ("Cancel", "cancel", {"compensate": True}),
    ],
)
def test_an_operator_steers_a_run(
    page: Page, api: FakeApi, world: World, button: str, command: str, more: dict[str, object]
) -> None:
    page.goto(f"{api.url}/runs/refund-4718")
    page.get_by_role("group", name="What to do with this run").get_by_role(
        "button", name=button
    ).click()
    if command == "message":
        page.locator("#control-content").fill("The customer called again.")
    if command == "extend":
        page.get_by_label("More steps").fill("5")
        page.get_by_label("More cost").fill("1.5")
    if command == "cancel":
        page.get_by_label("Undo what was done").check()
    page.get_by_label("Reason").fill("asked by phone")
    page.locator(f"dialog [data-action={command}]").click()
    expect(page.locator(".toast")).to_contain_text("accepted")
    assert world.posted == [
        ("/api/runs/refund-4718/control", {"command": command, "reason": "asked by phone", **more})
    ]


def test_a_viewer_is_offered_nothing(page: Page, api: FakeApi, world: World) -> None:
    world.me = {"user": "vic", "roles": ["viewer"], "dev": False}
    page.goto(f"{api.url}/runs/refund-4718")
    page.locator(".step").first.wait_for()
    expect(page.locator(".controls")).to_have_count(0)


def test_a_run_that_is_not_there_yet_appears(
    page: Page, api: FakeApi, world: World, watched: object
) -> None:
    watched.allowed.append("404")  # type: ignore[attr-defined]
    page.goto(f"{api.url}/runs/late-1")
    expect(page.locator(".empty")).to_contain_text("No such run yet")
    scene = asking(world.now)
    scene.run_id = scene.row["run_id"] = "late-1"
    world.add(scene)
    expect(page.locator(".run-title h1")).to_contain_text("Refund order A-4718")


def test_a_run_of_many_steps_shows_its_last(page: Page, api: FakeApi, world: World) -> None:
    scene = Scene("long-1", world.now - 60 * MINUTE, "Read all invoices")
    for n in range(150):
        scene.decide(None, "read")
        scene.attempt(scene.call("read", {"n": n}), 20, "succeeded", result={"n": n})
        scene.wait(20)
    world.add(scene.close())
    page.goto(f"{api.url}/runs/long-1")
    expect(page.locator(".step").last).to_contain_text("Step 150")
    assert page.locator(".step").count() < 70
    page.get_by_role("button", name="Show 90 earlier steps").click()
    expect(page.locator(".step")).to_have_count(150)
