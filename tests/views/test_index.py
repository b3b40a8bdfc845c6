"""The rows of the lists: what is counted as they come and go, and that nobody waits for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.streams.views import index as index_of
from perdure.streams.views.index import Index, Query
from perdure.streams.views.projections.rows import MINUTE_MS, Row

NOW = 1_750_000_000_000
MINUTE = NOW // MINUTE_MS


def row(run_id: str, **fields: Any) -> Row:
    whose = {"agent": "a", "user_id": "u", "session_id": "s", "tenant": "t"}
    plain = {"run_id": run_id, "version": 1, "updated_at": NOW, **whose, **fields}
    return msgspec.convert(plain, Row)


def waits(run_id: str, *kinds: str, **fields: Any) -> Row:
    return row(run_id, waiting_for=[{"kind": k, "until": 10**13} for k in kinds], **fields)


class Held:
    """How many rows the lock was held for, each time."""

    def __init__(self, index: Index) -> None:
        self.times: list[int] = []
        self._index, self._lock, self._size = index, index._lock, 0

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._size = self._index._db.total_changes

    def __exit__(self, *error: Any) -> None:
        self.times.append(self._index._db.total_changes - self._size)
        self._lock.__exit__(*error)


def test_what_runs_wait_for_is_counted_as_they_come_and_go() -> None:
    made = Index()
    made.put(0, [waits("a", "backoff", "breaker"), waits("b", "backoff"), row("c")])
    made.put(1, [waits("d", "model"), waits("e", "backoff", status="done")])
    made.put(1, [row("f", waiting_for=[{"kind": "action"}])])  # a question: counted elsewhere
    assert made.waiting() == {"backoff": 2, "breaker": 1, "model": 1}
    made.put(0, [row("a")])
    assert made.waiting() == {"backoff": 1, "model": 1}
    made.keep_partitions([1])
    assert made.waiting() == {"model": 1}
    made.close()


def test_what_a_killed_process_left_is_thrown_away(tmp_path: Path) -> None:
    killed = Index(tmp_path / "index.sqlite")
    killed.put(0, [row(f"r{n}") for n in range(2_000)])
    (tmp_path / "index.sqlite").write_bytes(b"half a page")  # as a kill may leave it
    made = Index(tmp_path / "index.sqlite")
    assert made.size() == 0
    made.put(0, [row("mine")])
    assert [each["run_id"] for each in made.find(Query(), NOW).runs] == ["mine"]
    made.close()


def test_nobody_waits_for_all_rows_that_come_or_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_of, "CHUNK", 10)
    made = Index()
    held = Held(made)
    made._lock = held  # type: ignore[assignment]
    made.put(0, (row(f"r{n}") for n in range(95)))
    made.put(1, [row("other")])
    assert made.size() == 96
    made.keep_partitions([1])
    assert made.size() == 1
    assert max(held.times) == 10
    made._db.close()


def test_minutes_that_nobody_shows_are_dropped() -> None:
    made = Index()
    one = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for minute in range(MINUTE - 2_000, MINUTE + 1):
        made.put(0, [row(f"r{minute}", minutes={minute: one})])
    made.put(0, [row("late", minutes={MINUTE - 1_000: one})])
    assert len(made._minutes) <= 250
    assert [each["started"] for each in made.rates(NOW)] == [1] * 60
    made.put(0, [row(f"r{MINUTE - 1_999}"), row(f"r{MINUTE}")])  # an old and a new one go
    assert sum(each["started"] for each in made.rates(NOW)) == 59
    assert min(each for counts in made._minutes.values() for each in counts) >= 0
    made.close()
