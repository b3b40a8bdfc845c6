"""What `perdure doctor` says of the views without asking Kafka."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from perdure.streams.views.access import entry

from perdure.cli import doctor_views, view_tables
from perdure.settings import Settings


def said(name: str, directory: Path, tokens: Path | None = None) -> tuple[str, str]:
    made = Settings(data_dir=directory, tokens_file=tokens)
    (found,) = [each for each in doctor_views.here(made) if each.name == name]
    return found.level, found.text


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.jsonl"
    path.write_text(json.dumps(entry("t", "ann", ["viewer"])))
    path.chmod(0o600)
    return path


def test_tokens_that_are_sound_name_who_may_call(tmp_path: Path, tokens: Path) -> None:
    assert said("tokens", tmp_path, tokens) == ("ok", f"{tokens} lets in 1: ann")
    assert said("tokens", tmp_path)[0] == "ok"


@pytest.mark.parametrize(
    ("mode", "level", "says"),
    [(0o644, "warn", "may read"), (0o620, "problem", "may write"), (0o602, "problem", "may write")],
)
def test_tokens_are_their_owners_business(
    tmp_path: Path, tokens: Path, mode: int, level: str, says: str
) -> None:
    tokens.chmod(mode)
    found = said("tokens", tmp_path, tokens)
    assert found[0] == level
    assert says in found[1]
    assert f"chmod 600 {tokens}" in found[1]


def test_tokens_that_cant_be_used_are_a_problem(tmp_path: Path, tokens: Path) -> None:
    assert said("tokens", tmp_path, tmp_path / "none")[0] == "problem"
    tokens.write_text("{")
    assert said("tokens", tmp_path, tokens)[0] == "problem"


def test_the_tokens_of_a_running_up_are_those_that_count(tmp_path: Path, tokens: Path) -> None:
    (tmp_path / "up.json").write_text(json.dumps({"tokens_file": str(tokens)}))
    assert said("tokens", tmp_path) == ("ok", f"{tokens} lets in 1: ann")
    other = tmp_path / "none"
    assert said("tokens", tmp_path, other) == said("tokens", tmp_path / "elsewhere", other)
    (tmp_path / "up.json").write_text(json.dumps({"tokens_file": None}))
    assert said("tokens", tmp_path)[1].startswith("no tokens_file: ")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[dict[str, int]]:
    """A page that answers with ``status``, noted by its `perdure up`."""
    answer = {"status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer["status"] if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    noted = {"url": f"http://127.0.0.1:{server.server_address[1]}"}
    (tmp_path / "up.json").write_text(json.dumps(noted))
    yield answer
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_page_of_a_running_deployment_is_asked(tmp_path: Path, page: dict[str, int]) -> None:
    level, text = said("page", tmp_path)
    assert (level, text.endswith("is served and ready")) == ("ok", True)
    page["status"] = 503
    assert said("page", tmp_path)[0] == "warn"


def test_a_page_that_is_gone_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens to nobody
        port = taken.getsockname()[1]
        (tmp_path / "up.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        level, text = said("page", tmp_path)
    assert level == "warn"
    assert "does not answer" in text


def test_a_taken_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(doctor_views, "PAGE_PORT", taken.getsockname()[1])
        assert "is taken" in said("page", tmp_path)[1]
    assert "is free" in said("page", tmp_path)[1]


def test_tables_fit_the_topics_they_were_made_of(tmp_path: Path) -> None:
    ids = dict.fromkeys(view_tables.NAMES, "id")
    mine = tmp_path / "views" / "me"
    mine.mkdir(parents=True)
    assert view_tables.directories(tmp_path) == [mine]
    assert not view_tables.fits(mine, ids)
    view_tables.note(mine, ids)
    assert view_tables.fits(mine, ids)
    assert not view_tables.fits(mine, {**ids, "agent.events": "another"})
