"""The list of runs: first sight, paging, filters, changes as they happen, the keyboard."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from .conftest import Opening
from .fake_api import FakeApi, World
from .scenes import row

ROWS = ".rows .run-row"


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return World(getattr(request, "param", 400), scenes=False)


def first(page: Page) -> str | None:
    return page.locator(ROWS).first.get_attribute("data-run")


@pytest.mark.parametrize("world", [10_000], indirect=True)
def test_pages_come_as_far_as_one_scrolls_and_few_rows_are_elements(
    page: Page, api: FakeApi
) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    expect(page.locator(".summary")).to_have_text("10,000 runs")
    for _ in range(12):
        page.evaluate(
            "main => { main.scrollTop = main.scrollHeight }", page.locator("#main").element_handle()
        )
        expect(page.locator(".list-end")).to_have_text("Loading more…")
        page.wait_for_timeout(60)
    assert page.locator(ROWS).count() < 60
    numbers = page.locator(ROWS).evaluate_all("rows => rows.map(r => r.dataset.run).sort()")
    assert len(set(numbers)) == len(numbers)
    assert numbers[0] < "run-009100", numbers[0]


def test_the_last_page_says_so(page: Page, api: FakeApi, world: World) -> None:
    del world.rows[120:]
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    page.locator("#main").evaluate("main => { main.scrollTop = main.scrollHeight }")
    expect(page.locator(".list-end")).to_have_text("That is all of them.")
    expect(page.locator(".summary")).to_have_text("120 runs")


def test_filters_narrow_and_stand_in_the_address(page: Page, api: FakeApi, world: World) -> None:
    page.goto(api.url)
    page.locator("[data-chip=failed]").click()
    number = sum(one["status"] == "failed" for one in world.rows)
    expect(page.locator(".summary")).to_have_text(f"{number} runs match")
    page.get_by_label("Agent").select_option("support")
    number = sum(one["status"] == "failed" and one["agent"] == "support" for one in world.rows)
    expect(page.locator(".summary")).to_have_text(f"{number} runs match")
    page.get_by_label("User").fill("lin")
    page.get_by_label("User").press("Enter")
    number = sum(
        (one["status"], one["agent"], one["user_id"]) == ("failed", "support", "lin")
        for one in world.rows
    )
    expect(page.locator(".summary")).to_have_text(f"{number} runs match")
    page.reload()
    expect(page.locator(".summary")).to_have_text(f"{number} runs match")
    expect(page.locator("[data-chip=failed]")).to_have_attribute("aria-pressed", "true")


def test_search_by_words_and_by_id_and_nothing_found(page: Page, api: FakeApi) -> None:
    page.goto(api.url)
    page.keyboard.press("/")
    page.keyboard.type("address A-1003")
    expect(page.locator(".summary")).not_to_have_text("400 runs")
    assert page.locator(ROWS).count() <= 1
    page.get_by_label("Search").fill("run-000398")
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_label("Search").fill("no such words")
    expect(page.locator(".empty")).to_contain_text("No run matches")
    page.get_by_role("button", name="Clear all filters").click()
    expect(page.locator(".summary")).to_have_text("400 runs")


def test_a_change_is_drawn_where_the_row_stands(page: Page, api: FakeApi, world: World) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    page.locator(ROWS).nth(3).hover()
    target = str(page.locator(ROWS).nth(3).get_attribute("data-run"))
    before = page.locator(f"[data-run={target}]").bounding_box()
    page.locator(".connection.live").wait_for()
    world.change(target, status="compensating")
    expect(page.locator(f"[data-run={target}]")).to_contain_text("Undoing")
    assert page.locator(f"[data-run={target}]").bounding_box() == before


def test_new_runs_do_not_move_what_is_being_read(page: Page, api: FakeApi, world: World) -> None:
    page.add_init_script(
        "window.jumps = 0; new PerformanceObserver(list => list.getEntries().forEach(e => { window.jumps += e.value }))"
        ".observe({type: 'layout-shift', buffered: true})"
    )
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    page.locator(".connection.live").wait_for()
    page.locator(ROWS).nth(2).hover()
    top = first(page)
    for n in range(5):
        made = row(f"new-{n}", int(time.time() * 1000), title=f"new {n}", version=3)
        world.rows.insert(0, made)
        world.push("run", made)
    pill = page.get_by_role("button", name="5 new or changed: show")
    pill.wait_for()
    assert first(page) == top
    assert page.evaluate("window.jumps") < 0.01
    pill.click()
    expect(page.locator("[data-run=new-4]")).to_be_visible()
    expect(page.locator(".summary")).to_have_text("405 runs")


def test_new_runs_come_by_themselves_at_the_top(page: Page, api: FakeApi, world: World) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    page.locator(".connection.live").wait_for()
    made = row("fresh-1", int(time.time() * 1000), title="fresh")
    world.rows.insert(0, made)
    world.push("run", made)
    expect(page.locator("[data-run=fresh-1]")).to_be_visible()


def test_the_keyboard_goes_through_the_list_and_back_finds_the_place(
    page: Page, api: FakeApi, world: World
) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    for _ in range(30):
        page.keyboard.press("j")
    page.keyboard.press("k")
    target = world.rows[28]["run_id"]
    expect(page.locator(f"[data-run={target}] a")).to_be_focused()
    expect(page.locator(f"[data-run={target}]")).to_be_in_viewport()
    scrolled = page.locator("#main").evaluate("main => main.scrollTop")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{api.url}/runs/{target}")
    page.locator(".run-title h1").wait_for()
    page.keyboard.press("u")
    expect(page.locator(f"[data-run={target}] a")).to_be_focused()
    assert page.locator("#main").evaluate("main => main.scrollTop") == scrolled


@pytest.mark.parametrize("by", ["keyboard", "mouse"])
def test_back_in_the_list_every_row_says_what_is_true_now(
    page: Page, api: FakeApi, world: World, by: str
) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    # The waiting ones, and one of them is opened.
    page.locator('[data-chip="waiting_approval"]').click()
    expect(page.locator(".summary")).to_contain_text("match")
    asking = [row["run_id"] for row in world.rows if row["status"] == "waiting_approval"]
    opened, decided, last = asking[2], asking[4], asking[6]
    if by == "mouse":
        page.locator(f"[data-run={opened}] a").click()
    else:
        for _ in range(3):
            page.keyboard.press("j")
        page.keyboard.press("Enter")
    expect(page).to_have_url(f"{api.url}/runs/{opened}")
    page.locator(".run-title h1").wait_for()
    # Meanwhile one goes on, one is asked something else, and one is new; nobody was told.
    world.listeners.clear()
    world.change(decided, status="running")
    world.change(last, title="asked once more")
    made = row("asks-now", int(time.time() * 1000), status="waiting_approval", title="new")
    world.rows.insert(0, made)
    page.keyboard.press("u")
    expect(page.locator(f"[data-run={last}]")).to_contain_text("asked once more")
    expect(page.locator(f"[data-run={decided}]")).to_have_count(0)
    expect(page).to_have_url(f"{api.url}/?status=waiting_approval")
    expect(page.get_by_role("button", name="1 new or changed: show")).to_be_visible()
    expect(page.locator(f"[data-run={opened}] a")).to_be_focused()
    shown = page.locator(ROWS).evaluate_all(
        "rows => rows.sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(r => r.dataset.run)"
    )
    assert shown[:6] == [*asking[:4], asking[5], last]


def test_help_lists_the_keys(page: Page, api: FakeApi) -> None:
    page.goto(api.url)
    page.locator(ROWS).first.wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Next run")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page).to_have_url(f"{api.url}/health")


def test_no_runs_yet_says_what_to_do(opening: Opening, api: FakeApi, world: World) -> None:
    world.rows.clear()
    page = opening()
    page.goto(api.url)
    expect(page.locator(".empty")).to_contain_text("perdure submit")
