"""What stands before every handler: who calls, how often, which headers go out, which errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from ..access import Access, Rate
from ..ports import Unavailable
from .requests import CALLER, MAX_BODY, Problem, problem

log = logging.getLogger("perdure.views")

COOKIE: Final = "perdure_token"
OPEN: Final = frozenset({"/live", "/ready", "/metrics", "/api/login", "/openapi.json"})
CSP: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ROUTED: Final = "X-Perdure-Routed"
"""Set on what one view process asks of another: answered from there, never sent on."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def token_of(request: web.Request) -> str | None:
    """The bearer token: of the header, else of the cookie that the page has set."""
    given = request.headers.get("Authorization", "")
    if given[:7].lower() == "bearer ":
        return given[7:].strip()
    return request.cookies.get(COOKIE)


def _same_origin(request: web.Request, origins: frozenset[str]) -> bool:
    """A cookie is sent by any page of the world; only ours may write with it. A proxy in front may call
    us by another name than people call it."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    if origin is None or origin in origins:
        return True
    return origin.split("://", 1)[-1] == request.headers.get("Host", "")


class Guard:
    """``hosts``: names under which we are called; others are refused (DNS rebinding), None: any.
    ``origins``: where our page may be served from besides."""

    def __init__(
        self,
        access: Access,
        rate: Rate,
        hosts: frozenset[str] | None = None,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self._access = access
        self._rate = rate
        self._hosts = hosts
        self._origins = origins

    def middleware(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._let_in(request)
                response = await handler(request)
            except Problem as found:
                response = problem(found)
            except Unavailable as error:
                response = problem(Problem(503, "unavailable", str(error)))
            except web.HTTPException as error:
                if error.status < 400:
                    raise
                response = problem(_http(error))
                if "Allow" in error.headers:
                    response.headers["Allow"] = error.headers["Allow"]
            except Exception:
                log.exception("%s %s", request.method, request.path)
                text = "this could not be answered: see the log of the views"
                response = problem(Problem(500, "internal", text))
            if not response.prepared:
                set_headers(response)
            return response

        return guard

    def _let_in(self, request: web.Request) -> None:
        host = request.host.rsplit(":", 1)[0].strip("[]").lower()
        if self._hosts is not None and host not in self._hosts:
            raise Problem(
                400,
                "bad_host",
                "call this address by the name it is served under (--host, page_url or --url)",
            )
        path = request.path
        who = self._access.caller(token_of(request))
        peer = request.remote or "local"
        asks = peer if who is None else f"{peer}/{who.user}"
        if not _of_page(path) and not self._rate.allows(asks, time.monotonic()):
            raise Problem(429, "too_many", "too many requests from here: wait a second")
        if path.startswith("/api/") and path not in OPEN:
            if who is None:
                raise Problem(
                    401,
                    "no_token",
                    "send Authorization: Bearer TOKEN, or POST {token} to /api/login",
                )
            request[CALLER] = who
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            if request.headers.get("Authorization") is None and not _same_origin(
                request, self._origins
            ):
                raise Problem(403, "other_origin", "only this page may write with the cookie")
            length = request.content_length
            if length is not None and length > MAX_BODY:
                raise Problem(413, "too_large", f"at most {MAX_BODY} bytes are taken")


_COUNTED: Final = frozenset({"/live", "/ready", "/metrics", "/openapi.json"})


def _of_page(path: str) -> bool:
    """The page's own files, out of memory: a few dozen for each sight of it, so they don't count."""
    return not path.startswith("/api/") and path not in _COUNTED


def set_headers(response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")


def _http(error: web.HTTPException) -> Problem:
    if error.status == 404:
        return Problem(404, "not_found", "there is nothing here: /openapi.json says what there is")
    if error.status == 405:
        return Problem(405, "bad_method", "this path does not take that method: see /openapi.json")
    if error.status == 413:
        return Problem(413, "too_large", f"at most {MAX_BODY} bytes are taken")
    return Problem(error.status, "refused", error.reason)
