"""The README's pictures, from the stand-in's afternoon: `python -m tests.browser.screenshots [DIRECTORY]`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from .conftest import chromium, context_of
from .fake_api import FakeApi, World
from .scenes import MINUTE

IMAGES = Path(__file__).parents[2] / "docs" / "images"
VIEWS = {
    # name: (address, what must be there, height of the picture in pixels)
    "runs": ("/", ".rows .run-row", 800),
    "run": ("/runs/refund-4711", ".step", 1010),
    "inbox": ("/approvals/refund-4718/a1", ".question-card", 800),
    "health": ("/health", ".tile", 1010),
}


def afternoon() -> World:
    """The showcase's runs among thousands of others, whose numbers fit those of the other views."""
    made = World(10_000)
    newest = max(row["updated_at"] for row in made.rows if row["run_id"] not in made.scenes)
    moved = newest - (made.now - 8 * MINUTE)
    for row in made.rows:
        if row["run_id"] in made.scenes:
            continue
        if row["status"] == "waiting_approval":  # the inbox has five questions
            row.update(status="done", complete=True, waiting_for=[])
        for name in ("updated_at", "started_at", "finished_at"):
            row[name] = row[name] and row[name] - moved
    made.rows.sort(key=lambda row: row["updated_at"], reverse=True)
    return made


def modify(page: Page) -> None:
    """The dialog in which arguments are changed before they are approved."""
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    editor.fill(editor.input_value().replace("480.0", "240.0"))
    page.get_by_label("Reason").fill("Half of it: the vase was kept.")
    page.locator(".diff-new").wait_for()


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    api = FakeApi(afternoon()).start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for name, (address, there, height) in VIEWS.items():
                page = context_of(browser, 1280, height, theme == "dark").new_page()
                page.goto(api.url + address)
                page.locator(there).first.wait_for()
                page.locator(".connection.live").wait_for()
                page.wait_for_timeout(300)  # every font is there
                page.screenshot(path=directory / f"{name}-{theme}.png")
                if name == "inbox":
                    modify(page)
                    page.screenshot(path=directory / f"modify-{theme}.png")
                page.context.close()
            phone = context_of(browser, 360, 740, theme == "dark").new_page()
            phone.goto(f"{api.url}/runs/refund-4711")
            phone.locator(".step").first.wait_for()
            phone.locator(".connection.live").wait_for()
            phone.wait_for_timeout(300)
            phone.screenshot(path=directory / f"phone-{theme}.png")
            phone.context.close()
        browser.close()
    api.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
