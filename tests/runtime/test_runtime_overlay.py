"""Reads through savepoint, overlay, cache and store agree with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from perdure.streams.runtime.memory import MemoryStore
from perdure.streams.runtime.overlay import DELETED, Cache, PartitionState
from perdure.streams.runtime.store import OFFSETS_KEY, StoreMeta

META = StoreMeta(0, "", 0)
KEYS = st.sampled_from([b"a", b"a/1", b"a/2", b"a/\xff", b"b", b"b/1"])
CHANGES = st.dictionaries(KEYS, st.none() | st.integers(0, 9))


def decode(key: bytes, raw: bytes) -> int:
    return int(raw)


def apply(state: dict[bytes, int], changes: dict[bytes, int | None]) -> None:
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


@given(st.lists(CHANGES, max_size=4), CHANGES, CHANGES, st.booleans())
def test_layers_read_as_one(
    committed: list[dict[bytes, int | None]],
    staged: dict[bytes, int | None],
    own: dict[bytes, int | None],
    scan_first: bool,
) -> None:
    store = MemoryStore()
    state = PartitionState(store, decode, 1_000)
    model: dict[bytes, int] = {}
    for changes in [*committed, staged]:
        if scan_first:
            list(state.scan(b"a", None, {}))
        values = {k: DELETED if v is None else v for k, v in changes.items()}
        state.overlay.merge(
            values, {k: None if v is None else b"%d" % v for k, v in changes.items()}
        )
        apply(model, changes)
        if changes is not staged:
            store.write(state.overlay.raw, META)
            state.committed()
    for key in [b"a", b"a/1", b"a/2", b"a/\xff", b"b", b"b/1", b"c"]:
        assert state.get(key) == model.get(key)
    apply(model, own)
    mine = {k: DELETED if v is None else v for k, v in own.items()}
    for prefix, start in [(b"a", None), (b"a/", None), (b"a/", b"a/2"), (b"", None), (b"c", None)]:
        expected = sorted(
            (k, v) for k, v in model.items() if k.startswith(prefix) and k >= (start or b"")
        )
        assert list(state.scan(prefix, start, mine)) == expected


def test_a_dropped_overlay_leaves_what_is_committed() -> None:
    store = MemoryStore()
    store.write({b"a": b"1", OFFSETS_KEY: b"{}"}, META)
    state = PartitionState(store, decode, 1_000)
    assert state.get(b"a") == 1
    state.overlay.merge({b"a": 2}, {b"a": b"2"})
    assert state.get(b"a") == 2
    state.drop_overlay()
    assert state.get(b"a") == 1
    assert list(state.scan(b"", None, {})) == [(b"a", 1)]  # never the runtime's own keys


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache = Cache(3 * 111)
    for key in (b"a", b"b", b"c"):
        cache.put(key, key, 10)
    cache.get(b"a")
    cache.put(b"d", b"d", 10)
    assert [cache.get(k) for k in (b"a", b"c", b"d")] == [b"a", b"c", b"d"]
    assert cache.get(b"b") not in (b"b", None)
