"""A model that chance speaks for: good calls, broken ones, odd replies, outages, an end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from perdure.connectors.models.provider import ModelContext, ModelError, Reply, ToolCall
from perdure.schemas.records import Usage

_NOTES: Final = {
    "pin": {"name": "amount", "value": [1, 500]},
    "update_plan": {"items": [{"title": "pay", "status": "in_progress"}]},
}
"""Called by a chance of their own, so that all other calls of a seed stay what they are."""
Arguments = Callable[[random.Random, str], Any]
"""Of a tool, by its name."""


class ChanceModel:
    """Implements the connectors' `Provider`; ``calm`` makes it answer and end. With a chance for
    ``notes`` it writes some, too."""

    def __init__(
        self,
        chance: random.Random,
        arguments: Arguments,
        turns: int = 3,
        notes: random.Random | None = None,
    ) -> None:
        self._chance = chance
        self._arguments = arguments
        self._turns = turns
        self._notes = notes
        self.calm = False
        self.calls = 0

    async def complete(self, request: dict[str, Any], context: ModelContext) -> Reply:
        chance = self._chance
        self.calls += 1
        if self._notes is not None and request.get("purpose") == "summary":
            return await self._summary(self._notes)
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
        said = chance.choice((None, "thinking"))
        if self._notes is not None and self._notes.random() < 0.4:
            name = self._notes.choice(sorted(_NOTES))
            calls.append(ToolCall("note", name, dict(_NOTES[name])))
        return Reply(said, calls, "tool_calls", usage=usage)

    async def _summary(self, notes: random.Random) -> Reply:
        await asyncio.sleep(notes.choice((0.0, 0.005, 0.4)))
        usage = Usage(notes.randrange(60), notes.randrange(30), 0.25)
        roll = notes.random()
        if roll < 0.15 and not self.calm:
            kind = notes.choice(("transient", "model_unavailable", "context_overflow"))
            raise ModelError(kind, "http_500", "no luck", usage=usage)
        return Reply("" if roll < 0.2 else f"so far: {notes.randrange(1000)}", usage=usage)
