"""The page, its sign-in, health, metrics and the description of the API."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from ..access import Access
from ..ports import Histories, Watch
from .guard import COOKIE
from .openapi import document
from .requests import Problem, answer, body_of, checked, raw_answer, viewer

log = logging.getLogger("perdure.views")

PAGE: Final = Path(__file__).parent.parent / "page"
_NO_PAGE: Final = (
    "<!doctype html><title>Perdure</title><p>Perdure's API is here: see /openapi.json.</p>"
)
_KINDS: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
_LOGIN_BYTES: Final = 4_000
"""Anybody may send one."""
_LOOK_SECONDS: Final = 2.0


class Site:
    def __init__(
        self,
        access: Access,
        histories: Histories,
        watch: Watch,
        registry: CollectorRegistry,
        board_read: Callable[[], bool],
        *,
        page: Path = PAGE,
        secure: bool = False,
    ) -> None:
        self._access = access
        self._histories = histories
        self._watch = watch
        self._registry = registry
        self._board_read = board_read
        self._secure = secure
        self._files = {
            path.name: _File(path)
            for path in (page.iterdir() if page.is_dir() else ())
            if path.suffix in _KINDS and path.is_file()
        }
        self._looked: tuple[float, dict[str, Any]] | None = None
        self._looking = asyncio.Lock()

    def add(self, app: web.Application) -> None:
        app.router.add_get("/live", self.live)
        app.router.add_get("/ready", self.ready)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/openapi.json", self.openapi)
        app.router.add_post("/api/login", self.login)
        app.router.add_post("/api/logout", self.logout)
        app.router.add_get("/api/health", self.health)
        # Not one path for everything: a method that a path of the API does not take must be told.
        for path in ("/", "/{file}", "/page/{file}", "/runs/{run}", "/approvals/{run}/{approval}"):
            app.router.add_get(path, self.page)

    # --- health -----------------------------------------------------------------------------

    async def live(self, request: web.Request) -> web.Response:
        return answer({"ok": True})

    async def ready(self, request: web.Request) -> web.Response:
        ready = self._ready()
        return answer({"ok": ready, "views": self._histories.instances()}, 200 if ready else 503)

    def _ready(self) -> bool:
        """Runs, and open questions: an inbox that is still being read would look empty."""
        return self._histories.ready() and self._board_read()

    async def metrics(self, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()  # the lag is asked of Kafka, which may take seconds
        text = await loop.run_in_executor(None, generate_latest, self._registry)
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text, headers=kind)

    async def health(self, request: web.Request) -> web.Response:
        viewer(request)
        async with self._looking:  # whoever asks meanwhile gets the same answer
            now = time.monotonic()
            if self._looked is None or now - self._looked[0] > _LOOK_SECONDS:
                loop = asyncio.get_running_loop()
                seen = await loop.run_in_executor(None, self._watch.look)
                self._looked = (time.monotonic(), seen)
        shown = {
            "ready": self._ready(),
            **self._looked[1],
            "views": self._histories.instances(),
        }
        return answer(shown)

    # --- sign-in ----------------------------------------------------------------------------

    async def login(self, request: web.Request) -> web.Response:
        token = (await body_of(request, _LOGIN_BYTES)).get("token")
        who = self._access.caller(token if isinstance(token, str) else None)
        if who is None:
            raise Problem(401, "bad_token", "that token is not known here")
        response = answer({"user": who.user, "roles": sorted(who.roles), "dev": who.dev})
        if isinstance(token, str) and not who.dev:
            response.set_cookie(
                COOKIE,
                token,
                httponly=True,
                samesite="Strict",
                secure=self._secure or request.secure,
                path="/",
            )
        return response

    async def logout(self, request: web.Request) -> web.Response:
        response = answer({})
        response.del_cookie(COOKIE, path="/")
        return response

    # --- the page ---------------------------------------------------------------------------

    async def openapi(self, request: web.Request) -> web.Response:
        return raw_answer(_DOCUMENT)

    async def page(self, request: web.Request) -> web.StreamResponse:
        """A file by its very name, else the page itself: it knows its own paths."""
        for part, rule in (("run", "run_id"), ("approval", "approval")):
            if part in request.match_info:
                checked(rule, request.match_info[part])
        name = request.match_info.get("file", "")
        found = self._files.get(name)
        if found is None:
            if "." in name:
                raise web.HTTPNotFound
            found = self._files.get("index.html")
        if found is None:
            return web.Response(text=_NO_PAGE, content_type="text/html")
        known = any(tag.value == found.tag for tag in request.if_none_match or ())
        response = web.Response(status=304) if known else found.answer()
        response.etag = found.tag
        response.headers["Cache-Control"] = "no-cache"  # asked each time, sent when it is another
        return response


class _File:
    """One of the page's files, as it was when this process began."""

    def __init__(self, path: Path) -> None:
        self._body = path.read_bytes()
        self._suffix = path.suffix
        self.tag = hashlib.sha256(self._body).hexdigest()[:16]

    def answer(self) -> web.Response:
        charset = "utf-8" if self._suffix in (".html", ".js", ".css", ".json") else None
        kind = _KINDS[self._suffix]
        return web.Response(body=self._body, content_type=kind, charset=charset)


_DOCUMENT: Final = msgspec.json.encode(document())
