"""Two processes, killed with -9 eight times under load, judged from the topics alone."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.chaos.runtime_process import Process
from tests.kafka.counting import CHANGELOG, LEFT, OUT, RIGHT
from tests.kafka.world import World, check_sequences, until

PARTITIONS = 4
RECORDS = 20_000
KILLS = 8
FEED_SECONDS = 36  # so that work is going on at every kill

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


def test_nothing_lost_and_nothing_twice_over_eight_kills(
    broker: str, prefix: str, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    world = World(broker, prefix)
    world.create(LEFT, RIGHT, OUT, partitions=PARTITIONS)
    world.create(CHANGELOG, partitions=PARTITIONS, cleanup_policy="compact")
    processes = [Process("counting.py", name, world, tmp_path) for name in ("one", "two")]
    sent = 0
    kills = 0
    began = time.monotonic()
    next_kill = began + 5
    try:
        while sent < RECORDS or kills < KILLS:
            due = min(RECORDS, int((time.monotonic() - began) * RECORDS / FEED_SECONDS))
            for _ in range(due - sent):
                world.put(
                    LEFT if sent % 2 else RIGHT, b"%d" % sent, b"key-%d" % chance.randrange(200)
                )
                sent += 1
            world.producer.poll(0.03)
            for process in processes:
                if not process.running():  # fenced by the other's takeover: its supervisor's turn
                    process.start()
            if kills < KILLS and time.monotonic() >= next_kill:
                process = processes[kills % 2]
                process.kill()
                process.start()
                kills += 1
                next_kill = time.monotonic() + chance.uniform(2.5, 4.5)
        world.flush()
        expected = {
            f"{topic}-{m.partition()}-{m.offset()}"
            for topic in (LEFT, RIGHT)
            for m in world.read(topic, PARTITIONS)
        }
        assert len(expected) == RECORDS
        # Beyond the count, two sequences' ends also hold transaction markers.
        until(lambda: len(world.read(OUT, PARTITIONS)) >= RECORDS, "all worked off", 40)
        for process in processes:
            until(process.joined, "a member of the group")
        assert [process.stop() for process in processes] == [0, 0]
        check_sequences(world.read(OUT, PARTITIONS), expected)
    finally:
        for process in processes:
            process.kill()
