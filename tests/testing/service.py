"""A fake service that counts, and tools of every kind over it, good ones and liars."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.connectors.tool import ABSENT, UNCLEAR, Answer, Found, Tool, ToolContext, tool

from perdure import BusinessError, TransientError
from perdure.testing import Network


class Shop:
    """``keeps_keys``: a second order of one key is the first one."""

    def __init__(self, network: Network, keeps_keys: bool = False) -> None:
        self.network = network
        self.keeps_keys = keeps_keys
        self.orders: list[str] = []
        self.tidied = 0
        self.handed: set[Any] = set()
        """What calls were told that earlier ones had saved; kept over all courses."""

    def land(self, key: str) -> Any:
        if not (self.keeps_keys and key in self.orders):
            self.orders.append(key)
        return {"number": self.orders.index(key)}

    async def order(self, key: str) -> Any:
        return await self.network.send(lambda: self.land(key))

    def order_now(self, key: str) -> Any:
        return self.network.call(lambda: self.land(key))

    def find(self, key: str) -> Found | Answer:
        return Found({"number": self.orders.index(key)}) if key in self.orders else ABSENT

    def count(self) -> int:
        return len(self.orders)

    def clear(self) -> None:
        self.orders.clear()
        self.tidied = 0


# --- tools that keep their word ------------------------------------------------------------------


def look(shop: Shop) -> Tool[..., Any]:
    @tool("look", effect="read_only")
    def look(item: str) -> Any:
        return {"item": item}

    return look


def put(shop: Shop) -> Tool[..., Any]:
    shop.keeps_keys = True

    @tool("put", effect="idempotent", timeout_seconds=5)
    async def put(context: ToolContext, item: str) -> Any:
        return await shop.order(context.idempotency_key)

    return put


def put_now(shop: Shop) -> Tool[..., Any]:
    shop.keeps_keys = True

    @tool("put_now", effect="idempotent", timeout_seconds=5)
    def put_now(context: ToolContext, item: str) -> Any:
        return shop.order_now(context.idempotency_key)

    return put_now


def put_in_pages(shop: Shop) -> Tool[..., Any]:
    """Goes on where the last attempt has stopped."""
    shop.keeps_keys = True

    @tool("put_in_pages", effect="idempotent", timeout_seconds=5)
    async def put_in_pages(context: ToolContext, item: str) -> Any:
        shop.handed.add(context.progress)
        for page in range(int(context.progress or 0), 2):
            await asyncio.sleep(0.1)
            await context.save_progress(page + 1)
        return shop.land(context.idempotency_key)

    return put_in_pages


def put_in_pages_now(shop: Shop) -> Tool[..., Any]:
    shop.keeps_keys = True

    @tool("put_in_pages_now", effect="idempotent", timeout_seconds=5)
    def put_in_pages_now(context: ToolContext, item: str) -> Any:
        context.save_progress("begun")
        return shop.land(context.idempotency_key)

    return put_in_pages_now


def pay(shop: Shop) -> Tool[..., Any]:
    @tool("pay", effect="external", timeout_seconds=5)
    async def pay(context: ToolContext, item: str) -> Any:
        return await shop.order(context.idempotency_key)

    @pay.query
    async def find(context: ToolContext) -> Found | Answer:
        return shop.find(context.idempotency_key)

    return pay


def pay_now(shop: Shop) -> Tool[..., Any]:
    @tool("pay_now", effect="external", timeout_seconds=5)
    def pay_now(context: ToolContext, item: str) -> Any:
        return shop.order_now(context.idempotency_key)

    @pay_now.query
    def find(context: ToolContext, item: str) -> Found | Answer:
        return shop.find(context.idempotency_key)

    return pay_now


def send(shop: Shop) -> Tool[..., Any]:
    """Nobody can be asked whether it happened."""

    @tool("send", effect="external", timeout_seconds=5)
    async def send(context: ToolContext, item: str) -> Any:
        return await shop.order(context.idempotency_key)

    return send


def undeclared(shop: Shop) -> Tool[..., Any]:
    @tool
    def undeclared(context: ToolContext, item: str) -> Any:
        assert context.approval is not None  # it asked, and somebody said yes
        return shop.land(context.idempotency_key)

    return undeclared


def refused(shop: Shop) -> Tool[..., Any]:
    @tool("refused", effect="external", timeout_seconds=5)
    async def refused(item: str) -> Any:
        raise BusinessError("sold out")

    @refused.query
    def find() -> Answer:
        return ABSENT

    return refused


# --- tools that don't ------------------------------------------------------------------------------


def not_idempotent(shop: Shop) -> Tool[..., Any]:
    @tool("not_idempotent", effect="idempotent", timeout_seconds=5)
    async def not_idempotent(context: ToolContext, item: str) -> Any:
        return await shop.order(context.idempotency_key)

    return not_idempotent


def not_idempotent_now(shop: Shop) -> Tool[..., Any]:
    @tool("not_idempotent_now", effect="idempotent", timeout_seconds=5)
    def not_idempotent_now(context: ToolContext, item: str) -> Any:
        return shop.order_now(context.idempotency_key)

    return not_idempotent_now


def _asked(shop: Shop, answer: Found | Answer) -> Tool[..., Any]:
    @tool("asked", effect="external", timeout_seconds=5)
    async def asked(context: ToolContext, item: str) -> Any:
        return await shop.order(context.idempotency_key)

    @asked.query
    async def find() -> Found | Answer:
        return answer

    return asked


def always_absent(shop: Shop) -> Tool[..., Any]:
    return _asked(shop, ABSENT)


def always_found(shop: Shop) -> Tool[..., Any]:
    return _asked(shop, Found({"number": 0}))


def never_clear(shop: Shop) -> Tool[..., Any]:
    return _asked(shop, UNCLEAR)


def says_no_after_all(shop: Shop) -> Tool[..., Any]:
    """An error that says "it did not happen", raised after it did."""

    @tool("says_no_after_all", effect="external", timeout_seconds=5)
    def says_no_after_all(context: ToolContext, item: str) -> Any:
        shop.land(context.idempotency_key)
        raise BusinessError("no")

    return says_no_after_all


def tries_again_after_all(shop: Shop) -> Tool[..., Any]:
    @tool("tries_again_after_all", effect="external", timeout_seconds=5)
    async def tries_again_after_all(context: ToolContext, item: str) -> Any:
        shop.land(context.idempotency_key)
        raise TransientError("busy")

    return tries_again_after_all


def tidies_up(shop: Shop) -> Tool[..., Any]:
    """Counts on its ``finally``, which no process that is killed gets to run."""

    @tool("tidies_up", effect="external", timeout_seconds=5)
    async def tidies_up(context: ToolContext, item: str) -> Any:
        try:
            await asyncio.gather(asyncio.sleep(0.1), shop.order(context.idempotency_key))
        finally:
            shop.tidied += 1

    return tidies_up
