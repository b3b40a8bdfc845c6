"""Three tools with three promises. `bank` is the client they use; tests put a fake there."""

from __future__ import annotations

from typing import Any

from bank import Bank

from perdure import ABSENT, Found, ToolContext, tool

bank = Bank()


@tool("bank.refund", effect="idempotent", timeout_seconds=5)
async def refund(context: ToolContext, order_id: str, amount: float) -> dict[str, Any]:
    """Refund an order. The bank takes the same reference once."""
    return await bank.refund(context.idempotency_key, amount)


@tool("bank.transfer", effect="external", timeout_seconds=5, settle_seconds=10)
async def transfer(context: ToolContext, account: str, amount: float) -> dict[str, Any]:
    """Transfer money. The bank transfers again if it is asked again, but it can be asked."""
    return await bank.transfer(context.idempotency_key, amount)


@transfer.query
async def find_transfer(context: ToolContext) -> Any:
    found = bank.find(context.idempotency_key)
    return ABSENT if found is None else Found(found)


@tool("bank.letter", effect="external", timeout_seconds=5)
def letter(context: ToolContext, order_id: str) -> None:
    """Post a letter. Nobody can be asked whether it is on its way."""
    bank.letter(context.idempotency_key)
