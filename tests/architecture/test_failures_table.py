"""docs/failures.md: every row names a test, and every test it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failures.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]`]+)\])?`( \(soak)?")
LOOSE = re.compile(r"\btest_\w+")
KILLED = "tests/chaos/test_kill_at_each_point.py"
EXPECTED = (  # what architecture.md, section 7, asks for
    "kill -9 of the engine", "kill -9 of the worker", "broker is killed", "loses its network",
    "rebalance in mid-cycle", "rebalance in mid-call", "full disk", "corrupt", "stale", "foreign",
    "store deleted", "changelog lost", "unread inputs deleted", "zombie", "poison",
    "bug in one run", "too big", "clock jumps", "engine is down while a decision arrives",
    "foreign transaction", "ledger entry", "group's offsets", "finished run's records",
)  # fmt: skip


def rows(text: str) -> list[str]:
    """Of all tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if not set(line) <= set("|- ") and not (following and set(following) <= set("|- "))
    ]


def named(text: str) -> list[tuple[str, str, str, bool]]:
    """(file, test, parameters, said to be soak)."""
    return [(path, test, chosen, bool(soak)) for path, test, chosen, soak in NAMED.findall(text)]


@cache
def known_tests(path: str) -> dict[str, bool]:
    """The tests of a file, and whether each is run by `make chaos` only."""
    file = ROOT / path
    if not file.exists():
        return {}
    tree = ast.parse(file.read_text())
    of_all = any(
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
        and "mark.soak" in ast.unparse(node.value)
        for node in tree.body
    )
    return {
        node.name: of_all
        or any(ast.unparse(mark) == "pytest.mark.soak" for mark in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@cache
def points() -> dict[str, set[str]]:
    """The points that the two tests of deaths are run at."""
    from tests.chaos.points import SHORT, many

    return {
        "test_r02_killed_at": {str(point) for point in SHORT},
        "test_r02_twenty_rounds_at": set(many(1)),
    }


def faults(text: str) -> list[str]:
    found = []
    for row in rows(text):
        if not named(row):
            found.append(f"names no test: {row[:80]}")
        cells = row.strip("|").split(" | ")
        if len(cells) != 4 or not all(cell.strip() for cell in cells):
            found.append(f"has not four cells: {row[:80]}")
        loose = set(LOOSE.findall(NAMED.sub("", row)))
        if loose:
            found.append(f"names {', '.join(sorted(loose))} without a file")
    for path, test, chosen, soak in named(text):
        if test not in known_tests(path):
            found.append(f"{path}::{test} does not exist")
        elif path == KILLED:
            if chosen not in points()[test]:
                found.append(f"{test} is not run at {chosen!r}")
        elif chosen:
            found.append(f"{path}::{test}[{chosen}]: only points can be checked")
        elif soak != known_tests(path)[test]:
            found.append(f"{path}::{test} is {'not ' if soak else ''}soak")
    return found


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text()


def test_each_row_names_a_test_and_each_test_is_there(text: str) -> None:
    assert faults(text) == []
    assert len(rows(text)) > 50


def test_the_failures_that_were_asked_for_are_there(text: str) -> None:
    assert [what for what in EXPECTED if what not in text] == []


def test_each_operation_of_the_cycle_has_a_row(text: str) -> None:
    """The numbered points, as the chaos tests pass them."""
    told = {chosen.split("-")[1].partition(".")[0] for _, _, chosen, _ in named(text) if chosen}
    assert told >= {"poll", "begin", "changelog", "output", "offsets", "commit", "store", "call"}
    for role in ("engine", "worker"):
        sides = {
            chosen.split("-")[1] for _, _, chosen, _ in named(text) if chosen.startswith(f"{role}-")
        }
        assert sides >= {"commit.before", "commit.after"}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| a | b | c | `tests/no/such.py::test_x` |", "tests/no/such.py::test_x does not exist"),
        (f"| a | b | c | `{KILLED}::test_gone` |", f"{KILLED}::test_gone does not exist"),
        (
            f"| a | b | c | `{KILLED}::test_r02_killed_at[engine-lunch-1]` |",
            "test_r02_killed_at is not run at 'engine-lunch-1'",
        ),
        ("| a | b | c | trust us |", "names no test: | a | b | c | trust us |"),
        (
            "| a | b | c | `tests/chaos/test_full_disk.py::test_full_disk_ends_the_engine_and_loses_nothing` |",
            "tests/chaos/test_full_disk.py::test_full_disk_ends_the_engine_and_loses_nothing is soak",
        ),
        (
            "| a | | c | `tests/core/test_golden.py::test_a_recorded_history_folds_to_the_state_it_had` |",
            "has not four cells",
        ),
    ],
)
def test_the_check_would_see_a_wrong_row(row: str, fault: str) -> None:
    page = f"| what | on the log | then | shown by |\n|---|---|---|---|\n{row}\n"
    assert any(found.startswith(fault) for found in faults(page))
