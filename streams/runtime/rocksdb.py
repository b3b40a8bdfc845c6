"""The store on disk: one RocksDB per partition. The only place that knows rocksdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, ReadOptions, WriteBatch

from .errors import StoreBusy, StoreCorrupt, StoreFailed
from .store import META_KEY, StoreMeta, after_prefix

_MB = 1 << 20


class RocksStore:
    """No synced writes: after a power cut the store is older than the changelog, never ahead."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as e:  # rocksdict raises bare Exception for everything
            raise _failure(e) from e
        return value

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        bound = after_prefix(prefix)
        if bound is not None:
            options.set_iterate_upper_bound(bound)
        first = prefix if start is None or start < prefix else start
        return _scanned(self._db.items(from_key=first, read_opt=options), options)

    def write(self, changes: Mapping[bytes, bytes | None], meta: StoreMeta) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(META_KEY, json.dumps([meta.offset, meta.topic_id, meta.written_at]).encode())
        try:
            self._db.write(batch)
        except Exception as e:
            raise _failure(e) from e

    def meta(self) -> StoreMeta | None:
        raw = self.get(META_KEY)
        if raw is None:
            return None
        try:
            offset, topic_id, written_at = json.loads(raw)
        except ValueError as e:
            raise StoreCorrupt(f"the store's position can't be read: {e}") from e
        return StoreMeta(offset, topic_id, written_at)

    def close(self) -> None:
        self._db.close()


class RocksStores:
    """Partitions' stores under one directory, sharing one block cache."""

    def __init__(self, directory: Path, cache_bytes: int = 64 * _MB) -> None:
        self._directory = directory
        self._cache = Cache(cache_bytes)

    def open(self, partition: int) -> RocksStore:
        path = self._path(partition)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            db = Rdict(str(path), self._options())
        except OSError as e:
            raise StoreFailed(f"the store at {path} can't be opened: {e}") from e
        except Exception as e:  # rocksdict has no exception classes: the text must do
            text = str(e)
            if _is_held(text):
                raise StoreBusy(f"the store at {path} is still held: {text}") from e
            if _is_corrupt(text):
                raise StoreCorrupt(text) from e
            raise StoreFailed(f"the store at {path} can't be opened: {text}") from e
        return RocksStore(db)

    def wipe(self, partition: int) -> None:
        shutil.rmtree(self._path(partition), ignore_errors=True)

    def _path(self, partition: int) -> Path:
        return self._directory / f"p{partition}"

    def _options(self) -> Options:
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)  # most lookups are for keys that aren't there
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(16 * _MB)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(_MB)
        return options


def _scanned(
    pairs: Iterator[tuple[bytes, bytes]], options: ReadOptions
) -> Iterator[tuple[bytes, bytes]]:
    """``options`` owns the bound's bytes, which the iterator only points to (rocksdict 0.3.29
    does not keep them): it must live as long, and go after it."""
    try:
        yield from pairs
    except Exception as e:
        raise _failure(e) from e
    finally:
        del pairs
        del options


def _is_held(text: str) -> bool:
    """Not by the word alone: a corrupt *block* is no lock, and the text also names the path."""
    return text.startswith("IO error: ") and ("While lock file: " in text or "lock hold by" in text)


def _is_corrupt(text: str) -> bool:
    return any(
        sign in text.lower()
        for sign in ("corrupt", "checksum", "no such file", "not a directory", "invalid argument")
    )


def _failure(error: Exception) -> Exception:
    text = str(error)
    if _is_corrupt(text):
        return StoreCorrupt(text)
    return StoreFailed(f"the local store failed: {text}")
