"""Six writes that are undone, with a death at every point meanwhile: courses and their table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .crashes import TestingError
from .dying import Case
from .plots import SAGAS, Saga
from .saga import End, Sagas

MOST: Final = 2_000
"""Points of one case; a saga that passes more of them goes round and round."""
RESTARTED: Final = (Case("engine"), Case("worker"))
ALL: Final = (
    *RESTARTED,
    Case("engine", "takeover"),
    Case("worker", "takeover"),
    Case("engine", late=True),
    Case("worker", late=True),
    Case("worker", "takeover", late=True),
)


def cases_of(saga: Saga) -> Sequence[Case]:
    """All of them, but for the many in which an undoing is refused for good."""
    return ALL if saga.kept is None else RESTARTED


def courses(
    saga: Saga,
    cases: Sequence[Case] | None = None,
    *,
    first: int = 1,
    every: int = 1,
    seed: int = 0,
) -> Iterator[End]:
    """Undisturbed, then with a death at ``every`` n-th point of each case from the ``first`` on."""
    sagas = Sagas(seed)
    yield sagas.course(saga, Case(), 0)
    for case in cases_of(saga) if cases is None else cases:
        for number in range(first, MOST, every):
            end = sagas.course(saga, case, number)
            if not end.number:
                break
            yield end
        else:
            raise TestingError(f"{saga.name}, {case}: more than {MOST} points")


def all_sagas(seed: int = 0) -> Iterator[tuple[Saga, list[End]]]:
    """Every course of every saga."""
    for saga in SAGAS:
        yield saga, list(courses(saga, seed=seed))


# --- as people read it ---------------------------------------------------------------------------


def counted(ends: Iterable[End]) -> dict[str, int]:
    """What became of the courses; each is one of balanced, handed over, in doubt, wrong."""
    found = {"courses": 0, "balanced": 0, "handed_over": 0, "in_doubt": 0, "wrong": 0, "asked": 0}
    for end in ends:
        found["courses"] += 1
        found["asked"] += bool(end.asked)
        if end.wrong:
            found["wrong"] += 1
        elif end.balanced and "in_doubt" not in end.listed.values():
            found["balanced"] += 1
        elif "in_doubt" in end.listed.values():
            found["in_doubt"] += 1
        else:
            found["handed_over"] += 1
    return found


_COLUMNS: Final = ("courses", "balanced", "handed_over", "in_doubt", "wrong", "asked")


def table(sagas: Iterable[tuple[Saga, list[End]]]) -> str:
    """A row for each saga."""
    rows = [(saga.name, counted(ends)) for saga, ends in sagas]
    total = {name: sum(row[name] for _, row in rows) for name in _COLUMNS}
    rows.append(("all", total))
    first = max(len(name) for name, _ in rows)
    lines = [
        "balanced: every booking given back once, last first; handed over: a handover and the outcome",
        "name what is not; in doubt: the outcome names it; asked: a person was, on the way", "",
        " " * first + "".join(f"  {name.replace('_', ' '):>11}" for name in _COLUMNS),
    ]  # fmt: skip
    for name, row in rows:
        lines.append(f"{name:<{first}}" + "".join(f"  {row[column]:>11}" for column in _COLUMNS))
    return "\n".join(lines)


def document(saga: Saga, end: End) -> dict[str, Any]:
    """One course as JSON."""
    return {
        "saga": saga.name, "killed": end.case.victim if end.number else None,
        "then": end.case.then, "in_flight": end.case.late, "number": end.number,
        "point": end.point, "status": end.status, "balance": end.balance, "listed": end.listed,
        "asked": [[each.kind, each.place] for each in end.asked], "wrong": list(end.wrong),
    }  # fmt: skip
