"""Whatever happens to the local store, the changelog is the truth (D01, D02, D03).

Each case leaves a question open, ends the engine, damages what lies in its directory, starts it
again and answers: the one effect must follow, with an unbroken history and nobody's help.
"""

from __future__ import annotations

import json
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perdure.streams.runtime.store import META_KEY
from rocksdict import Options, Rdict

from tests.chaos.deployed import Site, plan_of
from tests.chaos.fake_service import FakeService
from tests.chaos.judge import check_runs
from tests.chaos.role import Role

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


class Desk:
    """An engine and a worker, and the engine's stores."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.engine: Role = site.role("engine", crashing=True).start()
        site.role("worker").start()
        site.ready()
        self.runs: list[str] = []

    @property
    def stores(self) -> list[Path]:
        return [self.site.directory / "data" / "engine.one" / f"p{n}" for n in (0, 1)]

    def ask(self, name: str) -> str:
        run_id = f"{name}-{len(self.runs)}"
        self.site.submit(plan_of(run_id, "put", "gift"))
        self.site.question(run_id)
        self.runs.append(run_id)
        return run_id

    def answer(self, run_id: str) -> None:
        """And see to it that all is as it should be."""
        self.site.decide(self.site.question(run_id), "approve")
        outcome = self.site.outcome(run_id)
        assert (outcome["status"], outcome["complete"]) == ("done", True), outcome["text"]
        assert self.site.service.count("gift", run_id) == 1
        assert self.site.service.count("put", run_id) == 1
        check_runs(self.site, self.runs)


@pytest.fixture(scope="module")
def desk(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    service = FakeService()
    site = Site(broker, f"t-{uuid.uuid4().hex[:8]}.", tmp_path_factory.mktemp("desk"), service)
    try:
        yield Desk(site)
    finally:
        site.close()
        service.close()


def deleted(store: Path) -> None:
    shutil.rmtree(store)


def _overwrite(files: list[Path]) -> None:
    assert files, "nothing there to corrupt"
    for file in files:
        content = bytearray(file.read_bytes())
        middle = len(content) // 3
        content[middle : middle + 64] = b"\xa5" * len(content[middle : middle + 64])
        file.write_bytes(bytes(content))


def overwritten_sst(store: Path) -> None:
    # Opening writes what stands in the log of a killed process into a table.
    Rdict(str(store), Options(raw_mode=True)).close()
    _overwrite(list(store.glob("*.sst")))


def overwritten_manifest(store: Path) -> None:
    _overwrite(list(store.glob("MANIFEST-*")))


def no_current(store: Path) -> None:
    (store / "CURRENT").unlink()


def _change(store: Path, change: Callable[[list[object]], list[object]]) -> None:
    """Another position, and state that never was."""
    db = Rdict(str(store), Options(raw_mode=True))
    meta = json.loads(db[META_KEY])
    for key in [key for key in db.keys() if key[:2] == b"r/"]:  # noqa: SIM118
        db[key] = b"\x00" * 24
    db[META_KEY] = json.dumps(change(meta)).encode()
    db.close()


def from_the_future(store: Path) -> None:
    _change(store, lambda meta: [int(str(meta[0])) + 1_000_000, meta[1], meta[2]])


def of_another_topic(store: Path) -> None:
    _change(store, lambda meta: [meta[0], "AAAAAAAAAAAAAAAAAAAAAA", meta[2]])


def too_old(store: Path) -> None:
    _change(store, lambda meta: [meta[0], meta[1], int(str(meta[2])) - 4 * 86_400_000])


def a_lock_left_behind(store: Path) -> None:
    (store / "LOCK").write_text("999999")
    (store.parent / "lock").write_text("999999\n")


DAMAGES = {
    "d01_deleted": deleted,
    "d02_sst_overwritten": overwritten_sst,
    "d02_manifest_overwritten": overwritten_manifest,
    "d02_no_current_file": no_current,
    "d02_ahead_of_the_changelog": from_the_future,
    "d02_of_another_changelog": of_another_topic,
    "d02_older_than_its_deletions": too_old,
    "d03_lock_left_behind": a_lock_left_behind,
}

SHORT = ("d01_deleted", "d02_sst_overwritten", "d02_ahead_of_the_changelog")
"""Those of them that `make test` takes."""


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=name, marks=() if name in SHORT else pytest.mark.soak)
        for name, damage in DAMAGES.items()
    ],
)
def test_damaged_store_changes_nothing(desk: Desk, damage: Callable[[Path], None]) -> None:
    run_id = desk.ask(damage.__name__)
    assert desk.engine.stop() == 0
    for store in desk.stores:
        damage(store)
    desk.engine.start()
    desk.answer(run_id)


@pytest.mark.soak
def test_d02_old_image_put_back(desk: Desk, tmp_path: Path) -> None:
    before = desk.ask("before")
    assert desk.engine.stop() == 0
    for store in desk.stores:
        shutil.copytree(store, tmp_path / store.name)
    desk.engine.start()
    desk.answer(before)
    after = desk.ask("after")
    assert desk.engine.stop() == 0
    for store in desk.stores:
        shutil.rmtree(store)
        shutil.copytree(tmp_path / store.name, store)
    desk.engine.start()
    desk.answer(after)
    assert desk.site.service.count("gift", before) == 1


@pytest.mark.soak
def test_d01_store_deleted_while_a_transaction_is_left_open(desk: Desk) -> None:
    """The changelog then ends in a batch that is rolled back."""
    site, engine = desk.site, desk.engine
    assert engine.plan is not None
    waiting = desk.ask("waiting")
    engine.live()
    engine.plan.write_text(json.dumps({"point": "output.after", "n": 1}))
    engine.signal(signal.SIGUSR1)
    site.until(engine.plan.with_suffix(".armed").exists, "armed", 10)
    site.submit(plan_of("rolled-back", "put"))
    assert engine.ended() == -9
    engine.plan.unlink()
    for store in desk.stores:
        shutil.rmtree(store)
    engine.start()
    assert site.outcome("rolled-back")["complete"] is True
    desk.answer(waiting)


@pytest.mark.soak
def test_t04_store_that_cant_be_opened_ends_the_engine(desk: Desk) -> None:
    """Not without its state: it says why, and nothing it was sent is taken up until that is mended."""
    engine = desk.engine
    run_id = desk.ask("unopened")
    assert engine.stop() == 0
    for store in desk.stores:
        shutil.rmtree(store)
        store.write_bytes(b"not a directory")
    desk.site.decide(desk.site.question(run_id), "approve")
    engine.start()
    assert engine.ended() == 1
    assert f"the store at {desk.stores[0].parent}" in engine.said()
    desk.site.watch.read_up()
    assert desk.site.watch.events(run_id)[-1]["type"] != "approval_decided"
    assert desk.site.service.count("gift", run_id) == 0
    for store in desk.stores:
        store.unlink()
    engine.start()
    assert desk.site.outcome(run_id)["complete"] is True
    assert desk.site.service.count("gift", run_id) == 1


def test_d03_second_process_is_told_who_holds_the_directory(desk: Desk) -> None:
    second = desk.site.role("engine")
    second.log = desk.site.directory / "second.log"
    second.start()
    assert second.ended(15) == 5
    assert f"in use by process {desk.engine.pid};" in second.said()
    desk.site.roles.remove(second)
    desk.answer(desk.ask("undisturbed"))
