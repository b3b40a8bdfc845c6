"""The fake outside: it acts, forgets, answers late or never, and knows what really happened.

What it counts is what the invariants are judged by, so it shares no code with the product. A
request *lands* (its effect happens) at a moment of its own, also when its caller is long dead: a
request still in flight while a query truthfully says absent is the ordinary case here. It lands
within the tool's settle time, which is what the tool has promised.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from perdure.connectors.errors import (
    BusinessError,
    OutcomeUnknown,
    PermissionDenied,
    TransientError,
)
from perdure.connectors.tool import ABSENT, UNCLEAR, Answer, Found, ToolContext

NEVER: Final = 1e7
UNLUCKY: Final = 13
FORBIDDEN: Final = 14
"""Amounts that every service refuses: by a rule of its own, and for lack of permission."""
SKEW_ALLOWED: Final = 1.5
"""Seconds by which clocks may differ: a settle time must be longer by that than a request's way."""


class Ground(Protocol):
    """What the outside needs of the world."""

    def later(self, seconds: float, action: Callable[[], None]) -> None: ...

    def happened(self, what: str) -> None:
        """For the trace."""

    def landed(self, tool: str) -> None:
        """An effect has just happened; the world may kill whoever waits for the answer."""

    def answer_after(self, seconds: float) -> None:
        """A ``def`` tool's answer takes so long."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that happened outside."""

    tool: str
    key: str
    action_id: str
    attempt: int
    arguments: Any


@dataclass(slots=True)
class Fate:
    """What becomes of one request. ``answer``: an exception is raised, None: the service's own."""

    lands: bool = True
    land_after: float = 0.0
    answer_after: float = 0.0
    answer: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Habits:
    """How the services behave."""

    well: float = 0.6
    """Share of requests that simply succeed."""
    late: bool = True
    """Requests may land after the caller gave up (never with clocks that jump)."""
    unclear: float = 0.15
    """Share of queries without an answer."""


class Outside:
    """The services. ``calm`` makes them all well."""

    def __init__(self, chance: random.Random, ground: Ground, habits: Habits) -> None:
        self._chance = chance
        self._ground = ground
        self._habits = habits
        self.calm = False
        self.effects: list[Effect] = []
        self.by_key: Counter[str] = Counter()
        self.by_action: Counter[str] = Counter()
        self.begun: Counter[tuple[str, int]] = Counter()
        self.violations: list[str] = []
        """Calls that should never have been made."""
        self.on_the_way: Counter[str] = Counter()
        self.kept: dict[str, Any] = {}
        self._ways: Counter[str] = Counter()

    # --- calls ---------------------------------------------------------------------------------

    async def call(
        self, context: ToolContext, tool: str, effect: str, arguments: Any, settle: float
    ) -> Any:
        """A request of an ``async def`` tool."""
        fate = self._send(context, tool, effect, arguments, settle)
        await asyncio.sleep(fate.answer_after)
        return self._answer(context, fate)

    def call_blocking(
        self, context: ToolContext, tool: str, effect: str, arguments: Any, settle: float
    ) -> Any:
        """The same of a ``def`` tool: it is over at once, its answer comes later."""
        fate = self._send(context, tool, effect, arguments, settle, blocking=True)
        self._ground.answer_after(fate.answer_after)
        return self._answer(context, fate)

    def _send(
        self,
        context: ToolContext,
        tool: str,
        effect: str,
        arguments: Any,
        settle: float,
        blocking: bool = False,
    ) -> Fate:
        key = context.idempotency_key
        self.begun[context.action_id, context.attempt] += 1
        if effect == "external":
            self._judge(context, tool)
        fate = self._fate(effect, settle)
        if arguments.get("amount") == UNLUCKY:
            fate = Fate(lands=False, answer=BusinessError("no luck"))
        elif arguments.get("amount") == FORBIDDEN:
            fate = Fate(lands=False, answer=PermissionDenied("not you"))
        refused = isinstance(fate.answer, BusinessError | PermissionDenied)
        if effect == "idempotent" and key in self.kept and refused:
            fate.answer = None  # the second call with a key returns the first result
        if blocking and fate.answer is None:
            fate.land_after = 0.0  # it has its answer in hand when it returns
        self._ground.happened(
            f"outside: {tool} of {context.action_id} attempt {context.attempt}: {_told(fate)}"
        )
        if effect == "read_only":
            fate.lands = False
            return fate
        if fate.lands:
            self.on_the_way[key] += 1
            self._ways[context.action_id] += 1
            made = Effect(tool, key, context.action_id, context.attempt, arguments)
            if fate.land_after <= 0:
                self._land(made, effect)
            else:
                self._ground.later(fate.land_after, lambda: self._land(made, effect))
        return fate

    def on_the_way_of(self, action_id: str) -> bool:
        """A request of this action has not landed yet."""
        return self._ways[action_id] > 0

    def _judge(self, context: ToolContext, tool: str) -> None:
        """Invariant 2 at the moment it would be broken."""
        key = context.idempotency_key
        what = f"{tool} of {context.action_id} attempt {context.attempt}"
        if self.begun[context.action_id, context.attempt] > 1:
            self.violations.append(f"2: {what} began a second time")
        if self.by_key[key]:
            self.violations.append(f"2: {what} was called though it had happened")
        elif self.on_the_way[key]:
            self.violations.append(f"2: {what} was called with a request still on its way")

    def _fate(self, effect: str, settle: float) -> Fate:
        chance = self._chance
        quick = chance.choice((0.0, 0.002, 0.02, 0.2))
        fate = Fate(answer_after=quick + chance.choice((0.0, 0.005, 0.05)), land_after=quick)
        roll = chance.random()
        if self.calm or roll < self._habits.well:
            return fate
        kind = chance.randrange(9)
        if kind == 0:
            fate.lands, fate.answer = False, _nothing(chance)
        elif kind == 1:
            fate.lands = False
            fate.answer = chance.choice((BusinessError("no"), PermissionDenied("not you")))
        elif kind == 2:
            fate.answer = chance.choice((ConnectionResetError("gone"), OutcomeUnknown("who knows")))
        elif kind == 3:
            fate.lands, fate.answer = False, ConnectionResetError("gone")
        elif kind == 4:
            fate.answer_after = NEVER
        elif kind == 5:
            fate.lands, fate.answer_after = False, NEVER
        elif kind == 6:
            fate.lands = chance.random() < 0.5
            fate.answer = RuntimeError("a bug in the tool")
        elif kind == 7:  # slow, but answered
            fate.land_after = chance.uniform(0.3, 2.5)
            fate.answer_after = fate.land_after + 0.01
        if kind == 8 or (kind in (2, 4) and chance.random() < 0.5):
            if self._habits.late:  # on its way long after the caller has given up
                fate.land_after = chance.uniform(0.0, max(0.05, 0.9 * settle - SKEW_ALLOWED))
            fate.answer = fate.answer or TimeoutError("no answer")
        if effect == "external" and fate.lands and not self._habits.late:
            fate.land_after = 0.0
        if fate.answer_after < NEVER and fate.answer is None:
            fate.answer_after = max(fate.answer_after, fate.land_after)
        return fate

    def _land(self, made: Effect, effect: str) -> None:
        self.on_the_way[made.key] -= 1
        self._ways[made.action_id] -= 1
        if not (effect == "idempotent" and made.key in self.kept):
            self.effects.append(made)
            self.by_key[made.key] += 1
            self.by_action[made.action_id] += 1
            self.kept[made.key] = {"tool": made.tool, "n": len(self.effects)}
            self._ground.happened(f"outside: {made.tool} of {made.action_id} HAPPENED")
        self._ground.landed(made.tool)

    def _answer(self, context: ToolContext, fate: Fate) -> Any:
        if fate.answer is not None:
            raise fate.answer
        return self.kept.get(context.idempotency_key, {"n": 0})

    # --- queries -------------------------------------------------------------------------------

    async def query(self, context: ToolContext) -> Found | Answer:
        await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.3)))
        return self.query_blocking(context)

    def query_blocking(self, context: ToolContext) -> Found | Answer:
        """The truth about the key, or that nobody can tell at the moment."""
        roll = self._chance.random()
        key = context.idempotency_key
        said: Found | Answer = Found(self.kept[key]) if key in self.kept else ABSENT
        if not self.calm and roll < self._habits.unclear:
            if roll < self._habits.unclear / 3:
                raise ConnectionResetError("the query got no answer")
            said = UNCLEAR
        self._ground.happened(f"outside: query of {context.action_id}: {said!r:.40}")
        return said


def _nothing(chance: random.Random) -> Exception:
    return chance.choice(
        (
            TransientError("busy"),
            TransientError("busy", retry_after_seconds=2.0),
            ConnectionRefusedError("refused"),
        )
    )


def _told(fate: Fate) -> str:
    answer = "answers" if fate.answer is None else f"raises {type(fate.answer).__name__}"
    if fate.answer_after >= NEVER:
        answer = "never answers"
    lands = f"lands after {fate.land_after:.3f} s" if fate.lands else "does not land"
    return f"{lands}, {answer}"
