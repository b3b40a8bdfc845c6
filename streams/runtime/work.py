"""What one cycle took and staged: committed together, or given back as if never taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .assignment import OwnedPartition
from .ports import End
from .processor import Record
from .savepoint import Output


class Taken:
    """The inputs of one partition that a cycle took: given back when it is void."""

    __slots__ = ("announced", "events", "items", "timers_held_back", "timers_looked_at")

    def __init__(self) -> None:
        self.items: list[Record | End] = []
        self.events: list[Any] = []
        self.announced = False
        self.timers_looked_at = False
        self.timers_held_back = False


class Work:
    """What one cycle took and staged."""

    __slots__ = (
        "actions", "buried", "counts", "first", "inputs", "outputs", "replaced", "size", "staged", "taken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.taken: dict[OwnedPartition, Taken] = {}
        # Ordered, not sets: the order of a transaction must not hang on memory addresses, or a
        # simulated run would not repeat itself.
        self.staged: dict[OwnedPartition, None] = {}
        self.outputs: list[Output] = []
        self.actions: list[Callable[[], None]] = []
        self.size = 0
        self.inputs = 0
        self.first: Any = None  # the first input taken
        self.replaced = False  # poison was set aside: what is staged is not what it led to
        self.counts: dict[str, int] = {}
        self.buried: dict[str, int] = {}  # dead letters by reason

    def of(self, own: OwnedPartition) -> Taken:
        taken = self.taken.get(own)
        if taken is None:
            taken = self.taken[own] = Taken()
        return taken

    def touched(self) -> list[OwnedPartition]:
        """Every partition of which something was staged or taken."""
        return list(dict.fromkeys([*self.staged, *self.taken]))

    def take(self, source: Any) -> None:
        self.first = source if self.inputs == 0 else self.first
        self.inputs += 1

    def count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


def is_same(one: object, other: object) -> bool:
    """The same input, taken again. Timers are read anew from the store: equal is the same."""
    return one is other or (type(one) is tuple and one == other)
