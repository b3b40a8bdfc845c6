"""The simulation can fail: with any one piece of the product broken, some seed goes red soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.testing.simulation import simulate

from .mutants import MUTANTS

pytestmark = pytest.mark.simulation

LIMIT = 200
"""Seeds within which each must be seen."""
FIRST: dict[str, int] = {}
"""Where to begin: saves time, decides nothing."""


def _seeds(name: str) -> Iterator[int]:
    first = FIRST.get(name, 0)
    yield first
    yield from (seed for seed in range(LIMIT) if seed != first)


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_piece_is_seen(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    for seed in _seeds(break_it.__name__):
        result = simulate(seed)
        if not result.ok:
            assert not any("the simulation broke" in text for text in result.wrong), result.wrong
            return
    pytest.fail(f"{LIMIT} seeds saw nothing")
