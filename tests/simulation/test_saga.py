"""Six writes that are undone while the engine or the worker dies: balanced, or told exactly.

`make test` visits every fourth death of the longest saga and a slice of each other one; the whole,
with processes that are replaced and requests that land late, is `perdure simulate --sagas` and
the soak test below.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from perdure.streams.core import effects
from perdure.streams.core.decide import undoing
from perdure.streams.core.policies import outcome
from typer.testing import CliRunner

from perdure.cli.app import app
from perdure.testing.dying import Case
from perdure.testing.plots import SAGAS, Saga
from perdure.testing.saga import End
from perdure.testing.sagas import RESTARTED, counted, courses, table

pytestmark = pytest.mark.simulation

LONGEST = "step 6 of 6 is refused"
FOUND: list[tuple[Saga, list[End]]] = []
COMMITS = {
    ("engine", f"{side} {call}")
    for side in ("before", "after")
    for call in ("producer.begin", "producer.send", "producer.send_offsets", "producer.commit")
}
CALLS = {
    ("worker", point)
    for point in (
        "before tool.external", "after tool.external", "before tool.idempotent",
        "after tool.idempotent", "before producer.commit", "after producer.commit",
        "before plain.send", "after plain.send", "before store.write",
    )
}  # fmt: skip


def slice_of(saga: Saga) -> Iterator[End]:
    """Deaths of both, the killed one started again."""
    every = 4 if saga.name == LONGEST else 14 if saga.kept is None else 60
    first = 1 + SAGAS.index(saga) % every
    return courses(saga, RESTARTED, first=first, every=every)


def told(saga: Saga, end: End) -> str:
    return "\n".join(
        [*end.trace[-40:], f"{saga.name}, {end.id}, {end.point}: {', '.join(end.wrong)}"]
    )


def ids(sagas: tuple[Saga, ...]) -> list[str]:
    return [saga.name.replace(" ", "_") for saga in sagas]


@pytest.mark.parametrize("saga", SAGAS, ids=ids(SAGAS))
def test_it_ends_balanced_or_tells_what_is_not(saga: Saga) -> None:
    ends = list(slice_of(saga))
    FOUND.append((saga, ends))
    for end in ends:
        assert not end.wrong, told(saga, end)
    seen = counted(ends)
    assert {end.case.victim for end in ends if end.number} == {"engine", "worker"}
    if saga.kept is None and saga.lost is None and not saga.leaves_doubt:
        named = 0 if saga.shape != "branches" else seen["in_doubt"]
        assert seen["balanced"] == len(ends) - named
    if saga.kept is not None:
        handed = [end for end in ends if ("handover", saga.kept) in kinds(end)]
        assert len(handed) == len(ends)
        assert seen["handed_over"] == (len(ends) if saga.answer == "cancel_run" else 0)
    if saga.lost is not None:
        assert seen["in_doubt"] == len(ends)


def kinds(end: End) -> list[tuple[str, int]]:
    return [(each.kind, each.place) for each in end.asked]


def test_the_deaths_come_everywhere() -> None:
    if len(FOUND) < len(SAGAS):
        pytest.skip("judges the courses above, which did not all run")
    print("\n" + table(FOUND))
    ends = [end for _, found in FOUND for end in found]
    visited = {(end.case.victim, end.point.partition(" (")[0]) for end in ends}
    assert visited >= COMMITS | CALLS
    asked = Counter(kind for end in ends for kind, _ in kinds(end))
    assert asked["in_doubt"] > 10  # undoings that may have happened
    assert len(ends) > 400


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("saga", SAGAS, ids=ids(SAGAS))
def test_every_death(saga: Saga) -> None:
    ends = list(courses(saga))
    print("\n" + table([(saga, ends)]))
    for end in ends:
        assert not end.wrong, told(saga, end)


# --- faults of the product that the judge must see -----------------------------------------------


def wrong_with(saga: Saga, case: Case) -> set[str]:
    return {text for end in courses(saga, [case], every=5) for text in end.wrong}


def test_an_undoing_made_again_without_asking_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "settles_by", lambda *_: "call")
    found = wrong_with(Saga(name="four", full=4), Case("worker"))
    assert "place 3 was given back 2 times" in found


def test_another_order_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    last = undoing._last_done

    def first(run):  # type: ignore[no-untyped-def]
        found = last(run)
        done = [run.action(n) for n in range(1, run.header.next_action)]
        open_ones = [each for each in done if each.kind == "tool" and each.status == "succeeded"]
        return open_ones[0] if found else None

    monkeypatch.setattr(undoing, "_last_done", first)
    found = wrong_with(Saga(name="three", full=3), Case("engine"))
    assert "booked [1, 2], given back in the order [1, 2]" in found


def test_an_outcome_that_calls_it_undone_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(outcome._LEFT, "not_completed", "compensated")
    found = wrong_with(Saga(name="three", full=3, kept=1), Case("engine"))
    assert "place 1: booked 1, given back 0, and the outcome says compensated" in found


def test_a_handover_that_leaves_one_out_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "perdure.streams.core.policies.approval.stands",
        lambda action, undoing: action.status == "succeeded",
    )
    found = wrong_with(Saga(name="three", full=3, kept=2), Case("engine"))
    assert "handover of place 2 names [1], not [1, 2]" in found


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    saga = Saga(name="two", full=2, kept=1)
    few = [(saga, list(courses(saga, [Case("engine")], every=10)))]
    monkeypatch.setattr("perdure.testing.sagas.all_sagas", lambda: iter(few))
    shown = CliRunner().invoke(app, ["simulate", "--sagas"])
    assert shown.exit_code == 0
    assert table(few) in shown.stdout
    lines = CliRunner().invoke(app, ["simulate", "--sagas", "--json"]).stdout.splitlines()
    made = [json.loads(line) for line in lines]
    assert len(made) == len(few[0][1])
    assert {(each["status"], each["balance"]["1"]) for each in made} == {("failed", 1)}
    assert all(each["asked"] == [["handover", 1]] for each in made)
