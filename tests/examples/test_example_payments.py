"""The payment service: real HTTP on the loopback, in this process or in one that is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from refunds_example import EXAMPLE, load, process

payments = load(EXAMPLE / "payments.py")
orders = load(EXAMPLE / "orders.py")

REFUND = {"order_id": "A-1001", "amount": 24.9}


class World:
    """The service and a caller; ``trouble`` sets what goes wrong at the next calls."""

    def __init__(self, path: Path) -> None:
        self.trouble: list[str | None] = []
        self.ledger = payments.Ledger(path)
        self.server = payments.Server(self.ledger)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.http = httpx.Client(base_url=self.server.url, timeout=5)

    def next_trouble(self, *_: object) -> str | None:
        return self.trouble.pop(0) if self.trouble else None

    def refund(self, key: str = "r-1/2/aa", body: object = REFUND) -> httpx.Response:
        return self.http.post("/refunds", json=body, headers={"Idempotency-Key": key})

    def report(self) -> dict:
        return self.http.get("/report").json()

    def close(self) -> None:
        self.http.close()
        self.server.shutdown()
        self.server.server_close()
        self.ledger.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path / "payments.db")
    monkeypatch.setattr(payments, "trouble_for", world.next_trouble)
    yield world
    world.close()


def test_the_same_key_gets_the_first_answer_and_acts_once(world: World) -> None:
    first, second = world.refund(), world.refund()
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert first.json() == {"refund_id": "rf-1", **REFUND, "status": "refunded"}
    report = world.report()
    assert report["effects"] == [{"key": "r-1/2/aa", **REFUND, "count": 1, "cancelled": 0}]
    assert (report["calls"], report["duplicates"]) == (2, 0)


def test_the_same_key_with_another_body_is_a_conflict(world: World) -> None:
    world.refund()
    assert world.refund(body={"order_id": "A-1001", "amount": 1}).status_code == 409
    assert len(world.report()["effects"]) == 1


def test_twenty_at_once_with_one_key_act_once(world: World) -> None:
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: world.refund().json()["refund_id"], range(20)))
    assert set(answers) == {"rf-1"}
    assert world.report()["duplicates"] == 0


def test_a_second_execution_is_reported(world: World) -> None:
    world.refund()
    world.ledger._db.execute(
        "INSERT INTO effects (key, order_id, amount) VALUES ('r-1/2/aa', 'A-1001', 24.9)"
    )
    assert world.report()["duplicates"] == 1


def test_find_answers_by_key(world: World) -> None:
    assert world.http.get("/refunds", params={"key": "r-1/2/aa"}).status_code == 404
    done = world.refund().json()
    found = world.http.get("/refunds", params={"key": "r-1/2/aa"})
    assert (found.status_code, found.json()) == (200, done)


def test_cancel_takes_a_refund_back_however_often_it_is_called(world: World) -> None:
    world.refund()
    for _ in range(2):
        answer = world.http.post("/refunds/rf-1/cancel", headers={"Idempotency-Key": "r-1/3/aa"})
        assert answer.json() == {"refund_id": "rf-1", "status": "cancelled"}
    assert world.report()["effects"][0]["cancelled"] == 1
    unknown = world.http.post("/refunds/rf-9/cancel", headers={"Idempotency-Key": "r-1/4/aa"})
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"order_id": "A-1"}, {"order_id": 1, "amount": 1}, {"order_id": "A-1", "amount": -1},
     {"order_id": "A-1", "amount": True}, []],
)  # fmt: skip
def test_bad_bodies_are_refused_and_do_nothing(world: World, body: object) -> None:
    assert world.refund(body=body).status_code in (400, 422)
    assert world.report()["effects"] == []


def test_a_call_without_a_key_is_refused(world: World) -> None:
    assert world.http.post("/refunds", json=REFUND).status_code == 400


def test_429_and_503_act_only_when_called_again(world: World) -> None:
    world.trouble = ["429", "503"]
    first = world.refund()
    assert (first.status_code, first.headers["Retry-After"]) == (429, "1")
    assert world.refund().status_code == 503
    assert world.report()["effects"] == []
    assert world.refund().status_code == 201


@pytest.mark.parametrize(("trouble", "effects"), [("drop_before", 0), ("drop_after", 1)])
def test_a_dropped_connection_does_not_tell_what_happened(
    world: World, trouble: str, effects: int
) -> None:
    world.trouble = [trouble]
    with pytest.raises(httpx.RemoteProtocolError):
        world.refund()
    assert len(world.report()["effects"]) == effects
    assert world.refund().status_code == 201
    assert [effect["count"] for effect in world.report()["effects"]] == [1]
    assert world.report()["troubles"] == {trouble: 1}


def test_trouble_depends_on_seed_subject_and_call_alone() -> None:
    def draw(seed: int) -> list[str | None]:
        return [payments.trouble_for(seed, 0.15, f"A-{n}", 1) for n in range(2000)]

    assert draw(1) == draw(1) != draw(2)
    assert set(draw(1)) == {None, *payments.TROUBLES}
    assert 0.12 < sum(trouble is not None for trouble in draw(1)) / 2000 < 0.18
    assert payments.trouble_for(1, 0.0, "A-1", 1) is None


def test_the_default_seed_troubles_the_orders_in_every_way_but_never_three_times_running() -> None:
    ids = [order["order_id"] for order in orders.orders()]
    seed = payments.DEFAULT_SEED
    draws = {i: [payments.trouble_for(seed, 0.15, i, n) for n in range(1, 12)] for i in ids}
    assert {draw[0] for draw in draws.values()} == {None, *payments.TROUBLES}
    assert not any(all(draw[n : n + 3]) for draw in draws.values() for n in range(9))


def test_what_was_answered_is_there_after_kill_9(tmp_path: Path) -> None:
    arguments = ("--db", str(tmp_path / "p.db"), "--port", "0", "--trouble", "0")
    headers = {"Idempotency-Key": "r-1/2/aa"}
    with process("payments.py", *arguments) as (child, said):
        assert said["role"] == "payments"
        first = httpx.post(f"{said['url']}/refunds", json=REFUND, headers=headers).json()
        child.kill()
    with process("payments.py", *arguments) as (child, said):
        assert httpx.post(f"{said['url']}/refunds", json=REFUND, headers=headers).json() == first
        report = httpx.get(f"{said['url']}/report").json()
        assert (report["calls"], [e["count"] for e in report["effects"]]) == (2, [1])
        child.terminate()
        assert child.wait(5) == 0


@pytest.mark.parametrize(("script", "place"), [("payments.py", "--db"), ("mailsink.py", "--mails")])
def test_a_service_ends_when_its_stdin_is_closed(tmp_path: Path, script: str, place: str) -> None:
    with process(script, place, str(tmp_path / "x"), "--port", "0") as (child, said):
        assert said["port"] > 0
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(5) == 0
        child.stdin = None
