"""Histories that earlier versions wrote still fold to the state they had (style.md: Zeebe's rule).

What a later version adds to the state has a default and is not compared; what was recorded must
be there unchanged. A changed meaning is a new event version with an applier of its own.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.schemas.records import RunEvent
from perdure.streams.core.apply import APPLIERS, fold

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def differences(recorded: Any, now: Any, where: str) -> list[str]:
    """Where what was recorded is not there any more; what was added meanwhile is left out."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        found = []
        for key, value in recorded.items():
            found += differences(value, now.get(key), f"{where}.{key}")
        return found
    return [] if recorded == now else [f"{where}: {recorded!r} was, {now!r} is"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_recorded_history_folds_to_the_state_it_had(path: Path) -> None:
    golden = read(path)
    run = fold(msgspec.convert(event, RunEvent) for event in golden["events"])
    assert run is not None
    records = {f"{kind}/{n}": value for (kind, n), value in run.writes.items()}
    now = json.loads(msgspec.json.encode({"header": run.header, "records": records}))
    assert differences(golden["state"], now, "state") == []
    assert set(records) == set(golden["state"]["records"])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_recorded_file_is_as_it_was_written(path: Path) -> None:
    """By the chain: nobody mends a golden file to make a changed applier pass."""
    head = ""
    for event in read(path)["events"]:
        assert event["previous_hash"] == head
        head = event.pop("hash")
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert head == hashlib.sha256((event["previous_hash"] + text).encode()).hexdigest()
    assert read(path)["state"]["header"]["hash"] == head


def test_the_histories_visit_every_applier_there_is() -> None:
    seen = {event["type"] for path in GOLDEN for event in read(path)["events"]}
    assert set(APPLIERS) == seen
