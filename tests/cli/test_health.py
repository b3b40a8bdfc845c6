"""What a role says of itself over HTTP: a worker also whom it can't reach."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from perdure.streams.runtime.health import HealthBoard

from perdure.cli import health
from tests.connectors.test_breakers import FAST, Service, call, say
from tests.connectors.test_worker_offline import Two
from tests.connectors.world import World

Make = Callable[..., World]


@pytest.fixture
def world() -> Iterator[Make]:
    made: list[World] = []

    def make(*tools: Any, **settings: Any) -> World:
        made.append(World(tools, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def serve(w: World) -> int:
    board = HealthBoard(["worker.tools"])
    return health.serve(board, 0, lambda: True, reach=w.worker._reach)


def test_an_open_breaker_is_a_gauge_of_its_target(world: Make) -> None:
    service = Service(say(503))
    w = world(service.tool(), breaker=FAST, stands=True)
    port = serve(w)
    assert "perdure_breaker_open{" not in get(port, "metrics")[1]
    for n in range(3):
        call(w, f"{n}")
    assert 'perdure_breaker_open{target="t"} 1.0' in get(port, "metrics")[1]
    status, body = get(port, "ready")
    assert status == 200  # one target's trouble is not the worker's
    assert "503" in json.loads(body)["breakers_open"]["t"]
    service.error = None
    w.now += 12_001
    call(w, "probe")
    assert 'perdure_breaker_open{target="t"} 0.0' in get(port, "metrics")[1]


def test_an_offline_worker_is_not_ready_and_says_why(world: Make) -> None:
    two = Two(world, stands=True)
    port = serve(two.w)
    assert get(port, "ready")[0] == 200
    assert "perdure_worker_offline 0.0" in get(port, "metrics")[1]
    two.lose()
    status, body = get(port, "ready")
    assert (status, json.loads(body)["ok"]) == (503, False)
    assert json.loads(body)["offline"].endswith("a and b can't be reached")
    assert "perdure_worker_offline 1.0" in get(port, "metrics")[1]
    assert get(port, "live")[0] == 200


def test_other_roles_have_neither(world: Make) -> None:
    port = health.serve(HealthBoard(["engine"]), 0, lambda: True)
    assert "breaker" not in get(port, "metrics")[1]
    assert "offline" not in json.loads(get(port, "ready")[1])
