"""Case Z06 and large integers: what a model or a user wrote is shown as it is, and never runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from .conftest import PATIENCE_MS, Watched, visit
from .fake_api import FakeApi, World
from .nasty import SHOWN
from .scenes import Scene

BIG = 12345678901234567890


def attacked(now: int, text: str) -> Scene:
    """A run in which the text stands wherever somebody else's text can stand."""
    run = Scene("nasty-1", now, text, title=text)
    run.decide(text, text[:60])
    made = run.call("payments.refund", {"to": text, text[:40]: 1}, "external")
    run.attempt(
        made,
        10,
        "failed",
        error={"kind": "business", "code": "x", "message": text, "retry_after_seconds": None},
    )
    run.ask("action", text, action=made, reason=text, question=text, rule={"source": "tool", "when": text, "asks": True},
            history={"completed": [], "errors": [{"kind": "business", "code": text[:20], "message": text}]})  # fmt: skip
    made["error"] = {"kind": "business", "code": "x", "message": text}
    return run.close()


@pytest.fixture(scope="module")
def loaded(desktop: BrowserContext, server: FakeApi) -> Iterator[tuple[Page, Watched]]:
    """One page for all texts: only what the server says changes."""
    server.world = World()
    page, watched = desktop.new_page(), Watched()
    watched.watch(page)
    page.goto(f"{server.url}/health")
    page.locator(".connection").wait_for()
    yield page, watched
    page.close()


def reads(place: Locator, shown: str) -> None:
    """The list shows what it knew until it has the answer: a moment later the text must be there.

    Playwright's own expectations fold blanks, of which every one counts here.
    """
    until = time.monotonic() + PATIENCE_MS / 1000
    while shown not in (read := place.evaluate("element => element.textContent")):
        assert time.monotonic() < until, (place, read[:300])
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "text", "shown"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_z06_is_inert_and_visible(
    loaded: tuple[Page, Watched], api: FakeApi, world: World, name: str, text: str, shown: str
) -> None:
    page, watched = loaded
    world.add(attacked(world.now, text))
    visit(page, "/health")
    for path, places in (
        ("/", ["[data-run=nasty-1] .row-link"]),
        ("/runs/nasty-1", [".run-title h1", ".quote", ".call-error", ".standing"]),
        (
            "/approvals/nasty-1/a1",
            [".question-card h2", ".members dd >> nth=0", ".question >> nth=0", ".rule code"],
        ),
    ):
        visit(page, path)
        for place in places:
            reads(page.locator(place).first, shown)
        expect(page).not_to_have_title("Perdure")
        assert page.title() != "XSS"
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.locator("main a[href^='javascript']").count() == 0
        hidden = page.evaluate(
            r"/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f]|\u{e0100}/u.test(document.body.textContent)"
        )
        assert not hidden
    assert watched.unexpected == []


def test_z06_cut_text_says_how_much_and_shows_all(page: Page, api: FakeApi, world: World) -> None:
    world.add(attacked(world.now, "x" * 9000 + "THE END"))
    page.goto(f"{api.url}/approvals/nasty-1/a1")
    value = page.locator(".members dd").first
    assert "THE END" not in value.inner_text()
    value.get_by_role("button", name="show all 9,007 characters").click()
    expect(value).to_contain_text("THE END")


def test_z06_an_editor_hides_nothing(page: Page, api: FakeApi, world: World) -> None:
    world.scenes["refund-4718"].approvals[0]["arguments"] = {"to": "a\u202eb\u200bc\U000e0100"}
    page.goto(f"{api.url}/approvals/refund-4718/a1")
    page.locator(".decision-buttons").wait_for()
    page.keyboard.press("m")
    expect(page.get_by_label("Arguments (JSON)")).to_have_value(
        '{\n  "to": "a\\u202eb\\u200bc\\udb40\\udd00"\n}'
    )


def test_m05_large_integers_are_shown_and_sent_exactly(
    page: Page, api: FakeApi, world: World
) -> None:
    arguments: dict[str, Any] = {
        "account": BIG,
        "small": -(2**53),
        "list": [BIG + 1],
        "like": {"$int": "5"},
        "rate": 1.0,
    }
    world.scenes["refund-4718"].approvals[0]["arguments"] = arguments
    page.goto(f"{api.url}/approvals/refund-4718/a1")
    expect(page.locator(".members")).to_contain_text("12345678901234567890")
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    text = editor.input_value()
    for part in (
        '"account": 12345678901234567890',
        "12345678901234567891",
        "-9007199254740992",
        '"rate": 1.0',
    ):
        assert part in text
    editor.fill(text.replace('"rate": 1.0', '"rate": 2.0'))
    page.get_by_label("Reason").fill("r")
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator(".toast")).to_have_text("Approved with changes.")
    assert world.posted[0][1]["arguments"] == {
        "account": {"$int": "12345678901234567890"},
        "small": {"$int": "-9007199254740992"},
        "list": [{"$int": "12345678901234567891"}],
        "like": {"$int_": "5"},
        "rate": 2.0,
    }


def test_a_name_that_javascript_knows_is_a_name(page: Page, api: FakeApi, world: World) -> None:
    world.scenes["refund-4718"].approvals[0]["arguments"] = {
        "__proto__": {"a": 1},
        "constructor": "c",
    }
    world.scenes["refund-4718"].row["status"] = "constructor"
    page.goto(f"{api.url}/approvals/refund-4718/a1")
    expect(page.locator(".members")).to_contain_text("__proto__")
    page.goto(f"{api.url}/runs/refund-4718")
    expect(page.locator(".run-who .status")).to_have_text("constructor")
