"""`perdure demo --keep`: it ends by naming the page, on which its runs are told and its last question is decided."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the demo says that its page is."""
    command = [sys.executable, "-m", "perdure", "demo", "--keep", "--no-kills"]
    command += ["--data-dir", str(tmp_path_factory.mktemp("demo") / "data")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"the page, with every run of this demo: (http://\S+)", line):
                yield found[1]
                break
        else:
            pytest.fail("".join(said[-40:]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_the_demo_is_followed_and_decided_on_its_page(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".summary")).to_have_text("33 runs")
    expect(page.locator("[data-run=r-keep]")).to_contain_text("needs approval")
    page.get_by_role("link", name=re.compile("Approvals")).click()
    page.get_by_role("link", name=re.compile("Refund 150")).click()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.locator("dialog [data-action=approve]").click()
    expect(page.locator(".toast")).to_have_text("Approved.")
    page.keyboard.press("o")
    expect(page.locator(".outcome")).to_contain_text("Done, nothing is missing")
    for said in ("approved by bob", "payments.refund", "mail.send"):
        expect(page.locator(".run")).to_contain_text(said)
