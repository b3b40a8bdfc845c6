"""The disk of the engine's store is full: it ends and says so, and goes on when there is room again.

On a tmpfs of a few MB, mounted for the test; skipped where mounting is not allowed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.deployed import Site
from tests.chaos.load import Load
from tests.kafka.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.soak]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """All but some kB."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    with filler.open("r+b") as file:
        file.truncate(max(filler.stat().st_size - 65_536, 0))
    return filler


def test_full_disk_ends_the_engine_and_loses_nothing(
    broker: str, prefix: str, make_site: Callable[..., Site], small_disk: Path
) -> None:
    site = make_site(broker, prefix)
    engine = site.role("engine", data=small_disk)
    worker = site.role("worker")
    engine.start()
    worker.start()
    site.ready()
    load = Load(site, 8.0)
    until(lambda: load.ended >= 10, "it works", 40, load.step)
    filler = fill(small_disk)
    until(lambda: not engine.running(), "it ends", 60, load.step)
    assert engine.exit_code == 1, engine.tail()
    assert "No space left on device" in engine.said(), engine.tail()
    # A supervisor starts it in vain as long as the disk is full: it ends each time, and says why.
    for _ in range(2):
        engine.start()
        ended = engine.ended(40)
        assert ended == 1, engine.tail()
        assert "No space left on device" in engine.said(), engine.tail()
    before = load.ended
    filler.unlink()
    engine.start()
    until(lambda: load.ended > before, "it works again", 40, load.look)
    load.settle(60)
