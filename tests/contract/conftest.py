"""``world``: the simulated broker, the same with chance in it, and the real one."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.contract.simulated_world import SimulatedWorld
from tests.contract.world import World

if TYPE_CHECKING:
    from tests.contract.kafka_world import Deployment


@pytest.fixture(scope="session")
def deployment(broker: str) -> Iterator[Deployment]:
    from tests.contract.kafka_world import Deployment

    deployment = Deployment(broker, f"c-{uuid.uuid4().hex[:8]}.")
    yield deployment
    deployment.delete_all()


@pytest.fixture(params=["fake", "chance", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "kafka":
        from tests.contract.kafka_world import KafkaWorld

        real = KafkaWorld(request.getfixturevalue("deployment"))
        yield real
        real.close()
    elif request.param == "chance":
        seed = os.environ.get("PERDURE_TEST_SEED") or zlib.crc32(request.node.name.encode())
        print(f"PERDURE_TEST_SEED={seed}")
        yield SimulatedWorld(Random(int(seed)))
    else:
        yield SimulatedWorld(None)
