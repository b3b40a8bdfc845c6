"""The page before the real thing: `perdure up`, its views, its engine, its workers, and a person who clicks."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import Watched

E2E = Path(__file__).parents[1] / "e2e"
SERVED = (Path(__file__).parents[2] / "streams" / "views" / "api" / "server.py").exists()

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not SERVED, reason="there is no server of the views yet"),
    pytest.mark.skipif(importlib.util.find_spec("faust") is None, reason="Faust is not installed"),
]


@dataclass
class Up:
    url: str
    pids: dict[str, list[int]]
    effects: Path

    def paid(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def answers(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    effects = directory / "effects.txt"
    command = [sys.executable, "-m", "perdure", "up", "--json", "--kafka-port", "0", "--port", "0"]
    command += ["--tools", str(E2E / "tools.py"), "--agents", str(E2E / "agents.yaml")]
    command += ["--data-dir", str(directory / "data")]
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "E2E_EFFECTS": str(effects)},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (directory / "up.log").read_text()
        ready = json.loads(line)
        made = Up(ready["url"].rstrip("/"), ready["pids"], effects)
        _until_served(made)
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)
        assert process.stdout is not None
        process.stdout.close()


def _until_served(up: Up) -> None:
    """The views come up beside the rest: what is asked of them earlier is refused."""
    end = time.monotonic() + 60
    while True:
        try:
            if up.answers("/api/health")["ready"]:
                return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def submitted(page: Page, up: Up, agent: str, task_id: str, amount: float) -> None:
    page.goto(f"{up.url}/submit")
    page.get_by_label("Agent").select_option(agent)
    page.get_by_label("Task", exact=True).fill(json.dumps({"amount": amount}))
    page.get_by_label("This is JSON").check()
    page.get_by_text("Ids and budget").click()
    page.get_by_label("Task id").fill(task_id)
    page.get_by_label("User").fill("uma")
    page.get_by_role("button", name="Submit task").click()
    page.get_by_role("link", name="Decide", exact=True).click(timeout=30_000)
    page.locator(".decision-buttons").wait_for()


@pytest.fixture
def page(page: Page, watched: Watched) -> Page:
    watched.allowed += ["404", "503", "ERR_"]
    page.set_default_timeout(20_000)
    return page


def test_submit_watch_approve_with_changes_done(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-1", 250)
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    editor.fill(editor.input_value().replace("250", "120"))
    page.get_by_label("Reason").fill("the rest is not due")
    page.locator("dialog [data-action=modify]").click()
    expect(page.locator(".toast")).to_have_text("Approved with changes.", timeout=30_000)
    page.keyboard.press("o")
    expect(page.locator(".outcome")).to_contain_text("Done", timeout=30_000)
    expect(page.locator(".calls").last.or_(page.locator(".story"))).to_contain_text("that is all")
    expect(page.locator('[data-action="real-1/2"]')).to_contain_text("changed and approved by")
    assert up.paid().count("pay 120.0") + up.paid().count("pay 120") == 1


def test_reject(page: Page, up: Up) -> None:
    before = up.paid()
    submitted(page, up, "payer", "real-2", 333)
    page.keyboard.press("x")
    page.get_by_label("Reason").fill("too much")
    page.locator("dialog [data-action=reject]").click()
    expect(page.locator(".toast")).to_have_text("Rejected.", timeout=30_000)
    page.keyboard.press("o")
    expect(page.locator('[data-action="real-2/2"]')).to_contain_text("rejected by", timeout=30_000)
    assert up.paid() == before


def test_cancel(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-3", 444)
    page.get_by_role("button", name="Cancel run").click()
    page.locator("dialog [data-action=cancel_run]").click()
    expect(page.locator(".toast")).to_have_text("Run cancelled.", timeout=30_000)
    page.keyboard.press("o")
    expect(page.locator(".run-who .status")).to_have_text("Cancelled", timeout=30_000)


def test_the_view_is_killed_while_the_page_is_open(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-4", 555)
    page.goto(f"{up.url}/")
    expect(page.locator("[data-run=real-4]")).to_contain_text("Waits for a person")
    page.locator(".connection.live").wait_for()
    for pid in up.pids["views"]:
        os.kill(pid, signal.SIGKILL)
    expect(page.locator("#banner")).to_be_visible(timeout=30_000)
    expect(page.locator("#banner")).to_be_hidden(timeout=60_000)
    expect(page.locator("[data-run=real-4]")).to_contain_text("Waits for a person", timeout=30_000)
    page.goto(f"{up.url}/health")
    expect(page.locator(".tile").first).to_contain_text("Ready", timeout=30_000)
