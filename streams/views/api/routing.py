"""More than one view process: what another one holds is asked there, lists are merged from all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, web

from ..ports import Elsewhere, Histories
from .guard import ROUTED, token_of
from .requests import Problem

log = logging.getLogger("perdure.views")

_PATIENCE = ClientTimeout(total=8, connect=2)
"""A process that was killed is known as a holder until its session ends: lists must not hang on it."""

_NOT_YET = Problem(
    503, "moving", "the views' tables are being read, or on their way to another process: ask again"
)


_RESTORING = Problem(
    503, "restoring", "this view has just started and reads its tables: ask again in a moment"
)


class Routing:
    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self._session: ClientSession | None = None

    async def start(self, app: web.Application) -> None:
        # Peers only: whatever proxy the environment names is not between our own processes.
        self._session = ClientSession(timeout=_PATIENCE, trust_env=False)

    async def stop(self, app: web.Application) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> ClientSession:
        assert self._session is not None
        return self._session

    @staticmethod
    def headers(request: web.Request) -> dict[str, str]:
        token = token_of(request)
        return {ROUTED: "1", **({} if token is None else {"Authorization": f"Bearer {token}"})}

    def restored(self) -> None:
        """Raises `Problem` (503) until the tables are there."""
        if not self._histories.ready():
            raise _RESTORING

    async def of_run(
        self, request: web.Request, run_id: str, here: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The answer of the process that holds the run."""
        self.restored()
        owner = self._histories.owner(run_id)
        try:
            if owner is None or ROUTED in request.headers:
                return await here()
        except Elsewhere as elsewhere:
            owner = elsewhere.address
        if owner is None or ROUTED in request.headers:
            raise _NOT_YET
        return await self._passed_on(request, owner)

    async def _passed_on(self, request: web.Request, owner: str) -> web.Response:
        try:
            async with self.session.get(
                owner + request.raw_path, headers=self.headers(request)
            ) as found:
                body = await found.read()
                return web.Response(body=body, status=found.status, content_type=found.content_type)
        except (ClientError, TimeoutError, OSError) as error:
            log.warning("the view process at %s does not answer: %r", owner, error)
            raise _NOT_YET from error

    async def everybody(self, request: web.Request) -> list[Any]:
        """What the other processes answer to the same request. Raises `Problem` (503) if one does not,
        or if this one's tables are still being read: a list with a hole would be taken for the whole."""
        self.restored()
        if not self._histories.whole():
            raise _NOT_YET
        if ROUTED in request.headers:
            return []
        others = self._histories.others()
        return list(await asyncio.gather(*(self._ask(request, each) for each in others)))

    async def _ask(self, request: web.Request, address: str) -> Any:
        try:
            async with self.session.get(
                address + request.raw_path, headers=self.headers(request)
            ) as found:
                body = await found.read()
        except (ClientError, TimeoutError, OSError) as error:
            log.warning("the view process at %s does not answer: %r", address, error)
            raise _NOT_YET from error
        if found.status != 200:
            raise Problem(503, "moving", f"the view process at {address} answers {found.status}")
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise _NOT_YET from error
