"""One suite over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from perdure.streams.runtime.errors import StoreBusy, StoreCorrupt
from perdure.streams.runtime.memory import MemoryStores
from perdure.streams.runtime.rocksdb import RocksStores
from perdure.streams.runtime.store import Store, StoreMeta, Stores, after_prefix

META = StoreMeta(7, "topic-id", 1_000)


@pytest.fixture(params=["memory", "rocksdb"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return MemoryStores() if request.param == "memory" else RocksStores(tmp_path)


@pytest.fixture
def store(stores: Stores) -> Iterator[Store]:
    opened = stores.open(0)
    yield opened
    opened.close()


def test_what_was_written_is_read(store: Store) -> None:
    store.write({b"a": b"1", b"b": b""}, META)
    assert (store.get(b"a"), store.get(b"b"), store.get(b"c")) == (b"1", b"", None)
    store.write({b"a": b"2", b"b": None, b"never": None}, META)
    assert (store.get(b"a"), store.get(b"b")) == (b"2", None)


def test_a_fresh_store_stands_nowhere(store: Store) -> None:
    assert store.meta() is None
    store.write({}, META)
    assert store.meta() == META


def test_scan_is_in_byte_order_and_bounded_by_the_prefix(store: Store) -> None:
    keys = [b"m/1/\x00", b"m/1/\x01", b"m/1/\xff\xff", b"m/1", b"m/10", b"m/2", b"l", b"\xff\xff"]
    store.write({k: b"v" + k for k in keys}, META)
    assert [k for k, _ in store.scan(b"m/1/")] == [b"m/1/\x00", b"m/1/\x01", b"m/1/\xff\xff"]
    assert [k for k, _ in store.scan(b"m/1/", b"m/1/\x01")] == [b"m/1/\x01", b"m/1/\xff\xff"]
    assert next(k for k, _ in store.scan(b"m/1/", b"a")) == b"m/1/\x00"
    assert [k for k, _ in store.scan(b"\xff")] == [b"\xff\xff"]
    assert list(store.scan(b"nothing")) == []


def test_scan_does_not_see_later_writes(store: Store) -> None:
    store.write({b"a1": b"1", b"a2": b"2"}, META)
    scan = store.scan(b"a")
    assert next(scan) == (b"a1", b"1")
    store.write({b"a2": None, b"a3": b"3"}, META)
    assert list(scan) == [(b"a2", b"2")]
    assert [k for k, _ in store.scan(b"a")] == [b"a1", b"a3"]


def test_what_was_written_is_there_after_a_reopening(stores: Stores) -> None:
    first = stores.open(3)
    first.write({b"a": b"1"}, META)
    first.close()
    again = stores.open(3)
    assert (again.get(b"a"), again.meta()) == (b"1", META)
    again.close()
    stores.wipe(3)
    wiped = stores.open(3)
    assert (wiped.get(b"a"), wiped.meta()) == (None, None)
    wiped.close()


def test_partitions_do_not_share(stores: Stores) -> None:
    one, two = stores.open(1), stores.open(2)
    one.write({b"a": b"1"}, META)
    assert two.get(b"a") is None
    one.close()
    two.close()


def test_a_held_store_says_so(tmp_path: Path) -> None:
    held = RocksStores(tmp_path).open(0)
    with pytest.raises(StoreBusy, match="still held"):
        RocksStores(tmp_path).open(0)
    held.close()
    RocksStores(tmp_path).open(0).close()


def test_a_corrupt_store_says_so(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    store = stores.open(0)
    store.write({b"a": b"1"}, META)
    store.close()
    for file in (tmp_path / "p0").glob("MANIFEST-*"):
        file.write_bytes(b"no manifest at all")
    with pytest.raises(StoreCorrupt):
        stores.open(0)
    stores.wipe(0)
    stores.open(0).close()


def test_a_corrupt_block_is_not_taken_for_a_lock(tmp_path: Path) -> None:
    """RocksDB finds it while it opens, and its text has the word in it."""
    stores = RocksStores(tmp_path)
    store = stores.open(0)
    store.write({b"k": b"v" * 100}, StoreMeta(1, "id", 0))
    store.close()
    stores.open(0).close()  # what stood in the log is in a table now
    for table in (tmp_path / "p0").glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[: len(content) // 2] = b"\xa5" * (len(content) // 2)
        table.write_bytes(bytes(content))
    with pytest.raises(StoreCorrupt):
        stores.open(0).get(b"k")


@pytest.mark.parametrize(
    ("prefix", "bound"), [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff", None), (b"", None)]
)
def test_after_prefix(prefix: bytes, bound: bytes | None) -> None:
    assert after_prefix(prefix) == bound
