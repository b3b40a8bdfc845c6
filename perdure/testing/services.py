"""Tools of every effect, with and without a query, `async def` and `def`, over the fake outside.

A declaration is dear (its JSON Schema is made from the hints), so it is made once for each pair
of times and bound to each world's outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.connectors.tool import Answer, Found, Tool, ToolContext, tool

from .outside import Outside
from .points import rebound

_DECLARED: Final[dict[tuple[str, float, float], Tool[..., Any]]] = {}


UNDOING: Final = ("unput", "unputq", "unpay", "unpayq")
MAIL: Final = "mail"
SPARE: Final = "spare"
BESIDE: Final = (*UNDOING, MAIL, SPARE)
"""Tools that no agent has: they undo what others did, tell people that they are asked, stand in."""


def services(outside: Outside, seconds: float, long: float) -> list[Tool[..., Any]]:
    """``seconds``: time-outs; ``long``: settle times where a tool declares one."""

    def declare(
        name: str,
        function: Callable[..., Any],
        query: Callable[..., Any] | None = None,
        **more: Any,
    ) -> Tool[..., Any]:
        at = (name, seconds, long)
        known = _DECLARED.get(at)
        if known is not None:
            return rebound(known, function, query)
        made = _DECLARED[at] = tool(name, timeout_seconds=seconds, **more)(function)
        if query is not None:
            made.query(query)
        return made

    def calling(name: str, effect: str, settle: float) -> Callable[..., Any]:
        async def call(context: ToolContext, amount: int) -> Any:
            return await outside.call(context, name, effect, {"amount": amount}, settle)

        return call

    def put(context: ToolContext, amount: int) -> Any:
        return outside.call_blocking(context, "put", "idempotent", {"amount": amount}, seconds)

    async def ship(context: ToolContext, amount: int) -> Any:
        for page in range(int(context.progress or 0) + 1, 3):
            await context.save_progress(page)
        return await outside.call(context, "ship", "idempotent", {"amount": amount}, seconds)

    def pack(context: ToolContext, amount: int) -> Any:
        context.save_progress({"at": amount})
        return outside.call_blocking(context, "pack", "idempotent", {"amount": amount}, seconds)

    def payd(context: ToolContext, amount: int) -> Any:
        return outside.call_blocking(context, "payd", "external", {"amount": amount}, seconds)

    def undoing(name: str, effect: str, settle: float) -> Callable[..., Any]:
        async def call(context: ToolContext, amount: int, result: Any) -> Any:
            told = {"amount": amount, "result": result}
            return await outside.call(context, name, effect, told, settle)

        return call

    def unput(context: ToolContext, amount: int, result: Any) -> Any:
        told = {"amount": amount, "result": result}
        return outside.call_blocking(context, "unput", "idempotent", told, seconds)

    async def mail(context: ToolContext, to: str, subject: str, text: str) -> Any:
        told = {"to": to, "subject": subject, "text": text}
        return await outside.call(context, MAIL, "external", told, seconds)

    async def found(context: ToolContext) -> Found | Answer:
        return await outside.query(context)

    def found_blocking(context: ToolContext) -> Found | Answer:
        return outside.query_blocking(context)

    asks = "arguments.amount > 100"
    return [
        declare(
            "look", calling("look", "read_only", seconds), effect="read_only", stale_ok_seconds=20
        ),
        declare("put", put, effect="idempotent", compensate="unput"),
        declare(
            "putq", calling("putq", "idempotent", long), found, effect="idempotent",
            settle_seconds=long, compensate="unputq",
        ),
        declare("ship", ship, effect="idempotent", fallback=SPARE),
        declare("pack", pack, effect="idempotent", compensate="unput"),
        declare(
            "pay", calling("pay", "external", seconds), effect="external", compensate="unpay"
        ),
        declare(
            "payq", calling("payq", "external", long), found, effect="external",
            settle_seconds=long, approval=asks, compensate="unpayq",
        ),
        declare("payd", payd, found_blocking, effect="external", fallback=SPARE),
        declare(
            SPARE, calling(SPARE, "idempotent", seconds), effect="idempotent", compensate="unput"
        ),
        declare("wild", calling("wild", "external", seconds)),
        declare("unput", unput, effect="idempotent"),
        declare(
            "unputq", undoing("unputq", "idempotent", long), found, effect="idempotent",
            settle_seconds=long,
        ),
        declare("unpay", undoing("unpay", "external", seconds), effect="external"),
        declare(
            "unpayq", undoing("unpayq", "external", long), found, effect="external",
            settle_seconds=long, approval="always",
        ),
        declare(MAIL, mail, effect="external"),
    ]  # fmt: skip
