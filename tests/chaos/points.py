"""The points at which a role is killed, as a table, and what an observer may expect of each.

A run of a round calls one tool of each effect: look (read_only), put (idempotent), keep (idempotent
with a query), pay (external with a query), wire (external without). The engine needs six to eight
transactions for it. The worker needs four, all for its external calls: pay noted as started (1),
pay finished (2), wire started (3), wire finished (4).
"""

from __future__ import annotations

from dataclasses import dataclass

TOOLS = ("look", "put", "keep", "pay", "wire")
CYCLE = tuple(
    f"{what}.{when}"
    for what in ("poll", "begin", "changelog", "output", "offsets", "commit", "store")
    for when in ("before", "after")
)
"""The numbered points of the cycle, the same for both roles; `act` is the worker's alone."""
ACTS = ("act.before", "act.after")
RESULTS = ("result.before", "result.after")
CALLS = tuple(f"call.{when}.{tool}" for tool in TOOLS for when in ("before", "after"))

_MOST = {"poll": 5, "begin": 4, "changelog": 8, "output": 4, "offsets": 4, "commit": 4, "store": 4, "act": 5, "result": 3, "call": 1}  # fmt: skip
"""How often the worker passes a point in a run; the engine at least six times."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a role is killed: the ``n``-th passing of ``name``; then ``then`` in its next life."""

    role: str
    name: str
    n: int = 1
    then: str | None = None
    late: float = 0.0
    """Seconds by which each request's effect comes after the request."""

    def __str__(self) -> str:
        then = f"-then-{self.then}" if self.then else ""
        late = f"-late-{self.late:g}s" if self.late else ""
        return f"{self.role}-{self.name}-{self.n}{then}{late}"

    @property
    def doubts(self) -> set[str] | None:
        """What a person must have been asked about wire, and have answered; None: can't be told."""
        if self.role == "engine" or self.then is not None:
            return set()
        what = self.name.split(".")[0]
        started = (what in ("store", "act") or self.name == "commit.after") and self.n == (
            5 if what == "act" else 3
        )
        if (self.name == "act.after" and started) or (self.name, self.n) == ("poll.before", 5):
            return None  # the call may just have been begun
        if started or self.name == "call.before.wire":
            return {"mark_not_done"}
        ended = what in ("begin", "offsets") or self.name == "commit.before"
        if (ended and self.n == 4) or self.name == "call.after.wire":
            return {"mark_done"}
        if what in ("changelog", "output") and self.n > 2:
            return None  # how many records a transaction has is nobody's business
        return set()

    def most(self) -> int:
        """The highest n that is sure to come."""
        if self.role == "engine":
            return 10 if self.name.startswith(("changelog", "output")) else 6
        return _MOST[self.name.split(".")[0]]


TWICE = (
    Point("worker", "call.after.pay", then="query.before.pay"),
    Point("worker", "call.after.pay", then="query.after.pay"),
    Point("worker", "call.before.pay", then="query.after.pay"),
    Point("worker", "commit.before", 2, then="commit.before"),
    Point("engine", "commit.before", 3, then="commit.before"),
    Point("engine", "commit.after", 4, then="output.after"),
)
IN_FLIGHT = (
    Point("worker", "call.before.pay", late=1.5),
    Point("worker", "act.after", 4, late=1.5),
)
"""The first request may still be on its way when the query says that nothing is there."""

ONCE = (
    *(Point("engine", name, 1 + index % 6) for index, name in enumerate(CYCLE)),
    *(Point("worker", name, 3 + index // 2 % 2) for index, name in enumerate(CYCLE)),
    *(Point("worker", name, 5) for name in ACTS),
    *(Point("worker", name, 2) for name in RESULTS),
    *(Point("worker", name) for name in CALLS),
    *TWICE,
    *IN_FLIGHT,
)
"""Each point once."""

SHORT = (
    *(
        p
        for p in ONCE
        if p.role == "engine"
        and p.then is None
        and p.name
        in (
            "poll.after",
            "changelog.after",
            "output.after",
            "offsets.after",
            "commit.before",
            "commit.after",
            "store.after",
        )
    ),
    *(
        Point("worker", name, n)
        for name, n in (
            ("poll.after", 5),
            ("output.after", 3),
            ("offsets.after", 4),
            ("commit.before", 3),
            ("commit.after", 3),
            ("commit.before", 4),
            ("commit.after", 4),
            ("store.after", 3),
            ("act.before", 5),
            ("result.before", 2),
            ("result.after", 2),
            ("call.before.put", 1),
            ("call.after.put", 1),
            ("call.before.pay", 1),
            ("call.after.pay", 1),
            ("call.before.wire", 1),
            ("call.after.wire", 1),
        )
    ),
    TWICE[0],
    TWICE[2],
    TWICE[4],
    IN_FLIGHT[0],
)
"""Those of them that differ in what is on the log afterwards: what `make test` takes."""


def many(rounds: int) -> dict[str, tuple[Point, ...]]:
    """``rounds`` rounds of each point by its name, at every n that is sure to come, in turn."""
    bases = {
        **{f"engine-{name}": Point("engine", name) for name in CYCLE},
        **{f"worker-{name}": Point("worker", name) for name in (*CYCLE, *ACTS, *RESULTS, *CALLS)},
    }
    found = {
        name: tuple(Point(p.role, p.name, 1 + i % p.most()) for i in range(rounds))
        for name, p in bases.items()
    }
    # Two lives a round, and the same each time: half as many.
    found |= {str(p): (p,) * (rounds // 2) for p in (*TWICE, *IN_FLIGHT)}
    return found
