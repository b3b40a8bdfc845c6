"""The demonstration, as `make demo` runs it: six kills -9, judged from outside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


def test_demo_finds_every_effect_once() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "perdure", "demo", "--json"],
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert made.returncode == 0, made.stderr[-4000:]
    summary = json.loads(made.stdout.splitlines()[-1])
    assert summary["runs"] >= 24
    assert summary["kills"] == 6
    assert summary["effects_found"] == summary["effects_expected"]
    assert (summary["duplicate_effects"], summary["missing_effects"]) == (0, 0)
    assert summary["done"] + summary["failed"] == summary["runs"]
