"""Topics that take nothing for a while, as with too few replicas: it costs nothing but time.

An input that is taken for poison would be seen: as a dead letter or a quarantine nobody asked for,
a call in doubt whose end was known, a run that does not come to rest.
"""

from __future__ import annotations

import random

import pytest
from perdure.schemas import topics
from perdure.streams.runtime import refusals

from perdure.testing.scenario import Scenario
from perdure.testing.simulation import simulate
from perdure.testing.world import World

pytestmark = pytest.mark.simulation

ALONE = (
    topics.RESULTS, topics.EVENTS, topics.OUTCOMES, topics.commands("tools"), topics.PENDING,
)  # fmt: skip
STATE = (topics.changelog(topics.ENGINE), topics.changelog("worker.tools"))


PATIENCE = refusals.PATIENCE


def sicken(world: World) -> None:
    chance = random.Random(f"{world.seed}/sick")
    if world.seed % 2:  # the rest of Kafka is well: only its length tells it from an input's fault
        sick, seconds = {chance.choice(ALONE)}, chance.uniform(5.0, PATIENCE - 20.0)
    else:
        sick, seconds = {*ALONE, *STATE}, chance.uniform(5.0, 5 * PATIENCE)

    def begin() -> None:
        world.say(f"sick for {seconds:.0f} s: {', '.join(sorted(sick))}")
        world.broker.sick |= sick
        world.later(seconds, lambda: world.broker.sick.difference_update(sick))

    world.later(chance.uniform(0.5, 10.0), begin)


def scenario(seed: int) -> Scenario:
    return Scenario(seed, prepare=sicken)


@pytest.mark.parametrize("seed", range(16))
def test_nothing_is_lost_but_time(seed: int) -> None:
    result = simulate(seed, make=scenario)
    assert result.ok, "\n".join([*result.trace[-40:], *result.wrong[:5]])


def test_a_runtime_with_little_patience_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "PATIENCE", 5.0)
    assert not simulate(1, make=scenario).ok
