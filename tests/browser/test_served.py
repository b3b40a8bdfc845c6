"""The page before the views' own server, over tables in memory: what the two say fits together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from perdure.schemas.records import Verdict
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.views.histories import golden
from tests.views.world import ANN, World, access

from .conftest import Watched, context_of

HOUR = 3_600_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    now = int(time.time() * 1000)
    made = World(access(tmp_path_factory.mktemp("tokens") / "tokens.jsonl"))
    for n in range(120):
        made.feed(golden("0.1-first-plan", f"plan-{n:03}", now - HOUR + n * 1000))
    made.feed(golden("0.1-first-model_loop", "model-1", now))
    made.feed(golden("0.1-first-doubt_and_cancel", "doubt-1", now))
    made.feed(golden("0.1-first-handover", "handover-1", now))
    made.ask(
        approval_id="model-1/a7", run_id="model-1", arguments={"amount": 2**63, "rate": 1.0},
        requested_at=now, expires_at=now + HOUR,
    )  # fmt: skip
    with made.served() as address:
        yield made, address


@pytest.fixture(scope="module")
def signed_in(browser: Browser, served: tuple[World, str]) -> Iterator[BrowserContext]:
    """A browser in which ann has given her token: the cookie stays for every page of it."""
    made = context_of(browser, 1280, 800, dark=False)
    page = made.new_page()
    page.goto(served[1])
    page.get_by_label("Token").fill(ANN)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".rows .run-row").first.wait_for()
    page.close()
    yield made
    made.close()


@pytest.fixture
def page(signed_in: BrowserContext, served: tuple[World, str], watched: Watched) -> Iterator[Page]:
    made = signed_in.new_page()
    watched.watch(made)
    made.goto(served[1])
    made.locator(".rows .run-row").first.wait_for()
    yield made
    made.close()


def test_runs_are_listed_and_paged(page: Page) -> None:
    expect(page.locator(".summary")).to_have_text("123 runs")
    page.locator(".connection.live").wait_for()
    for _ in range(4):
        page.locator("#main").evaluate("main => { main.scrollTop = main.scrollHeight }")
        page.wait_for_timeout(100)
    expect(page.locator(".list-end")).to_have_text("That is all of them.")


def test_recorded_runs_are_told_whole(page: Page, served: tuple[World, str]) -> None:
    for run_id, texts in {
        "model-1": [
            "2 attempts: rate_limited",
            "changed and approved by ann",
            "found, not repeated",
            "all done",
        ],
        "plan-007": ["rejected by ann", "approved by", "skipped"],
        "doubt-1": ["not answered"],
        "handover-1": ["2 attempts: down"],
    }.items():
        page.goto(f"{served[1]}/runs/{run_id}")
        for text in texts:
            expect(page.locator(".run")).to_contain_text(text)
        page.keyboard.press("e")
        expect(page.locator(".event-row").first).to_contain_text("Started")
        page.locator(".event-row").first.click()
        expect(page.get_by_role("dialog")).to_contain_text("run_started")


def test_a_decision_is_sent_as_it_was_made(page: Page, served: tuple[World, str]) -> None:
    world, address = served
    page.goto(f"{address}/approvals/model-1/a7")
    expect(page.locator(".members")).to_contain_text(str(2**63))
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    editor.fill(editor.input_value().replace("1.0", "2.5"))
    page.get_by_label("Reason").fill("r")
    verdict: dict[str, Any] = {"run_id": "model-1", "request_id": "q1", "accepted": True, "at": 1}
    world.door.verdicts["model-1", "q1"] = Verdict(**verdict)
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator(".toast")).to_have_text("Approved with changes.")
    (decision,) = world.door.decisions
    assert (decision.approver, decision.reason) == ("ann", "r")
    assert decision.arguments == {"amount": 2**63, "rate": 2.5}


def test_a_change_is_seen(page: Page, served: tuple[World, str]) -> None:
    page.locator(".connection.live").wait_for()
    served[0].feed(golden("0.1-first-plan", "later-1", int(time.time() * 1000)))
    expect(page.locator("[data-run=later-1]")).to_be_visible()


def test_every_other_view_is_drawn(page: Page, served: tuple[World, str]) -> None:
    for path, there in {
        "/health": ".tile",
        "/agents": ".empty",
        "/tools": ".empty",
        "/submit": "form",
    }.items():
        page.goto(served[1] + path)
        expect(page.locator(there).first).to_be_visible()
