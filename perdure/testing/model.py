"""A model that chance speaks for: good calls, broken ones, odd replies, outages, an end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from perdure.connectors.models.provider import ModelContext, ModelError, Reply, ToolCall
from perdure.schemas.records import Usage

_NOTES: Final = frozenset({"pin", "update_plan"})
"""Never called: what the seeds mean that are known for a defect must stay."""
Arguments = Callable[[random.Random, str], Any]
"""Of a tool, by its name."""


class ChanceModel:
    """Implements the connectors' `Provider`; ``calm`` makes it answer and end."""

    def __init__(self, chance: random.Random, arguments: Arguments, turns: int = 3) -> None:
        self._chance = chance
        self._arguments = arguments
        self._turns = turns
        self.calm = False
        self.calls = 0

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        chance = self._chance
        self.calls += 1
        await asyncio.sleep(chance.choice((0.0, 0.005, 0.05, 0.4)))
        roll = chance.random()
        usage = Usage(chance.randrange(60), chance.randrange(30), 0.25)
        if self.calm or int(request.get("turn", 0)) > self._turns:
            return Reply("done", usage=usage)
        if roll < 0.06:
            kinds = (
                "transient",
                "model_unavailable",
                "model_invalid",
                "permission",
                "content_filter",
            )
            raise ModelError(chance.choice(kinds), "http_500", "no luck", usage=usage)
        if roll < 0.08:
            await asyncio.sleep(1e6)
        if roll < 0.14:
            return chance.choice(
                (
                    Reply("", usage=usage),
                    Reply("cut", finish_reason="odd", usage=usage),
                    Reply(None, [ToolCall("x", "no.such", {}), ToolCall(None, "look", None, "{")]),
                )
            )
        if roll < 0.25:
            return Reply("done", usage=usage)
        offered = (offer["name"] for offer in request.get("tools") or ())
        names = [name for name in offered if name not in _NOTES]
        if not names:
            return Reply("nothing to call", usage=usage)
        chosen = [chance.choice(names) for _ in range(chance.choice((1, 1, 2, 3)))]
        calls = [
            ToolCall(f"c{i}", name, self._arguments(chance, name)) for i, name in enumerate(chosen)
        ]
        return Reply(chance.choice((None, "thinking")), calls, "tool_calls", usage=usage)
