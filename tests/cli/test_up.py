"""What `perdure up` leaves in its data directory, and how it ends where it can't start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.cli.up import Deployment
from perdure.settings import Settings

from .desk import run


def noted(directory: Path, **more: Any) -> Deployment:
    """One that has said where it is."""
    settings = Settings(bootstrap_servers="x:1", data_dir=directory, **more)
    made = Deployment(settings, tools=[], agents=None, views=False)
    made._note()
    return made


def test_an_up_that_fails_leaves_the_note_of_the_one_that_runs(tmp_path: Path) -> None:
    running = noted(tmp_path)
    where = ("--data-dir", str(tmp_path))
    failed = run("up", "--agents", str(tmp_path / "nosuch.yaml"), *where)
    assert failed.exit_code == 1
    assert json.loads((tmp_path / "up.json").read_text())["bootstrap_servers"] == "x:1"
    running.stop()
    assert not (tmp_path / "up.json").exists()


def test_a_note_that_another_has_written_since_stays(tmp_path: Path) -> None:
    first = noted(tmp_path)
    (tmp_path / "up.json").write_text('{"bootstrap_servers": "y:1"}')
    first.stop()
    assert (tmp_path / "up.json").exists()
    (tmp_path / "up.json").write_text("{")
    first.stop()
    assert (tmp_path / "up.json").exists()


def test_the_note_says_who_may_call_the_page(tmp_path: Path) -> None:
    made = noted(tmp_path, tokens_file=tmp_path / "tokens.jsonl")
    told = json.loads((tmp_path / "up.json").read_text())
    assert told["tokens_file"] == str(tmp_path / "tokens.jsonl")
    made.stop()
