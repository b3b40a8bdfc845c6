"""Reading topics from a time on: what is older is not read, what comes meanwhile is not missed."""

from __future__ import annotations

import pytest

from perdure.topics_reader import Scanner
from tests.kafka.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(60)]
THEN = 1_750_000_000_000


def test_records_since_a_time(broker: str, prefix: str) -> None:
    world = World(broker, prefix)
    world.create("letters", partitions=2)
    for n, partition in enumerate([0, 0, 1, 0, 1]):
        world.producer.produce(
            prefix + "letters", b"%d" % n, partition=partition, timestamp=THEN + n
        )
    world.flush()
    scanner = Scanner({"bootstrap.servers": broker}, prefix)

    def since(at: int | None) -> set[bytes | None]:
        return {raw.value for raw in scanner.scan(["letters"], since=at) if raw is not None}

    assert since(None) == {b"0", b"1", b"2", b"3", b"4"}
    assert since(THEN + 3) == {b"3", b"4"}
    assert since(THEN + 5) == set()

    following = scanner.scan(["letters"], follow=True, timeout=30, since=THEN + 5)
    assert next(following) is None  # at the ends
    world.put("letters", b"new", partition=1)
    world.flush()
    assert next(raw.value for raw in following if raw is not None) == b"new"
    following.close()  # type: ignore[attr-defined]
