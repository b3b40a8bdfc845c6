"""A real Chromium before the page, and the API's stand-in behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from .fake_api import FakeApi, World

# Of no account where things work; where much else runs, a slow answer is no finding.
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "The browser tests need Chromium, and it is not there: install it (`apt-get install chromium`, "
    "or your system's way), or set PERDURE_TEST_CHROMIUM to the path of a Chromium or Chrome."
)


def chromium() -> str:
    """Path of a Chromium; as root on a system with apt it is installed if it is missing."""
    found = os.environ.get("PERDURE_TEST_CHROMIUM") or _installed()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "chromium"]):
            subprocess.run(command, check=False, capture_output=True, timeout=280)
        found = _installed()
    if found is None:
        pytest.fail(HOW, pytrace=False)
    return found


def _installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


# Of this package, not of the session: as long as it runs, playwright's own event loop counts as
# running in this thread, and no other test could start one.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="package")
def server() -> Iterator[FakeApi]:
    """One for all, so that the browser keeps the page's files; what it answers from changes."""
    made = FakeApi(World(scenes=False)).start()
    yield made
    made.stop()


@pytest.fixture
def api(server: FakeApi, world: World) -> FakeApi:
    server.world = world
    if server.server is None:  # a test that failed while it was away
        server.start()
    return server


class Watched:
    """What the browser complained of; nothing is allowed but what a test expects by name."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.allowed: list[str] = []

    def watch(self, page: Page) -> None:
        page.on(
            "console",
            lambda m: self.said.append(m.text) if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.said.append(f"uncaught: {error}"))
        page.on(
            "dialog",
            lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        )

    @property
    def unexpected(self) -> list[str]:
        return [one for one in self.said if not any(part in one for part in self.allowed)]


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    assert made.unexpected == []


Opening = Callable[..., Page]


def context_of(
    browser: Browser, width: int, height: int, dark: bool, **options: Any
) -> BrowserContext:
    made = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        **options,
    )
    made.set_default_timeout(PATIENCE_MS)
    return made


@pytest.fixture
def opening(browser: Browser, watched: Watched) -> Iterator[Opening]:
    """Makes pages: ``opening(width=360, dark=True, ...)``; any further option is the context's."""
    contexts: list[BrowserContext] = []

    def make(width: int = 1280, height: int = 800, dark: bool = False, **options: Any) -> Page:
        contexts.append(context_of(browser, width, height, dark, **options))
        page = contexts[-1].new_page()
        watched.watch(page)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def desktop(browser: Browser) -> Iterator[BrowserContext]:
    made = context_of(browser, 1280, 800, dark=False)
    yield made
    made.close()


@pytest.fixture
def page(desktop: BrowserContext, watched: Watched) -> Iterator[Page]:
    made = desktop.new_page()
    watched.watch(made)
    yield made
    made.close()
    desktop.clear_cookies()


def visit(page: Page, address: str) -> None:
    """Another address of the same page, as a click on a link goes there: nothing is loaded anew."""
    page.evaluate(
        "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')) }",
        address,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for the browser here is a browser test."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
