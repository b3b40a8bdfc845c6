"""A tool's body taken apart at its awaits, so that a process can die at each of them.

A process that is killed runs no ``finally``. So the coroutine of a dead process is kept as it
stands, neither closed nor collected, until its effects have been counted.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Final

from perdure.connectors.tool import Tool

from .points import Point, rebound

MOST: Final = 100
"""Awaits of one call that are visited; a loop that polls need not be visited a million times."""


class Bodies:
    """The coroutines that were begun in one world. ``point`` is told of each await."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self._begun: list[Coroutine[Any, Any, Any]] = []

    def taken_apart(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """The same tool, with a point before and after each await of its body."""
        if not tool.is_async:
            return tool
        function = tool.function

        @functools.wraps(function)
        async def stepped(*args: Any, **kwargs: Any) -> Any:
            body = function(*args, **kwargs)
            self._begun.append(body)
            return await _Stepped(body, self._point)

        return rebound(tool, stepped, tool.query_function)

    def close(self) -> None:
        """Once nothing counts any more: let go of those that hang."""
        for body in self._begun:
            with contextlib.suppress(BaseException):
                body.close()
        self._begun.clear()


class _Stepped:
    def __init__(self, body: Coroutine[Any, Any, Any], point: Point) -> None:
        self._body = body
        self._point = point

    def __await__(self) -> Generator[Any, Any, Any]:
        body, number = self._body, 0
        raised: BaseException | None = None
        while True:
            try:
                waited = body.send(None) if raised is None else body.throw(raised)
            except StopIteration as stopped:
                return stopped.value
            number += 1
            where = f"await {number}{_line(body)}"
            if number <= MOST:
                self._point(where, "before")
            raised = None
            try:
                yield waited
            except GeneratorExit:  # the process is dead: the body stays where it is
                raise
            except BaseException as error:
                raised = error
            if number <= MOST:
                self._point(where, "after")


def _line(body: Coroutine[Any, Any, Any]) -> str:
    """Where it waits, for people."""
    if inspect.iscoroutine(body) and body.cr_frame is not None:
        return f" ({Path(body.cr_code.co_filename).name}:{body.cr_frame.f_lineno})"
    return ""
