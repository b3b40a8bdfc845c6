"""A member stopped past its session timeout comes back and only has timers to commit."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.runtime_process import Process
from tests.kafka.counting import CHANGELOG, LEFT, OUT, RIGHT
from tests.kafka.world import World, check_sequences, until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


def ticks(world: World) -> int:
    return sum(end for end in world.ends(OUT, 2))


def test_an_expelled_member_commits_nothing_more(broker: str, prefix: str, tmp_path: Path) -> None:
    world = World(broker, prefix)
    world.create(LEFT, RIGHT, OUT)
    world.create(CHANGELOG, cleanup_policy="compact")
    for i in range(6):
        world.put(LEFT, b"v", b"key-%d" % i)
    world.flush()
    first = Process("ticking.py", "one", world, tmp_path)
    second = None
    try:
        until(lambda: ticks(world) > 50, "it ticks")
        first.signal(signal.SIGSTOP)
        second = Process("ticking.py", "two", world, tmp_path)
        before = ticks(world)
        until(lambda: ticks(world) > before + 100, "the second goes on")
        first.signal(signal.SIGCONT)
        # Back, it either finds itself fenced and ends, or rejoins; both tick on after that.
        resumed, now = time.monotonic(), ticks(world)
        until(lambda: ticks(world) > now + 200 and time.monotonic() > resumed + 2, "they go on")
        assert first.exit_code in (None, 5)
        if first.exit_code is None:
            assert first.stop() in (0, 5)
        assert second.stop() == 0
        outputs = world.read(OUT)
        check_sequences(outputs, {json.loads(m.value())["of"] for m in outputs})
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
