"""What `perdure up` starts its roles with is what they take: a flag of one is a flag of all."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from perdure.cli.app import app
from perdure.cli.supervisor import Role, Supervisor
from perdure.settings import Settings


@pytest.mark.parametrize("name", ["engine", "worker", "views"])
def test_a_role_takes_the_flags_of_its_supervisor(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Role, "start", lambda role: None)
    made = Settings(bootstrap_servers="h:1", data_dir=tmp_path, log_format="json", log_level="INFO")
    role = Supervisor(made).add(name)
    word, *flags = [*role.arguments, "--metrics-port", str(role.port)]
    command = typer.main.get_command(app).commands[word]  # type: ignore[attr-defined]
    taken = command.make_context(word, flags).params  # ends the process where a flag is unknown
    assert (taken["log_format"], taken["log_level"]) == ("json", "INFO")
    assert taken["metrics_port"] == role.port
