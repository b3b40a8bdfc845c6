"""The broker is killed with -9 under load and comes back: only a pause."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from perdure.streams.cluster.broker import EmbeddedKafka

from tests.chaos.runtime_process import Process
from tests.kafka.counting import CHANGELOG, LEFT, OUT, RIGHT
from tests.kafka.world import World, check_sequences, until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


def test_a_broker_killed_under_load_is_only_a_pause(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka", port=0) as kafka:
        world = World(kafka.bootstrap_servers, "t.")
        world.create(LEFT, RIGHT, OUT)
        world.create(CHANGELOG, cleanup_policy="compact")
        process = Process("counting.py", "one", world, tmp_path)

        def supervised() -> None:
            """An outage beyond transaction.timeout.ms fences the producer: exit 5, a new process."""
            if not process.running():
                assert process.exit_code in (3, 5)
                process.start()

        try:
            sent, killed, began = 0, False, time.monotonic()
            while sent < 6_000 or not killed:
                for _ in range(min(6_000, int((time.monotonic() - began) * 600)) - sent):
                    world.put(RIGHT if sent % 2 else LEFT, b"v", b"key-%d" % (sent % 50))
                    sent += 1
                world.producer.poll(0.02)
                if not killed and sum(world.ends(OUT, 2)) > 1_000:
                    killed = True
                    os.kill(kafka.pid, signal.SIGKILL)
                    until(lambda: not kafka.alive(), "dead")
                    kafka.start()
            world.flush()
            inputs = {
                f"{t}-{m.partition()}-{m.offset()}" for t in (LEFT, RIGHT) for m in world.read(t)
            }

            def worked_off() -> bool:
                supervised()
                return len(world.read(OUT)) >= len(inputs)

            until(worked_off, "all worked off", 60)
            assert process.stop() == 0
            check_sequences(world.read(OUT), inputs)
        finally:
            process.kill()
