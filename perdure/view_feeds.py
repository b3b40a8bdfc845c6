"""What a view process reads and writes beside its Faust app: small topics, and the door."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perdure.client import Client, SubmitError
from perdure.schemas import signing, topics
from perdure.schemas.canonical import parse
from perdure.schemas.errors import RecordError
from perdure.schemas.records import ApprovalDecision, ControlRequest, Task, Verdict
from perdure.streams.runtime.processing import where
from perdure.streams.views.board import Board
from perdure.streams.views.index import Index
from perdure.streams.views.ports import Unavailable

from .topics_reader import ClientError, NoTopic, Scanner, Unreachable

log = logging.getLogger("perdure.views")

_AGAIN_SECONDS: Final = 1.0
_QUARANTINE: Final = b"q/"
_VERDICT_AGE_MS: Final = 3_600_000
"""Whoever has just asked waits for a verdict: those before the last hour are not looked through."""


class Feed:
    """Follows the small compacted topics into the board, and quarantine flags into the index.

    The flags stand in the engine's changelog alone (``q/<run>``), so that is followed too; nothing
    else of it is looked at.
    """

    def __init__(self, scanner: Scanner, board: Board, index: Index) -> None:
        self._scanner = scanner
        self._board = board
        self._index = index
        self._stopped = threading.Event()
        self.letters = 0
        """Records of agent.dead-letters that were there, or came."""

    def start(self) -> None:
        for name, work in (
            ("board", self._follow_board),
            ("quarantines", self._follow_flags),
            ("dead letters", self._count_letters),
        ):
            threading.Thread(target=self._keep_on, args=(work,), name=name, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _keep_on(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                work()
            except (Unreachable, NoTopic, ClientError) as error:
                log.warning("reading again in %g s: %s", _AGAIN_SECONDS, error)
            except Exception as error:  # a thread that ends would leave the page as it is now
                log.error("reading again in %g s: %s", _AGAIN_SECONDS, where(error))
            self._stopped.wait(_AGAIN_SECONDS)

    def _follow_board(self) -> None:
        names = [topics.PENDING, topics.CATALOG, topics.BREAKERS]
        for raw in self._scanner.scan(names, follow=True):
            if self._stopped.is_set():
                return
            if raw is None:
                self._board.caught_up.set()
            else:
                self._board.take(raw.topic, raw.key, raw.value)

    def _follow_flags(self) -> None:
        for raw in self._scanner.scan([topics.changelog(topics.ENGINE)], follow=True):
            if self._stopped.is_set():
                return
            if raw is None or raw.key is None or not raw.key.startswith(_QUARANTINE):
                continue
            run_id = raw.key.removeprefix(_QUARANTINE).decode("utf-8", "replace")
            if "/" not in run_id:  # the flag itself, not a record parked behind it
                self._index.quarantine(run_id, raw.value is not None)

    def _count_letters(self) -> None:
        """Read, as offsets count the markers of transactions too."""
        self.letters = 0
        for raw in self._scanner.scan([topics.DEAD_LETTERS], follow=True):
            if self._stopped.is_set():
                return
            self.letters += raw is not None


class ClientDoor:
    """The write path: the public topics, by the public client.

    ``key_of`` gives the file of the key that signs for an approver, and whether it may be the door's
    own (an entry of the approvers' JWKS under each name it may sign for); None: nothing signs.
    """

    def __init__(self, client: Client, key_of: Callable[[str], tuple[Path, bool] | None]) -> None:
        self._client = client
        self._key_of = key_of
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Whoever waits for a verdict is told that there is none yet: a stop waits for nobody."""
        self._stopped.set()

    def submit(self, task: Task) -> str:
        try:
            return self._client.submit([task], timeout=20)[0]
        except (SubmitError, Unreachable) as error:
            raise Unavailable(str(error)) from error

    def decide(self, decision: ApprovalDecision) -> str:
        try:
            return self._client.decide(self._signed(decision), timeout=20)
        except (SubmitError, Unreachable) as error:
            raise Unavailable(str(error)) from error

    def control(self, request: ControlRequest) -> str:
        try:
            return self._client.control(request, timeout=20)
        except (SubmitError, Unreachable) as error:
            raise Unavailable(str(error)) from error

    def verdict(self, run_id: str, request_id: str, wait: float) -> Verdict | None:
        try:
            since = time.time_ns() // 1_000_000 - _VERDICT_AGE_MS
            seconds, stopped = max(wait, 0.5), self._stopped.is_set
            return self._client.verdict(run_id, request_id, seconds, since, stopped)
        except (NoTopic, Unreachable, ClientError) as error:
            raise Unavailable(str(error)) from error

    def _signed(self, decision: ApprovalDecision) -> ApprovalDecision:
        found = self._key_of(decision.approver)
        if found is None:
            return decision
        path, doors_own = found
        if decision.digest is None or not path.exists():
            if doors_own and not path.exists():
                raise Unavailable(f"the door's signing key {path} is not there")
            return decision
        try:
            key = parse(path.read_bytes())
            if not doors_own and key.get("approver") != decision.approver:
                return decision
            return signing.sign(decision, key, time.time_ns() // 1_000_000)
        except (OSError, RecordError, signing.BadKeys, AttributeError) as error:
            raise Unavailable(f"the door's key {path} can't sign: {error}") from error
