"""A run's limits (lifecycle section 6): what is used up before the next step may begin."""

from __future__ import annotations

from typing import Final

import msgspec
from perdure.schemas.records import (
    MAX_COST,
    MAX_COUNT,
    MAX_SECONDS,
    Budget,
    BudgetPolicy,
    ModelSpec,
    Usage,
)

from ..state import Action, Run

_MOST: Final = {"steps": MAX_COUNT, "tokens": MAX_COUNT, "seconds": MAX_SECONDS, "cost": MAX_COST}


def lowered(agent: BudgetPolicy, task: Budget | None) -> Budget:
    """The agent's limits, lowered where the task asks for less."""

    def least(name: str) -> float | None:
        limits = [
            limit
            for limit in (getattr(agent, name), None if task is None else getattr(task, name))
            if limit is not None
        ]
        return min(limits) if limits else None

    return msgspec.convert(
        {name: least(name) for name in ("steps", "tokens", "seconds", "cost")}, Budget
    )


def priced(run: Run, action: Action, usage: Usage) -> Usage:
    """The usage with its cost by the agent's prices, where the provider names none."""
    if action.kind != "model" or usage.cost:
        return usage
    return _at_prices(run.model_of(action), usage)


def _at_prices(model: ModelSpec, usage: Usage) -> Usage:
    if model.prices is None:
        return usage
    prices = model.prices
    cost = (usage.input_tokens * prices.input + usage.output_tokens * prices.output) / 1_000_000
    return msgspec.structs.replace(usage, cost=min(cost, MAX_COST))


def output_limit(run: Run, model: ModelSpec) -> int | None:
    """Tokens a reply may have; after replies that were cut off there is more room."""
    limit = model.max_output_tokens
    return None if limit is None else limit * 2 ** min(run.header.cut, 2)


def seconds_used(run: Run, now: int) -> float:
    """Since the run began, without the time in which only a person could move it."""
    header = run.header
    waiting = 0 if header.people_since is None else now - header.people_since
    return (now - header.created_at - header.people_ms - waiting) / 1000


def reserved(model: ModelSpec, tokens: int, limit: int | None) -> Usage:
    """What a request of about so many tokens will use, before anybody has counted. ``limit``: of the
    reply's tokens.

    Of a script nothing: it reads nothing.
    """
    if model.provider == "scripted":
        return Usage()
    return _at_prices(model, Usage(tokens, limit or 0))


def no_room(run: Run, next_call: Usage) -> str | None:
    """Which limit the next model call would pass, as a sentence, or None."""
    header = run.header
    limits = header.budget
    tokens = header.input_tokens + header.output_tokens
    more = next_call.input_tokens + next_call.output_tokens
    if limits.tokens is not None and tokens + more > limits.tokens:
        return f"{tokens} of {limits.tokens} tokens are used, and the next model call needs about {more}"
    if limits.cost is not None and header.cost + next_call.cost > limits.cost:
        return (
            f"a cost of {header.cost:g} of {limits.cost:g} is used, and the next model call needs "
            f"about {next_call.cost:g}"
        )
    return None


def used_up(run: Run, now: int) -> str | None:
    """Which limit leaves no room for another step, as a sentence, or None."""
    header = run.header
    limits = header.budget
    if limits.steps is not None and header.step >= limits.steps:
        return f"all {limits.steps} steps are used"
    tokens = header.input_tokens + header.output_tokens
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{tokens} of {limits.tokens} tokens are used"
    if limits.seconds is not None and seconds_used(run, now) >= limits.seconds:
        return f"{limits.seconds:g} seconds are used"
    if limits.cost is not None and header.cost >= limits.cost:
        return f"a cost of {header.cost:g} of {limits.cost:g} is used"
    return None


def extended(limits: Budget, more: Budget) -> Budget:
    """The limits with ``more`` added to those that there are, up to the most that a limit may be."""

    def sum_of(name: str) -> float | None:
        present, added = getattr(limits, name), getattr(more, name)
        return None if present is None else min(present + (added or 0), _MOST[name])

    return msgspec.convert(
        {name: sum_of(name) for name in ("steps", "tokens", "seconds", "cost")}, Budget
    )
