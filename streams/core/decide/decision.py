"""What a decider returns, and the port it looks things up through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
from perdure.schemas.records import AgentSpec, RunEvent, ToolSpec

from .. import events
from ..apply import begin, evolve
from ..cel import ExpressionError
from ..state import Header, Run

KEPT_INLINE: Final = 256_000
"""Larger values travel as a reference (contract section 3)."""
_TOGETHER: Final = 400_000
_encode = msgspec.json.Encoder().encode


class Unreadable(ExpressionError):
    """A large value that was kept can't be had any more: what is worked out from it has no value."""


class Lookup(Protocol):
    """What a decision may depend on besides the run: the catalog, and large values."""

    def agent(self, name: str) -> AgentSpec | None: ...
    def tool(self, name: str) -> ToolSpec | None: ...
    def agent_names(self) -> list[str]: ...

    def queue_problem(self, queue: str) -> str | None:
        """Why nothing can be sent to a queue (its topic is missing or has a wrong partition count)."""

    def value(self, value: Any) -> Any:
        """A free-form value, read from the blob store where it is a reference. Raises `Unreadable`."""

    def beginning(self, value: Any, most: int) -> str | None:
        """The first ``most`` bytes of a large value's JSON; None of what is no reference to one, or
        of one that can't be read."""

    def keep(self, value: Any, above: int = KEPT_INLINE) -> Any:
        """The value, or a reference to it in the blob store where its JSON is ``above`` bytes."""


def fitting(lookup: Lookup, values: Sequence[Any]) -> list[Any]:
    """Values of one record: by reference each that is large, or that all together are too large."""
    if sum(len(_encode(value)) for value in values) <= _TOGETHER:
        return [lookup.keep(value) for value in values]
    share = max(1_000, _TOGETHER // (2 * len(values)))
    return [lookup.keep(value, share) for value in values]


class Refusal:
    """A message that changes nothing: it is counted, and a request gets this as its verdict."""

    __slots__ = ("final", "reason")

    def __init__(self, reason: str, final: bool = False) -> None:
        self.reason = reason
        self.final = final
        """Also of a request that was accepted before: it is not the same any more."""

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r})"


class Decision:
    """Events and the run they make. Each event is applied as it is emitted, exactly once."""

    __slots__ = (
        "copied",
        "events",
        "lookup",
        "now",
        "opened",
        "request",
        "request_id",
        "run",
        "verdict",
    )

    def __init__(self, run: Run, now: int, lookup: Lookup) -> None:
        self.run = run
        self.now = now
        self.lookup = lookup
        self.events: list[RunEvent] = []
        self.verdict = ""
        self.request = ""
        self.request_id: str | None = None
        """Of the request that is decided on: noted in the first event, for `perdure rebuild`."""
        self.opened: list[int] = []
        """Questions opened by this decision: people are told of those that stay open."""
        self.copied = 0
        """So many of the events are another run's (a fork): what they led to has been sent."""

    @classmethod
    def on(cls, run: Run, now: int, lookup: Lookup) -> Decision:
        """A decision about a run, which stays as it is."""
        return cls(run.copy(), now, lookup)

    @classmethod
    def starting(
        cls,
        header: Header,
        base: Any,
        now: int,
        lookup: Lookup,
        data: dict[str, Any],
        at: int | None = None,
    ) -> Decision:
        """A decision that begins a run; ``header`` names it."""
        event = events.make(
            run=header,
            version=1,
            type="run_started",
            at=now if at is None else at,
            actor=f"user:{header.user_id}",
            data=data,
            previous_hash="",
        )
        decision = cls(begin(event, base), now, lookup)
        decision.events.append(event)
        return decision

    def emit(
        self, type: str, data: dict[str, Any], actor: str = "engine", at: int | None = None
    ) -> None:
        header = self.run.header
        if self.request_id is not None:
            data = {**data, "request_id": self.request_id, "request": self.request}
            self.request_id = None
        event = events.make(
            run=header,
            version=header.version + 1,
            type=type,
            at=self.now if at is None else at,
            actor=actor,
            data=data,
            previous_hash=header.hash,
        )
        evolve(self.run, event)
        self.events.append(event)
