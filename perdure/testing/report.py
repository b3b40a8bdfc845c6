"""What the courses of one tool gave, and whether that is what its declaration promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .course import Cell

SHOWN: Final = 12
TRACE_SHOWN: Final = 15
Repeat = Callable[[Cell], str]


@dataclass(frozen=True, slots=True)
class Expected:
    """How many effects a course may have."""

    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}" if self.least else "any number of effects"
        if self.least == self.most:
            return f"exactly {self.least}"
        return f"at most {self.most}" if not self.least else f"{self.least} to {self.most}"

    def holds(self, effects: int) -> bool:
        return self.least <= effects and (self.most is None or effects <= self.most)


def promised(effect: str, queried: bool) -> Expected:
    """What a declaration promises (contract section 6)."""
    if effect == "read_only":
        return Expected()
    if effect == "idempotent" or queried:
        return Expected(1, 1)
    return Expected(0, 1)


@dataclass(frozen=True, slots=True)
class Report:
    """``cells``: one for each course, the undisturbed one first."""

    tool: str
    effect: str
    queried: bool
    cells: Sequence[Cell]
    seed: int
    repeat: Repeat
    """How to repeat one course."""

    @property
    def undisturbed(self) -> Cell:
        """The course in which nobody was killed."""
        return self.cells[0]

    @property
    def promise(self) -> Expected:
        return promised(self.effect, self.queried)

    def table(self) -> str:
        """Every course: effects, what the run says of the call, where the process died."""
        return _table(self.cells)

    def assert_effects(
        self,
        *,
        exactly: int | None = None,
        at_most: int | None = None,
        at_least: int | None = None,
    ) -> None:
        """Each course has so many effects, and its outcome tells the truth about them. Without
        arguments: as many as the declaration promises. Raises `AssertionError`."""
        __tracebackhide__ = True
        expected = self.promise
        if exactly is not None:
            expected = Expected(exactly, exactly)
        elif at_most is not None or at_least is not None:
            expected = Expected(at_least or 0, at_most)
        wrong = [(cell, why) for cell in self.cells if (why := self.wrong(cell, expected))]
        if wrong:
            raise AssertionError(self._failure(expected, wrong))

    def wrong(self, cell: Cell, expected: Expected) -> str | None:
        """Why a course is not as it should be."""
        if cell.oddities:
            return f"it broke: {cell.oddities[0]}"
        if cell.status == "stuck":
            return f"the run never ended: {cell.detail}"
        if self.effect != "read_only":
            if cell.status == "not_completed" and cell.effects:
                return "the run says that it did not happen"
            if cell.status == "completed" and not cell.effects and self.undisturbed.effects:
                return "the run says that it happened"
        if not expected.holds(cell.effects):
            return f"expected {expected}"
        return None

    def _failure(self, expected: Expected, wrong: list[tuple[Cell, str]]) -> str:
        asks = "with a query" if self.queried else "no query"
        cell, why = wrong[0]
        lines = [
            f"{self.tool} ({self.effect}, {asks}): expected {expected}; "
            f"{len(wrong)} of {len(self.cells)} courses are wrong (seed {self.seed})",
            "",
            _table([cell for cell, _ in wrong[:SHOWN]], [why for _, why in wrong[:SHOWN]]),
        ]
        if len(wrong) > SHOWN:
            lines.append(f"  ... and {len(wrong) - SHOWN} more")
        if not cell.number:
            lines += ["", "It is wrong even if nobody is killed."]
        told = f" ({cell.detail})" if cell.detail else ""
        lines += ["", f"The first of them, {cell.id}: {cell.effects} effects, {why}{told}."]
        lines += [f"  {line}" for line in cell.trace[-TRACE_SHOWN:]]
        lines += ["", f"again: {self.repeat(cell)}"]
        return "\n".join(lines)


def _table(cells: Iterable[Cell], why: Sequence[str] = ()) -> str:
    rows = [("effects", "the run says", "killed", "at")]
    for cell in cells:
        killed = f"{cell.case}" if cell.number else "-"
        rows.append((str(cell.effects), cell.status, killed, cell.point))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for number, row in enumerate(rows):
        line = f"  {row[0]:>{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}"
        if number and why:
            line += f": {why[number - 1]}"
        lines.append(line.rstrip())
    return "\n".join(lines)
