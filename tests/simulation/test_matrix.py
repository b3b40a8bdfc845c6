"""The promise of contract section 6, observed: effects for each death of worker and engine.

What is expected stands here a second time, by hand. `perdure simulate --matrix` visits some 700
deaths more (the engine replaced by another, or killed with a request on its way).
"""

from __future__ import annotations

import json

import pytest
from perdure.streams.core import effects
from perdure.streams.core.decide import result, settling
from typer.testing import CliRunner

from perdure.cli.app import app
from perdure.testing.course import Cell
from perdure.testing.dying import Case
from perdure.testing.matrix import KINDS, Kind, matrix, place, table
from perdure.testing.report import Report

pytestmark = pytest.mark.simulation

ALLOWED = {  # (effect, has a query): (effects, what the outcome may say)
    ("read_only", False): ({1, 2}, {"completed"}),
    ("idempotent", False): ({1}, {"completed"}),
    ("idempotent", True): ({1}, {"completed"}),
    ("external", True): ({1}, {"completed"}),
    ("external", False): ({0, 1}, {"completed", "in_doubt"}),
}
WORKER_DIES_AT = {
    "before the tool's body", "before await 1", "after await 1", "after the tool's body",
    "before consumer.poll", "after consumer.poll",
}  # fmt: skip
IN_TRANSACTIONS = {
    f"{side} {call}"
    for side in ("before", "after")
    for call in (
        "producer.begin", "producer.send", "consumer.membership", "producer.send_offsets",
        "producer.commit", "store.write",
    )
}  # fmt: skip


def column(kind: Kind) -> Report:
    """All deaths of the worker (of calls that may be repeated, one that lands late is not also taken
    over); the engine restarted."""

    def quick(case: Case) -> bool:
        if case.victim == "engine":
            return case.then == "restart" and not case.late
        return kind.effect == "external" or case.then == "restart" or not case.late

    return next(matrix([kind], quick))[1]


def deaths(report: Report, victim: str, late: bool = False) -> list[Cell]:
    return [
        cell
        for cell in report.cells
        if cell.number and cell.case.victim == victim and cell.case.late == late
    ]


def ids(kinds: tuple[Kind, ...]) -> list[str]:
    return [str(kind).replace(" + ", "_with_") for kind in kinds]


@pytest.mark.parametrize("kind", KINDS, ids=ids(KINDS))
def test_effects_are_those_promised_wherever_a_process_dies(kind: Kind) -> None:
    report = column(kind)
    counts, says = ALLOWED[kind.effect, kind.queried]
    for cell in report.cells:
        assert cell.effects in counts, f"{cell.id} {cell.point}\n" + "\n".join(cell.trace)
        assert cell.status in says, f"{cell.id} {cell.point}: {cell.status} {cell.detail}"
        assert not cell.oddities
    assert (report.undisturbed.effects, report.undisturbed.status) == (1, "completed")
    visited = {place(cell) for cell in deaths(report, "worker")}
    assert visited >= WORKER_DIES_AT
    assert visited >= (IN_TRANSACTIONS if kind.effect == "external" else {"after plain.send"})
    assert {place(cell) for cell in deaths(report, "engine")} >= IN_TRANSACTIONS
    if kind == Kind("external", False):
        doubts_only_where_it_may_have_begun(report)
    then = {cell.case.then for cell in deaths(report, "worker", late=True)}
    if kind.effect == "external":
        assert then == {"restart", "takeover"}
    else:
        assert then == ({"restart"} if kind.effect == "idempotent" else set())


def doubts_only_where_it_may_have_begun(report: Report) -> None:
    """Before ``started`` is committed, and once the result is, nobody is asked."""
    worker = [cell for cell in deaths(report, "worker") if cell.case.then == "restart"]
    doubted = [cell.number for cell in worker if cell.status == "in_doubt"]
    assert worker[doubted[0] - 1].point == "after producer.commit"
    assert worker[doubted[-1] - 1].point == "before producer.commit"
    assert doubted == list(range(doubted[0], doubted[-1] + 1))
    assert {cell.effects for cell in worker if cell.status == "in_doubt"} == {0, 1}
    assert not [cell for cell in deaths(report, "engine") if cell.status == "in_doubt"]


def wrong_with(kind: Kind, wanted: Case) -> list[Cell]:
    report = next(matrix([kind], lambda case: case == wanted))[1]
    return [cell for cell in report.cells if report.wrong(cell, report.promise)]


def test_a_query_before_its_time_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is made again without waiting for what may be on its way happens twice."""
    for module in (result, settling):
        monkeypatch.setattr(module, "settled_at", lambda action: 0)
    wrong = wrong_with(Kind("external", True), Case(late=True))
    assert {cell.effects for cell in wrong} == {2}


def test_an_unknown_call_that_is_simply_made_again_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "settles_by", lambda *_: "call")
    wrong = wrong_with(Kind("external", False), Case())
    assert "after the tool's body" in {place(cell) for cell in wrong}
    assert {cell.effects for cell in wrong} == {2}


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(matrix([Kind("read_only", False)], lambda case: case == Case("worker", "restart")))
    monkeypatch.setattr("perdure.testing.matrix.matrix", lambda: iter(few))
    shown = CliRunner().invoke(app, ["simulate", "--matrix"])
    assert shown.exit_code == 0
    assert table(few) in shown.stdout
    assert "read_only: any number of effects; observed 1 or 2" in shown.stdout
    lines = CliRunner().invoke(app, ["simulate", "--matrix", "--json"]).stdout.splitlines()
    cells = [json.loads(line) for line in lines]
    assert len(cells) == len(few[0][1].cells) - 1
    body = [cell for cell in cells if cell["point"] == "after the tool's body"]
    assert [(cell["killed"], cell["effects"], cell["outcome"]) for cell in body] == [
        ("worker", 2, "completed")
    ]
