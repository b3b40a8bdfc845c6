"""Cases of the kind "security" that come over HTTP: whose name counts (Z01), which ids are taken (Z02)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from perdure.schemas import topics
from perdure.schemas.canonical import canonical
from perdure.streams.views.access import Access, entry

from tests.engine.desk import Desk, agent
from tests.views.world import World, client

from . import inputs

TOKENS = {"t-alice": "alice", "t-bob": "bob"}
WAYS_UP = (
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fx",
    "%2e%2e",
    "%2Ftmp%2Fpwned",
    "a%5Cb",
    "a%00b",
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    tokens = tmp_path / "tokens.jsonl"
    roles = ["operator", "approver"]
    lines = [canonical(entry(token, user, roles)).decode() for token, user in TOKENS.items()]
    tokens.write_text("\n".join(lines))
    return World(Access(tokens))


@pytest.fixture
def bob(world: World) -> Iterator[httpx.Client]:
    with world.served() as address, client(address, "t-bob") as made:
        yield made


def test_z01_the_body_cannot_name_another_approver(world: World, bob: httpx.Client) -> None:
    played = inputs.of("Z01.8")
    assert TOKENS[bob.headers["Authorization"].removeprefix("Bearer ")] == played["login"]
    approval_id = world.ask(approvers=["alice"]).approval_id
    path = "/api" + played["path"].replace("$APPROVAL", approval_id) + "/decisions"
    refused = bob.request(played["method"], path, json=played["body"])
    assert refused.status_code == 400
    assert "token" in refused.json()["error"]["message"]
    assert world.door.decisions == []
    # Without the name it goes out as bob's, which is for the engine to refuse, and is audited so.
    assert bob.post(path, json={"decision": "approve"}).status_code == 202
    assert [decision.approver for decision in world.door.decisions] == ["bob"]


BY_RECORD = [name for name in inputs.ids("Z02") if "records" in inputs.of(name)]


@pytest.mark.parametrize("name", BY_RECORD)
def test_z02_an_id_that_could_be_a_path_is_refused_at_every_entry(
    world: World, bob: httpx.Client, tmp_path: Path, name: str
) -> None:
    (sent,) = inputs.of(name)["records"]
    task = sent["value"]
    desk = Desk(tmp_path / "engine")
    desk.catalog(agent())
    before = sorted(tmp_path.rglob("*"))
    by_http = bob.post("/api/tasks", json=task)
    # A client takes plain dots out of a path by itself.
    shown = bob.get(f"/api/runs/{quote(task['task_id'], safe='').replace('.', '%2e')}")
    if name == "Z02.13":  # none at all: a list's address
        assert by_http.status_code == 400
        assert shown.status_code == 404
    elif name == "Z02.10":  # a device's name elsewhere; here a plain id
        assert by_http.status_code == 202
        assert shown.status_code == 404
    else:
        assert by_http.status_code == 400
        assert "must be 1 to 200 characters" in by_http.json()["error"]["message"]
        assert shown.status_code in (400, 404)
        assert world.door.tasks == []
        desk.feed(topics.TASKS, **task)
        assert [reason for _, reason, _ in desk.dead] == ["bad_id"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("way", WAYS_UP)
def test_z02_no_path_of_the_server_leads_out(bob: httpx.Client, way: str) -> None:
    for path in (
        "/api/runs/{}",
        "/api/runs/{}/timeline",
        "/api/approvals/{}/a1",
        "/{}",
        "/page/{}",
        "/runs/{}",
    ):
        found = bob.send(bob.build_request("GET", path.format(way)))
        assert found.status_code in (200, 400, 404)
        assert "root:" not in found.text
        if path.startswith("/api"):
            assert found.status_code in (400, 404)
        elif found.status_code == 200:
            assert found.headers["content-type"].startswith("text/html")


def test_z02_a_page_of_no_run_is_no_page(bob: httpx.Client) -> None:
    played = inputs.of("Z02.14")
    found = bob.send(bob.build_request(played["method"], played["path"]))
    assert 400 <= found.status_code < 500
    assert "root:" not in found.text
    assert bob.get("/runs/r-1").status_code == 200


def test_z02_a_command_is_told_no_path(tmp_path: Path) -> None:
    _, *words = inputs.of("Z02.15")["argv"]
    where = ["--bootstrap-servers", "127.0.0.1:1", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-m", "perdure", *words, *where]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "Traceback" not in found.stderr
    assert "root:" not in found.stdout
