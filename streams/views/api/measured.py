"""How long each answered request took, by its route and status."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answered = Callable[[str, str, int, float], None]
"""Hears of method, route, status and seconds of each answer."""
NO_ROUTE: Final = "none"
"""The route of a request for what is not there: paths of others are no labels."""
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


def measured(answered: Answered) -> Any:
    """A middleware; it stands first, so that refusals are counted too."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        status = 500
        try:
            response = await handler(request)
            status = response.status
            if isinstance(response, web.Response):
                return response
            status = 0  # a stream: it was open for as long as somebody read it
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            if status:
                method = request.method if request.method in _METHODS else "OTHER"
                answered(method, _route(request), status, time.perf_counter() - began)

    return measure


def _route(request: web.Request) -> str:
    """The pattern of the path: a path itself holds ids, and anybody may make up one."""
    resource = request.match_info.route.resource
    return NO_ROUTE if resource is None else resource.canonical
