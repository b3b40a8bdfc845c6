"""The class path: what kafka.lock names, and nothing else, wherever it came from."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from perdure.streams.cluster import jars
from perdure.streams.cluster.errors import DownloadFailed
from perdure.streams.cluster.repositories import Repositories

CONTENT = b"what a jar holds"


def jar(name: str, content: bytes = CONTENT) -> jars.Jar:
    return jars.Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


def put(repository: Path, wanted: jars.Jar, content: bytes = CONTENT) -> None:
    path = wanted.below(repository)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A Maven repository over HTTP: its directory and its address."""
    root = tmp_path / "served"
    root.mkdir()

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = root / self.path.lstrip("/")
            body = file.read_bytes() if file.is_file() else b""
            self.send_response(200 if file.is_file() else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield root, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_lock_names_every_jar_exactly_and_no_address() -> None:
    text = jars.LOCK_FILE.read_text()
    named = jars.locked()
    assert "://" not in text
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in named)
    assert len({jar.file for jar in named}) == len(named) > 40  # one directory holds them all
    assert f"kafka_2.13-{jars.KAFKA_VERSION}.jar" in {jar.file for jar in named}


def test_jars_are_fetched_once_and_told(tmp_path: Path, served: tuple[Path, str]) -> None:
    root, url = served
    wanted = [jar("one"), jar("two")]
    for one in wanted:
        put(root, one)
    told: list[str] = []
    home = tmp_path / "home"
    home.mkdir()
    jars._fetch(home, wanted, Repositories({"here": url}), told.append)
    assert jars._complete(home)
    assert sorted(path.name for path in home.glob("*.jar")) == ["one-1.0.jar", "two-1.0.jar"]
    assert not list(home.glob(".*.part"))
    assert told[1].endswith("2 of 2 jars")


def test_a_local_repository_spares_the_download_unless_its_file_is_another(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    root, url = served
    local, home = tmp_path / "m2", tmp_path / "home"
    home.mkdir()
    put(local, jar("good"))
    put(local, jar("cut"), b"what a")
    put(root, jar("cut"))
    jars._fetch(home, [jar("good"), jar("cut")], Repositories({"here": url}, (local,)), str)
    assert (home / "good-1.0.jar").read_bytes() == (home / "cut-1.0.jar").read_bytes() == CONTENT


def test_a_jar_cut_short_later_is_noticed(tmp_path: Path, served: tuple[Path, str]) -> None:
    root, url = served
    put(root, jar("one"))
    jars._fetch(tmp_path, [jar("one")], Repositories({"here": url}), str)
    (tmp_path / "one-1.0.jar").write_bytes(b"wha")
    assert not jars._complete(tmp_path)
    jars._fetch(tmp_path, [jar("one")], Repositories({"here": url}), str)
    assert jars._complete(tmp_path)


def test_a_jar_that_nobody_has_is_told_with_what_to_do(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    _, url = served
    with pytest.raises(DownloadFailed, match="no repository has it") as error:
        jars._fetch(tmp_path, [jar("one")], Repositories({"here": url}), str)
    assert "--bootstrap-servers" in str(error.value)
    assert error.value.exit_code == 3


def test_a_jar_that_is_not_the_locked_one_is_refused(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    root, url = served
    put(root, jar("one"), b"something else")
    with pytest.raises(DownloadFailed, match="SHA-256 differs"):
        jars._fetch(tmp_path, [jar("one")], Repositories({"here": url}), str)
    assert not list(tmp_path.glob("*.jar"))
