"""What holds for every view: the server away and back, phone width, contrast, sign-in, the theme."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .conftest import Opening, Watched, visit
from .fake_api import FakeApi, World

VIEWS = {
    "/": ".rows .run-row",
    "/runs/refund-4711": ".step",
    "/runs/refund-4718": ".standing",
    "/runs/refund-4711#events": ".event-row",
    "/runs/refund-4711#state": ".state-grid",
    "/approvals": ".ask",
    "/approvals/refund-4718/a1": ".question-card",
    "/agents": ".card",
    "/tools": ".card",
    "/health": ".tile",
    "/submit": "#task-agent",
}

CONTRAST = """() => {
  const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
  const context = canvas.getContext('2d', {willReadFrequently: true});
  const rgb = (colour, under) => {
    context.fillStyle = `rgb(${under.join(' ')})`; context.fillRect(0, 0, 1, 1);
    context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = parts => parts.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    const chain = []; for (let at = element; at; at = at.parentElement) chain.unshift(at);
    return chain.reduce((under, at) => rgb(getComputedStyle(at).backgroundColor, under), [255, 255, 255]);
  };
  const bad = []; let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
    const style = getComputedStyle(element);
    if (element.closest('.unseen, .skip, option, noscript, svg')) continue;
    const under = ground(element); const [a, b] = [light(rgb(style.color, under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    looked++;
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 600);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${element.className}: ${element.textContent.slice(0, 30)}`);
  }
  return {looked, bad};
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast_is_aa(opening: Opening, api: FakeApi, dark: bool) -> None:
    page = opening(dark=dark)
    page.goto(api.url)
    for path, there in VIEWS.items():
        visit(page, path)
        page.locator(there).first.wait_for()
        found = page.evaluate(CONTRAST)
        assert found["looked"] > 10
        assert found["bad"] == [], path


def test_phone_width_scrolls_in_one_direction(opening: Opening, api: FakeApi) -> None:
    page = opening(width=360, height=740)
    page.goto(api.url)
    for path, there in VIEWS.items():
        visit(page, path)
        page.locator(there).first.wait_for()
        wide = page.evaluate(
            "[document.documentElement, document.getElementById('main')].map(e => e.scrollWidth - e.clientWidth)"
        )
        assert wide == [0, 0], path


def test_a_phone_decides(opening: Opening, api: FakeApi, world: World) -> None:
    page = opening(width=360, height=740, has_touch=True)
    page.goto(f"{api.url}/approvals")
    page.locator(".ask a").nth(1).tap()
    expect(page.locator(".question-card")).to_be_visible()
    expect(page.locator(".inbox-list")).to_be_hidden()
    page.get_by_role("button", name="Approve", exact=True).tap()
    page.locator("dialog [data-action=approve]").tap()
    expect(page.locator(".toast")).to_have_text("Approved.")


def test_the_server_goes_away_and_comes_back(
    page: Page, api: FakeApi, world: World, watched: Watched
) -> None:
    watched.allowed += [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONNECTION_RESET",
    ]
    page.goto(api.url)
    page.locator(".connection.live").wait_for()
    before = page.locator("[data-run=refund-4711]").bounding_box()
    api.stop()
    expect(page.locator("#banner")).to_contain_text("goes on by itself")
    assert page.locator("[data-run=refund-4711]").bounding_box() == before
    world.change("refund-4711", status="failed")
    api.start()
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("[data-run=refund-4711]")).to_contain_text("Failed")


def test_a_decision_while_the_server_is_away_is_not_lost_silently(
    page: Page, api: FakeApi, world: World, watched: Watched
) -> None:
    watched.allowed += [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONNECTION_RESET",
    ]
    page.goto(f"{api.url}/approvals/refund-4718/a1")
    page.locator(".decision-buttons").wait_for()
    page.keyboard.press("x")
    page.get_by_label("Reason").fill("no")
    api.stop()
    page.locator("dialog [data-action=reject]").click()
    expect(page.locator("dialog > form > .fault")).to_contain_text("does not answer")
    api.start()
    page.locator("dialog [data-action=reject]").click()
    expect(page.locator(".toast")).to_have_text("Rejected.")
    assert len(world.posted) == 1


def test_sign_in_with_a_token(page: Page, api: FakeApi, world: World, watched: Watched) -> None:
    watched.allowed += ["401"]
    world.token = "s3cret"
    page.goto(f"{api.url}/approvals")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="not known")).to_be_visible()
    page.get_by_label("Token").fill("s3cret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".ask")).to_have_count(5)
    assert page.evaluate("document.cookie") == ""


def test_the_theme_is_kept(opening: Opening, api: FakeApi) -> None:
    page = opening(dark=True)
    page.goto(f"{api.url}/submit")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_label("Switch between light and dark").click()
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == light


def test_submit_a_task(page: Page, api: FakeApi, world: World, watched: Watched) -> None:
    watched.allowed += ["404"]
    page.goto(api.url)
    page.keyboard.press("n")
    page.get_by_role("button", name="Submit task").click()
    expect(page.locator(".fault")).to_have_text("Choose the agent that is to do it.")
    page.get_by_label("Agent").select_option("refunds")
    page.get_by_label("Task", exact=True).fill(
        '{"order_id": "A-1", "amount": 12345678901234567890}'
    )
    page.get_by_label("This is JSON").check()
    page.get_by_text("Ids and budget").click()
    page.get_by_label("Task id").fill("my task")
    page.get_by_role("button", name="Submit task").click()
    expect(page.locator(".fault")).to_contain_text("only letters, digits")
    page.get_by_label("Task id").fill("mine-1")
    page.get_by_label("Steps at most").fill("5")
    page.get_by_role("button", name="Submit task").click()
    expect(page).to_have_url(f"{api.url}/runs/mine-1")
    assert world.posted == [("/api/tasks", {
        "agent": "refunds", "task_id": "mine-1", "budget": {"steps": 5},
        "input": {"order_id": "A-1", "amount": {"$int": "12345678901234567890"}},
    })]  # fmt: skip


def test_tools_show_effect_and_breaker(page: Page, api: FakeApi) -> None:
    page.goto(f"{api.url}/tools")
    broken = page.locator(".card").filter(has_text="contracts.find")
    expect(broken).to_contain_text("not called for")
    expect(broken).to_contain_text("5 of the last 5 calls failed: http_503")
    refund = page.locator(".card").filter(has_text="payments.refund")
    expect(refund).to_contain_text("writes once")
    expect(refund).to_contain_text("asks when arguments.amount > 100")


def test_focus_is_seen_and_the_skip_link_leads_to_the_content(page: Page, api: FakeApi) -> None:
    page.goto(api.url)
    page.locator(".rows .run-row").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    focused = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert focused == "solid"


def test_no_layout_shift_while_a_view_fills(page: Page, api: FakeApi) -> None:
    page.add_init_script(
        "window.jumps = 0; new PerformanceObserver(list => list.getEntries().forEach(e => { window.jumps += e.value }))"
        ".observe({type: 'layout-shift', buffered: true})"
    )
    for path in ("/", "/approvals/refund-4718/a1", "/health", "/tools"):
        page.goto(api.url + path)
        page.locator(VIEWS[path]).first.wait_for()
        page.locator(".connection.live").wait_for()
        page.wait_for_timeout(150)
        assert page.evaluate("window.jumps") < 0.02, path
