"""What a view process follows beside Faust, and its door: how they stop, fail and sign."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from perdure.schemas import topics
from perdure.schemas.records import ApprovalDecision
from perdure.streams.views.board import Board
from perdure.streams.views.index import Index

from perdure import view_feeds
from perdure.topics_reader import Scanner
from perdure.view_feeds import ClientDoor


class Waiting:
    """A client that finds no verdict until it is told to stop looking."""

    def __init__(self) -> None:
        self.began = threading.Event()

    def verdict(
        self, run: str, request: str, seconds: float, since: int, stopped: Callable[[], bool]
    ) -> None:
        self.began.set()
        deadline = time.monotonic() + seconds
        while not stopped() and time.monotonic() < deadline:
            time.sleep(0.01)


def test_a_stop_does_not_wait_for_whoever_waits_for_a_verdict() -> None:
    client = Waiting()
    door = ClientDoor(client, lambda approver: None)  # type: ignore[arg-type]
    waits = threading.Thread(target=door.verdict, args=("r1", "q1", 30.0))
    waits.start()
    assert client.began.wait(5)
    door.stop()
    waits.join(5)
    assert not waits.is_alive()


class Silent:
    """A consumer whose partition has nothing (yet), not even an end."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, seconds: float) -> Any:
        self.polls += 1

    def consume(self, most: int, seconds: float) -> list[Any]:
        return []


def test_a_reader_looks_whether_it_is_to_stop_between_its_polls() -> None:
    consumer = Silent()
    scanner = Scanner({"bootstrap.servers": "h:1"}, "")
    found = scanner._records(consumer, 1, True, None, lambda: consumer.polls >= 3)  # type: ignore[arg-type]
    assert list(found) == []
    assert consumer.polls == 3


class Failing:
    """A scanner whose topics are read, but for the first time."""

    def __init__(self) -> None:
        self.tries = 0
        self.again = threading.Event()

    def scan(self, names: Sequence[str], *, follow: bool) -> Iterator[None]:
        if topics.PENDING not in names:
            return
        self.tries += 1
        if self.tries == 1:
            raise KeyError("what a user sent")
        yield None
        self.again.set()


def test_a_thread_that_meets_something_unexpected_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(view_feeds, "_AGAIN_SECONDS", 0.01)
    scanner, board, index = Failing(), Board(), Index()
    feed = view_feeds.Feed(scanner, board, index)  # type: ignore[arg-type]
    feed.start()
    assert board.caught_up.wait(5)
    feed.stop()
    index.close()
    (told,) = [each.getMessage() for each in caplog.records if "KeyError" in each.getMessage()]
    assert "test_view_feeds.py" in told
    assert "what a user sent" not in told


def test_nothing_is_signed_where_no_key_is_given() -> None:
    sent: list[ApprovalDecision] = []

    class Client:
        def decide(self, decision: ApprovalDecision, timeout: float) -> str:
            sent.append(decision)
            return "q1"

    door = ClientDoor(Client(), lambda approver: None)  # type: ignore[arg-type]
    made = ApprovalDecision(approval_id="r1/a1", decision="approve", approver="me", digest="d")
    assert door.decide(made) == "q1"
    assert sent[0].signature is None
