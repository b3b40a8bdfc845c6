"""The simulation can fail: with any one piece of the product broken, some seed goes red soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.testing.scenario import Scenario
from perdure.testing.simulation import simulate
from perdure.testing.world import World, Yield

from .mutants import MUTANTS

pytestmark = pytest.mark.simulation

LIMIT = 400
"""Seeds within which each must be seen."""
FIRST = {
    "acting_before_the_commit": 10,
    "committed_end_taken": 257,
    "external_called_again": 16,
    "failed_undoings_called_undone": 4,
    "no_query_before_the_call": 2,
    "notices_sent_again": 2,
    "offsets_taken_last": 6,
    "overlay_kept": 346,
    "settle_time_ignored": 32,
    "signatures_taken_unseen": 93,
    "unchanged_offsets_left_out": 18,
    "undone_first_first": 15,
    "undone_twice": 15,
}
"""Where to begin: saves time, decides nothing."""
TAKEOVERS = {
    "committed_end_taken",
    "offsets_taken_last",
    "unchanged_offsets_left_out",
    "unstable_offsets_taken",
}
"""Seen where partitions change hands: their seeds have more of that."""


def _dies_amid_its_commit(world: World) -> None:
    """A worker whose calls go on in other threads while its transaction is not committed."""
    amid = Yield(0.03, crash=True)
    world.strike("producer.commit", "before", amid, process="worker-1", nth=world.seed % 4 + 1)


PREPARED = {"acting_before_the_commit": _dies_amid_its_commit}


def _seeds(name: str) -> Iterator[int]:
    first = FIRST.get(name, 0)
    yield first
    yield from (seed for seed in range(LIMIT) if seed != first)


def _scenario(seed: int, name: str) -> Scenario:
    takeovers = True if name in TAKEOVERS else None
    return Scenario(seed, takeovers=takeovers, prepare=PREPARED.get(name))


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_piece_is_seen(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = break_it.__name__
    break_it(monkeypatch)
    for seed in _seeds(name):
        result = simulate(seed, make=lambda seed: _scenario(seed, name))
        if not result.ok:
            assert not any("the simulation broke" in text for text in result.wrong), result.wrong
            return
    pytest.fail(f"{LIMIT} seeds saw nothing")
