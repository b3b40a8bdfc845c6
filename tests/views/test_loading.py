"""A restored partition's rows come into the lists a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from perdure.streams.views import faust_app
from perdure.streams.views.faust_app import RUNS, AppSettings, ViewsApp
from perdure.streams.views.index import Index

from .test_index import row

ROWS = 25


class Restored(ViewsApp):
    """The app with its tables restored and nothing of Faust; a test may take partitions away."""

    def __init__(self, directory: Path, partitions: Iterable[int]) -> None:
        self.rows = Index()
        super().__init__(AppSettings("", directory, 4), self.rows)
        self.mine = set(partitions)
        self.read: list[tuple[str, int]] = []

    def given(self) -> set[int]:
        return set(self.mine)

    def _is_open(self, name: str, partition: int) -> bool:
        return partition in self.mine

    def _items(self, name: str, partition: int) -> Iterable[tuple[bytes, bytes]]:
        for n in range(ROWS if name == RUNS else 0):
            self.read.append((name, partition))
            made = row(f"p{partition}-{n}")
            yield made.run_id.encode(), msgspec.msgpack.encode(made)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faust_app, "LOADED_AT_ONCE", 10)


def loaded(app: Restored, meanwhile: list[int], taken_after: int | None = None) -> None:
    """Load, while something else runs on the loop, as the group's heartbeats do."""

    async def beat() -> None:
        while True:
            meanwhile.append(app.rows.size())
            if len(meanwhile) == taken_after:
                app.mine.discard(1)
                await app._assigned(None)
            await asyncio.sleep(0)

    async def both() -> None:
        beating = asyncio.ensure_future(beat())
        await asyncio.sleep(0)
        await app._recovered()
        beating.cancel()

    asyncio.run(both())


def test_the_loop_is_free_between_chunks(tmp_path: Path) -> None:
    app, meanwhile = Restored(tmp_path, [0, 1]), list[int]()
    loaded(app, meanwhile)
    assert {*meanwhile} >= {0, 10, 20, 25, 35, 45, 50}
    assert (app.held(), app.recovered.is_set()) == ([0, 1], True)
    app.rows.close()


def test_a_partition_that_goes_while_it_is_loaded_leaves_nothing(tmp_path: Path) -> None:
    app, meanwhile = Restored(tmp_path, [0, 1]), list[int]()
    loaded(app, meanwhile, taken_after=5)
    assert app.rows.size() == ROWS
    assert (app.held(), app.recovered.is_set()) == ([0], False)
    assert app.read.count((RUNS, 1)) < ROWS
    app.mine.add(1)  # the group has settled: Faust says so again
    loaded(app, meanwhile)
    assert (app.held(), app.rows.size(), app.recovered.is_set()) == ([0, 1], 2 * ROWS, True)
    app.rows.close()
