"""The live stream: this process's changes and those of the others, to whoever reads.

A stream may stand open for days while view processes come and go, so who the others are is looked up
again and again. What one of them told while it was not heard is lost: its readers begin anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from aiohttp import ClientError, ClientTimeout, web

from ..access import Access
from ..changes import Changes, Reader
from ..ports import Histories
from .guard import ROUTED, set_headers, token_of
from .requests import Problem, viewer
from .routing import Routing

STREAMS: Final = 20
"""So many a caller may have open."""
LOOK_SECONDS: Final = 1.0
_COMMENT_SECONDS: Final = 15.0
WRITE_SECONDS: Final = 30.0
"""Whoever takes nothing for so long is cut off."""


class Live:
    def __init__(
        self,
        histories: Histories,
        changes: Changes,
        routing: Routing,
        access: Access,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._histories = histories
        self._changes = changes
        self._routing = routing
        self._access = access
        self._write_seconds = write_seconds
        self._streams: set[asyncio.Task[Any]] = set()
        self._open: Counter[tuple[str, bool]] = Counter()

    def add(self, app: web.Application) -> None:
        app.router.add_get("/api/changes", self.stream)

    def close(self) -> None:
        for task in list(self._streams):
            task.cancel()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        who = viewer(request)
        self._routing.restored()
        routed = ROUTED in request.headers
        mine = (who.user, routed)
        # every other process has as many of this caller's, and asks us for each
        most = STREAMS * (max(len(self._histories.others()), 1) if routed else 1)
        if self._open[mine] >= most:
            raise Problem(
                429, "too_many_streams", f"{who.user} reads {most} streams of changes: close some"
            )
        task = asyncio.current_task()
        assert task is not None
        self._open[mine] += 1
        self._streams.add(task)
        try:
            return await self._told(request, routed)
        finally:
            self._streams.discard(task)
            self._open[mine] -= 1
            self._open += Counter()  # forgets who has none

    async def _told(self, request: web.Request, routed: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.headers["X-Accel-Buffering"] = "no"
        set_headers(response)
        last = request.headers.get("Last-Event-ID")
        peers = [] if routed else self._histories.others()
        queue, missed = await self._changes.join(last)
        if last and peers:  # what the others told meanwhile is not kept here
            missed = [self._changes.reset()]
        following = None if routed else asyncio.ensure_future(self._others(request, queue, peers))
        try:
            await response.prepare(request)
            await self._write(response, b"retry: 2000\n\n" + b"".join(missed))
            await self._pass_on(request, queue, response)
        except asyncio.CancelledError:  # the server stops
            pass
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # what is left of it would be waited for
        finally:
            self._changes.leave(queue)
            if following is not None:
                await _ended([following])
        return response

    async def _pass_on(
        self, request: web.Request, queue: Reader, response: web.StreamResponse
    ) -> None:
        silent, looked_at = 0.0, time.monotonic()
        while request.transport is not None:  # whoever has left makes room for another stream
            if time.monotonic() - looked_at >= LOOK_SECONDS:
                looked_at = time.monotonic()
                if self._access.caller(token_of(request)) is None:
                    return  # the token was taken back
            try:
                made = await asyncio.wait_for(queue.get(), LOOK_SECONDS)
            except TimeoutError:
                silent += LOOK_SECONDS
                if silent >= _COMMENT_SECONDS:
                    silent = 0.0
                    await self._write(response, b": still here\n\n")
                continue
            silent = 0.0
            await self._write(response, self._changes.reset() if made is None else made)
            if made is None:
                return

    async def _write(self, response: web.StreamResponse, made: bytes) -> None:
        async with asyncio.timeout(self._write_seconds):
            await response.write(made)

    # --- the other processes ----------------------------------------------------------------

    async def _others(self, request: web.Request, queue: Reader, known: Iterable[str]) -> None:
        """Follow whoever there is, as they come and go."""
        follows = {each: self._following(request, each, queue, False) for each in known}
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                there = set(self._histories.others())
                for gone in follows.keys() - there:
                    follows.pop(gone).cancel()
                    self._anew(queue)
                for new in there - follows.keys():
                    follows[new] = self._following(request, new, queue, True)
        finally:
            await _ended(follows.values())

    def _following(
        self, request: web.Request, address: str, queue: Reader, late: bool
    ) -> asyncio.Task[None]:
        return asyncio.ensure_future(self._follow(request, address, queue, late))

    def _anew(self, queue: Reader) -> None:
        self._changes.offer(queue, self._changes.reset())

    async def _follow(self, request: web.Request, address: str, queue: Reader, late: bool) -> None:
        """Another process's changes into this reader's queue, without their ids: they resume here."""
        headers = self._routing.headers(request)
        while True:
            with contextlib.suppress(ClientError, TimeoutError, OSError, ValueError):
                async with self._routing.session.get(
                    f"{address}/api/changes", headers=headers, timeout=ClientTimeout(sock_read=60)
                ) as found:
                    if late and found.status == 200:
                        self._anew(queue)
                    held: list[bytes] = []
                    async for line in found.content:
                        if line.startswith((b"event: ", b"data: ")):
                            held.append(line)
                        elif not line.strip():
                            self._heard(held, queue)
                            held = []
            late = True
            await asyncio.sleep(LOOK_SECONDS)

    def _heard(self, held: list[bytes], queue: Reader) -> None:
        if len(held) != 2:
            return
        if held[0].startswith(b"event: reset"):
            self._anew(queue)
        elif held[0].startswith((b"event: run", b"event: approval")):
            self._changes.offer(queue, b"".join(held) + b"\n")


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for each in ending:
        each.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
