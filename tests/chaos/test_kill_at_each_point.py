"""Engine and worker killed with -9 at each operation of Kafka, the store and the outside (R02).

What must come out, whatever the point: read_only any number of calls; idempotent exactly one effect,
under one key; external with a truthful query exactly one; external without one at most one before a
person is asked, and a person is asked exactly where nobody can know. Every step's command is once
there for a read_committed reader, and the outcome is that of a run without a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.chaos.points import SHORT, Point, many
from tests.chaos.rounds import Round, Rounds

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

LANES = 6
MORE_LANES = 7
"""For many rounds: then their start is nothing."""
ROUNDS = 20

Started = dict[str, list[Future[Round]]]


@pytest.fixture(scope="module")
def rounds(
    request: pytest.FixtureRequest, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """The rounds of all the tests selected, under way from the first one on."""
    wanted: dict[str, tuple[Point, ...]] = {}
    for item in request.session.items:
        if item.module is request.module and hasattr(item, "callspec"):  # type: ignore[attr-defined]
            wanted |= item.callspec.params["points"]
    prefix = f"t-{uuid.uuid4().hex[:6]}."
    lanes = LANES if sum(map(len, wanted.values())) < 100 else MORE_LANES
    with Rounds(broker, prefix, tmp_path_factory.mktemp("rounds"), lanes) as made:
        started = {name: made.add(points) for name, points in wanted.items()}
        yield started
        if all(future.done() for futures in started.values() for future in futures):
            made.check_topics()


def check(points: dict[str, tuple[Point, ...]], rounds: Started) -> None:
    faults = []
    for name in points:
        for future in rounds[name]:
            try:
                found = future.result()
                print(f"{found.point}: {found.seconds:.1f} s, requests {found.requests}, asked {found.doubts}")  # fmt: skip
            except AssertionError as error:
                faults.append(str(error))
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("points", [{f"once-{p}": (p,)} for p in SHORT], ids=map(str, SHORT))
def test_r02_killed_at(points: dict[str, tuple[Point, ...]], rounds: Started) -> None:
    check(points, rounds)


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "points", [{name: points} for name, points in many(ROUNDS).items()], ids=list(many(ROUNDS))
)
def test_r02_twenty_rounds_at(points: dict[str, tuple[Point, ...]], rounds: Started) -> None:
    check(points, rounds)
