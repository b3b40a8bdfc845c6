"""POST: tasks, decisions, control requests. They only go onto the inbound topics; the engine judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web
from perdure.schemas.records import ApprovalDecision, ControlRequest, Task, Verdict

from ..board import Board
from ..ports import Door
from .requests import (
    Problem,
    answer,
    approver,
    bad,
    body_of,
    checked,
    in_path,
    operator,
    record,
    sound,
    viewer,
)

T = TypeVar("T")
_DECIDED: Final = frozenset(
    {"decision", "reason", "arguments", "answer", "budget", "digest", "request_id"}
)
_LONGEST_WAIT: Final = 30.0
_WAITS: Final = 16
WAITS_EACH: Final = 6
"""A browser has six connections; one caller must not hold all the threads."""
_LEAST_WAIT: Final = 0.5


class Writes:
    def __init__(self, door: Door, board: Board) -> None:
        self._door = door
        self._board = board
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="door")
        self._waits = ThreadPoolExecutor(_WAITS, thread_name_prefix="verdicts")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def close(self) -> None:
        for pool in (self._threads, self._waits):
            pool.shutdown(wait=False, cancel_futures=True)

    def add(self, app: web.Application) -> None:
        app.router.add_post("/api/tasks", self.submit)
        app.router.add_post("/api/approvals/{run_id}/{approval}/decisions", self.decide)
        app.router.add_post("/api/runs/{run_id}/control", self.control)
        app.router.add_get("/api/verdicts/{run_id}/{request_id}", self.verdict)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def submit(self, request: web.Request) -> web.Response:
        """The task is its ``user_id``'s; who sent it for them stands in its metadata."""
        who = operator(request)
        body = await body_of(request)
        task = record(body if who.dev else {"user_id": who.user, **body}, Task)
        if not who.dev and task.user_id != who.user:
            task.metadata = {**task.metadata, "submitted_by": who.user}
        task_id = await self._in_thread(lambda: self._door.submit(sound(task)))
        return answer({"task_id": task_id}, 202)

    async def decide(self, request: web.Request) -> web.Response:
        """The approver is the token's user, whatever the body says: so the body may not say it."""
        who = approver(request)
        run_id = in_path(request, "run_id", "run_id")
        approval_id = f"{run_id}/{checked('approval', request.match_info['approval'])}"
        body = await body_of(request)
        if "approver" in body:
            raise bad(
                "leave approver out: who decides is who the token belongs to", "approver_in_body"
            )
        if unknown := sorted(body.keys() - _DECIDED):
            raise bad(
                f"{unknown[0][:60]} is not a field here; known: {', '.join(sorted(_DECIDED))}"
            )
        decision = record(
            {**body, "approval_id": approval_id, "approver": who.user}, ApprovalDecision
        )
        asked = self._board.question(approval_id)
        if asked is not None:
            if decision.decision not in asked.allowed_decisions:
                raise Problem(
                    409,
                    "not_allowed",
                    f"a question of kind {asked.kind} takes {', '.join(asked.allowed_decisions)}",
                )
            if decision.digest is None:
                decision = msgspec.structs.replace(decision, digest=asked.digest)
            elif decision.digest != asked.digest:
                raise Problem(
                    409, "changed", "the question has changed since: look at it again, then decide"
                )
        request_id = await self._in_thread(lambda: self._door.decide(decision))
        return answer({"request_id": request_id}, 202)

    async def control(self, request: web.Request) -> web.Response:
        who = operator(request)
        run_id = in_path(request, "run_id", "run_id")
        body = await body_of(request)
        for name in ("by", "run_id"):
            if name in body:
                raise bad(f"leave {name} out: it is known", f"{name}_in_body")
        asked = record({**body, "run_id": run_id, "by": who.user}, ControlRequest)
        request_id = await self._in_thread(lambda: self._door.control(asked))
        return answer({"request_id": request_id}, 202)

    async def verdict(self, request: web.Request) -> web.Response:
        who = viewer(request)
        run_id = in_path(request, "run_id", "run_id")
        request_id = request.match_info["request_id"]
        if len(request_id) > 500:
            raise bad("a request id has at most 500 characters")
        wait = _seconds(request.query.get("wait", "0"))
        found = await self._judged(who.user, wait, run_id, request_id)
        if found is None:
            text = "no verdict on that request (yet): is an engine running? ask again with wait=10"
            raise Problem(404, "no_verdict", text)
        made: dict[str, Any] = msgspec.to_builtins(found)
        return answer(made)

    async def _judged(self, user: str, wait: float, run_id: str, request_id: str) -> Verdict | None:
        """The verdict, or None. Whoever waits for many waits for their own turn, nobody else does."""
        turn = self._turns.setdefault(user, asyncio.Semaphore(WAITS_EACH))
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        try:
            async with asyncio.timeout(max(wait, _LEAST_WAIT)):
                await turn.acquire()
        except TimeoutError:
            return None
        try:
            left = max(until - loop.time(), 0.0)
            return await loop.run_in_executor(
                self._waits, lambda: self._door.verdict(run_id, request_id, left)
            )
        finally:
            turn.release()


def _seconds(text: str) -> float:
    try:
        value = float(text or "0")
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST_WAIT:
        raise bad(f"wait must be seconds from 0 to {_LONGEST_WAIT:g}")
    return value
