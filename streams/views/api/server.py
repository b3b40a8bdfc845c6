"""The HTTP server of one view process: the parts put together, started and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from ..access import Access, Rate
from ..answers import Answers
from ..changes import Changes
from ..ports import Door, Histories, Watch
from .guard import Guard
from .live import WRITE_SECONDS, Live
from .measured import Answered, measured
from .reads import Reads
from .requests import MAX_BODY
from .routing import Routing
from .site import PAGE, Site
from .writes import Writes


@dataclass(frozen=True, slots=True)
class Parts:
    """What a server is made of. ``hosts``, ``origins``: see `Guard`. ``secure``: people reach the page
    over TLS, so its cookie goes nowhere else."""

    answers: Answers
    histories: Histories
    door: Door
    watch: Watch
    changes: Changes
    access: Access
    rate: Rate = field(default_factory=Rate)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    answered: Answered = lambda method, route, status, seconds: None
    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()
    secure: bool = False
    page: Path = PAGE
    write_seconds: float = WRITE_SECONDS


def application(parts: Parts) -> web.Application:
    """The application; its background tasks run from start to clean-up."""
    guard = Guard(parts.access, parts.rate, parts.hosts, parts.origins)
    app = web.Application(
        middlewares=[measured(parts.answered), guard.middleware()], client_max_size=MAX_BODY + 1
    )
    routing = Routing(parts.histories)
    reads = Reads(parts.answers, routing)
    writes = Writes(parts.door, parts.answers.board)
    site = _site(parts)
    live = Live(parts.histories, parts.changes, routing, parts.access, parts.write_seconds)
    for part in (reads, writes, live, site):
        part.add(app)
    app.on_startup.append(routing.start)
    app.on_cleanup.append(routing.stop)

    async def background(app: web.Application) -> Any:
        telling = asyncio.ensure_future(parts.changes.tell())
        yield
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
        reads.close()
        writes.close()

    async def end_streams(app: web.Application) -> None:
        live.close()

    app.cleanup_ctx.append(background)
    app.on_shutdown.append(end_streams)
    return app


def _site(parts: Parts) -> Site:
    return Site(
        parts.access,
        parts.histories,
        parts.watch,
        parts.registry,
        parts.answers.board.caught_up.is_set,
        page=parts.page,
        secure=parts.secure,
    )


def probes(parts: Parts) -> web.Application:
    """/live, /ready and /metrics alone: for whoever watches the process, not for people."""
    app = web.Application()
    site = _site(parts)
    app.router.add_get("/live", site.live)
    app.router.add_get("/ready", site.ready)
    app.router.add_get("/metrics", site.metrics)
    return app


class Server:
    """One listening socket, bound already. ``bare``: `probes` alone."""

    def __init__(self, parts: Parts, listening: socket.socket, *, bare: bool = False) -> None:
        app = probes(parts) if bare else application(parts)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
        self._socket = listening

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def stop(self) -> None:
        await self._runner.cleanup()
