"""Crash point x effect x has a query -> effects: the promise of contract section 6, observed.

Five tools over one fake service that counts. Each is called once for every point at which the
worker or the engine can die, restarted or replaced, with its first request landed or still on its
way while the query truthfully says absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from perdure.connectors.errors import Effect
from perdure.connectors.tool import ABSENT, Answer, Found, Tool, ToolContext, tool

from .course import Cell, Subject, course
from .crashes import cases, courses
from .dying import Case
from .network import Network
from .report import Report

TIMEOUT: Final = 2.0
SETTLE: Final = 8.0
VICTIMS: Final = ("worker", "engine")


class Service:
    """Counts what happened. With ``keeps_keys`` a second request of one key is the first one."""

    def __init__(self, network: Network, *, keeps_keys: bool) -> None:
        self._network = network
        self._keeps_keys = keeps_keys
        self._done: list[str] = []
        self._on_the_way = 0
        self.absent_on_the_way = 0
        """Queries that were truthfully told "absent" while a request was on its way."""

    async def do(self, key: str) -> Any:
        self._on_the_way += 1
        return await self._network.send(lambda: self._land(key))

    def _land(self, key: str) -> Any:
        self._on_the_way -= 1
        if not (self._keeps_keys and key in self._done):
            self._done.append(key)
        return {"number": self._done.index(key) + 1}

    def find(self, key: str) -> Found | Answer:
        if key in self._done:
            return Found({"number": self._done.index(key) + 1})
        self.absent_on_the_way += self._on_the_way > 0
        return ABSENT

    def count(self) -> int:
        return len(self._done)

    def clear(self) -> None:
        """For the next course; what was on its way in the last one is gone."""
        self._done.clear()
        self._on_the_way = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A column of the matrix."""

    effect: Effect
    queried: bool

    def __str__(self) -> str:
        return self.effect + (" + query" if self.queried else "")


KINDS: Final = (
    Kind("read_only", False),
    Kind("idempotent", False),
    Kind("idempotent", True),
    Kind("external", False),
    Kind("external", True),
)


def matrix(
    kinds: Iterable[Kind] = KINDS, wanted: Callable[[Case], bool] = lambda case: True, seed: int = 0
) -> Iterator[tuple[Kind, Report]]:
    """One column after the other, those ``cases`` that are ``wanted``."""
    for kind in kinds:
        network = Network()
        service = Service(network, keeps_keys=kind.effect == "idempotent")
        made = _tool(kind, service)
        subject = Subject(
            tool=made, arguments={}, effects=service.count, reset=service.clear, network=network
        )
        cells = [course(subject, Case(), 0, seed)]
        chosen = [case for case in cases(subject, VICTIMS) if wanted(case)]
        cells += courses(subject, iter(chosen), seed)
        yield kind, Report(made.name, kind.effect, kind.queried, cells, seed, lambda cell: cell.id)


def _tool(kind: Kind, service: Service) -> Tool[..., Any]:
    @tool(
        kind.effect + ("_queried" if kind.queried else ""),
        effect=kind.effect,
        timeout_seconds=TIMEOUT,
        settle_seconds=SETTLE,
    )
    async def act(context: ToolContext) -> Any:
        return await service.do(context.idempotency_key)

    if kind.queried:

        @act.query
        async def find(context: ToolContext) -> Found | Answer:
            return service.find(context.idempotency_key)

    return act


# --- as people read it -------------------------------------------------------------------------

_SIGNS: Final = {"completed": "", "in_doubt": "?", "not_completed": "-", "stuck": "!"}


def table(reports: Iterable[tuple[Kind, Report]]) -> str:
    """A row for each point, a column for each kind of tool: every number of effects observed."""
    columns: list[str] = []
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for kind, report in reports:
        for late in (False, True):
            cells = [cell for cell in report.cells if cell.number and cell.case.late == late]
            if not cells:
                continue
            column = f"{kind}, in flight" if late else str(kind)
            columns.append(column)
            for cell in cells:
                row = found.setdefault((cell.case.victim, place(cell)), {})
                row.setdefault(column, set()).add(f"{cell.effects}{_SIGNS[cell.status]}")
    names = [f"{number}" for number in range(1, len(columns) + 1)]
    lines = ["effects observed; ? the outcome says in doubt, - not completed, . no such point", ""]
    lines += [f"  {number}: {column}" for number, column in zip(names, columns, strict=True)]
    lines.append("")
    first = max(len(f"{victim}: {at}") for victim, at in found)
    lines.append(" " * first + "".join(f"  {name:>8}" for name in names))
    for (victim, at), row in sorted(found.items(), key=lambda item: item[0][0] != "worker"):
        told = ("/".join(sorted(row.get(column, ()))) or "." for column in columns)
        lines.append(f"{f'{victim}: {at}':<{first}}" + "".join(f"  {text:>8}" for text in told))
    return "\n".join(lines)


def place(cell: Cell) -> str:
    """A point's name without what differs between tools."""
    at = cell.point.partition(" (")[0]
    side, _, where = at.partition(" ")
    return f"{side} the tool's body" if where.startswith("tool.") else at


def document(kind: Kind, report: Report, cell: Cell) -> dict[str, Any]:
    """One cell as JSON."""
    return {
        "effect": kind.effect, "has_query": kind.queried, "killed": cell.case.victim,
        "then": cell.case.then, "in_flight": cell.case.late, "point": place(cell),
        "number": cell.number, "effects": cell.effects, "outcome": cell.status,
        "expected": str(report.promise), "wrong": report.wrong(cell, report.promise),
    }  # fmt: skip
