"""``perdure simulate``: what it prints, and that a failure names the one seed that repeats it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from perdure.cli.app import app

from .mutants import commands_sent_twice

pytestmark = pytest.mark.simulation


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_it_tells_what_the_seeds_did() -> None:
    code, out, _ = run("--seeds", "2", "--from", "3", "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["seeds"]) == (0, True, 2)
    assert report["runs"] >= 2
    assert report["seeds_per_second"] > 0


def test_a_failure_names_its_seed_and_the_seed_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    commands_sent_twice(monkeypatch)
    code, out, errors = run("--seeds", "50", "--json")
    first = json.loads(out)
    assert (code, first["ok"]) == (1, False)
    assert f"seed {first['seed']}" in errors
    code, out, _ = run("--seed", str(first["seed"]), "--json")
    again = json.loads(out)
    assert (code, again["wrong"], again["fingerprint"]) == (
        1,
        first["wrong"],
        first["fingerprint"],
    )
    _, text, _ = run("--seed", str(first["seed"]))
    assert f"again: perdure simulate --seed {first['seed']}" in text
