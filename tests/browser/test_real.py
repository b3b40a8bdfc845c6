"""The page before the real thing: `perdure up`, its views, its engine, its workers, and a person who clicks."""

from __future__ import annotations

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
from .nasty import SHOWN

HERE = Path(__file__).parent
TOOLS = (HERE.parent / "e2e" / "tools.py", HERE / "real_tools.py")
STARTS_SECONDS = 90

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@dataclass
class Up:
    url: str
    pids: dict[str, list[int]]
    directory: Path

    def paid(self) -> list[str]:
        effects = self.directory / "effects.txt"
        return effects.read_text().splitlines() if effects.exists() else []

    def answers(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "perdure", "up", "--json", "--kafka-port", "0", "--port", "0"]
    command += [flag for path in TOOLS for flag in ("--tools", str(path))]
    command += ["--agents", str(HERE / "real_agents.yaml"), "--data-dir", str(directory / "data")]
    outside = {
        "E2E_EFFECTS": str(directory / "effects.txt"),
        "REAL_REACHABLE": str(directory / "reachable"),
    }
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **outside}
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (directory / "up.log").read_text()
        ready = json.loads(line)
        made = Up(ready["url"].rstrip("/"), ready["pids"], directory)
        _until_served(made)
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)
        assert process.stdout is not None
        process.stdout.close()


def _until_served(up: Up) -> None:
    """The views come up beside the rest: what is asked of them earlier is refused."""
    end = time.monotonic() + STARTS_SECONDS
    while True:
        try:
            if up.answers("/api/health")["ready"]:
                return
        except OSError:
            pass
        assert time.monotonic() < end, (up.directory / "up.log").read_text()[-3000:]
        time.sleep(0.1)


def submitted(page: Page, up: Up, agent: str, task_id: str, task: Any, user: str = "uma") -> None:
    """A task through the page's form; then the question it leads to."""
    page.goto(f"{up.url}/submit")
    page.get_by_label("Agent").select_option(agent)
    page.get_by_label("Task", exact=True).fill(task if isinstance(task, str) else json.dumps(task))
    if not isinstance(task, str):
        page.get_by_label("This is JSON").check()
    page.get_by_text("Ids and budget").click()
    page.get_by_label("Task id").fill(task_id)
    page.get_by_label("User").fill(user)
    page.get_by_role("button", name="Submit task").click()
    page.get_by_role("link", name="Decide", exact=True).click()
    page.locator(".decision-buttons").wait_for()


def said(page: Page, decision: str, done: str) -> None:
    """The dialog's own button, and the engine's word that it counts."""
    page.locator(f"dialog [data-action={decision}]").click()
    expect(page.locator(".toast")).to_have_text(done)


@pytest.fixture
def page(page: Page, watched: Watched) -> Page:
    watched.allowed += ["404", "503", "ERR_"]
    return page


def test_submit_watch_approve_with_changes_done(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-1", {"amount": 250})
    page.keyboard.press("m")
    editor = page.get_by_label("Arguments (JSON)")
    editor.fill(editor.input_value().replace("250", "120"))
    page.get_by_label("Reason").fill("the rest is not due")
    said(page, "modify", "Approved with changes.")
    page.keyboard.press("o")
    expect(page.locator(".outcome")).to_contain_text("Done, nothing is missing")
    expect(page.locator(".run")).to_contain_text("that is all")
    expect(page.locator('[data-action="real-1/2"]')).to_contain_text("changed and approved by")
    assert [float(line.removeprefix("pay ")) for line in up.paid()] == [120.0]


def test_reject(page: Page, up: Up) -> None:
    before = up.paid()
    submitted(page, up, "payer", "real-2", {"amount": 333})
    page.keyboard.press("x")
    page.get_by_label("Reason").fill("too much")
    said(page, "reject", "Rejected.")
    page.keyboard.press("o")
    expect(page.locator('[data-action="real-2/2"]')).to_contain_text("rejected by")
    expect(page.locator(".run-who .status")).to_have_text("Done, incomplete")
    assert up.paid() == before


def test_answer_and_what_is_written_stays_text(page: Page, up: Up) -> None:
    """Z06 through the whole of it: task, question, answer, the model's last word."""
    texts = {name: (text, shown) for name, text, shown in SHOWN}
    asked = texts["Z06.7"][0] + texts["Z06.9"][0] + texts["Z06.2"][0]
    answer = texts["Z06.10"][0] + texts["Z06.7"][0]
    submitted(page, up, "asker", "real-5", asked, user=up.answers("/api/me")["user"])
    for name in ("Z06.7", "Z06.9", "Z06.2"):
        expect(page.locator(".question-card")).to_contain_text(texts[name][1])
    page.locator("[data-decision=answer]").click()
    page.get_by_role("textbox", name="Answer").fill(answer)
    said(page, "answer", "Answered.")
    page.keyboard.press("o")
    expect(page.locator(".outcome")).to_contain_text("you said: " + answer)
    for name in ("Z06.7", "Z06.9", "Z06.2", "Z06.10"):
        expect(page.locator(".run")).to_contain_text(texts[name][1])
    page.goto(f"{up.url}/")
    expect(page.locator("[data-run=real-5]")).to_contain_text(texts["Z06.7"][1])
    assert page.title() == "Runs · Perdure"
    assert page.locator("main img, main script").count() == 0


def test_handover(page: Page, up: Up) -> None:
    """The carrier stays away: a person sees to it, and has it tried again."""
    submitted(page, up, "shipper", "real-6", "parcel 7")
    expect(page.locator(".question-card")).to_contain_text("the carrier does not answer")
    (up.directory / "reachable").touch()
    page.locator("[data-decision=retry]").click()
    said(page, "retry", "Tried again.")
    page.keyboard.press("o")
    expect(page.locator(".outcome")).to_contain_text("Done")
    expect(page.locator(".run")).to_contain_text("it is on its way")


def test_cancel(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-3", {"amount": 444})
    page.get_by_role("button", name="Cancel run").click()
    said(page, "cancel_run", "Run cancelled.")
    page.keyboard.press("o")
    expect(page.locator(".run-who .status")).to_have_text("Cancelled")


def test_the_view_is_killed_while_the_page_is_open(page: Page, up: Up) -> None:
    submitted(page, up, "payer", "real-4", {"amount": 555})
    page.goto(f"{up.url}/")
    expect(page.locator("[data-run=real-4]")).to_contain_text("needs approval")
    page.locator(".connection.live").wait_for()
    for pid in up.pids["views"]:
        os.kill(pid, signal.SIGKILL)
    expect(page.locator("#banner")).to_be_visible()
    expect(page.locator("#banner")).to_be_hidden(timeout=60_000)
    page.locator("[data-run=real-4] .row-link").click()
    page.get_by_role("link", name="Decide", exact=True).click(timeout=60_000)
    page.locator(".decision-buttons").wait_for()
    page.keyboard.press("a")
    said(page, "approve", "Approved.")
    page.goto(f"{up.url}/health")
    expect(page.locator(".tile").first).to_contain_text("Ready")
    assert "pay 555.0" in up.paid()
