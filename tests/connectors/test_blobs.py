from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from perdure.connectors import Found, tool
from perdure.streams.runtime.blobs import BlobError, Blobs, is_reference

from .world import World, command

Make = Callable[..., World]


@tool("t", effect="read_only")
async def echo(text: str) -> str:
    return text


def test_put_and_get(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "b"))
    reference = blobs.put(b"hello")
    assert blobs.put(b"hello") == reference
    assert is_reference(reference)
    assert reference["$blob"].startswith("file://")
    assert blobs.get(reference) == b"hello"
    assert len([p for p in (tmp_path / "b").rglob("*") if p.is_file()]) == 1


def test_a_foreign_store_is_possible() -> None:
    blobs = Blobs("memory://blobs-test")
    assert blobs.get(blobs.put(b"hello")) == b"hello"


def test_what_can_not_be_read(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    reference = blobs.put(b"hello")
    path = Path(reference["$blob"].removeprefix("file://"))
    cases: list[tuple[dict[str, Any], str]] = [
        ({**reference, "size": 4}, "has 5 bytes, not 4"),
        ({**reference, "$blob": "file:///etc/passwd"}, "not in this deployment's store"),
        ({**reference, "sha256": "../../x"}, "needs"),
    ]
    for wrong, says in cases:
        with pytest.raises(BlobError, match=says):
            blobs.get(wrong)
    path.write_bytes(b"jello")
    with pytest.raises(BlobError, match="another SHA-256"):
        blobs.get(reference)
    path.unlink()
    with pytest.raises(BlobError, match="is missing"):
        blobs.get(reference)


def test_large_results_go_to_the_store_and_large_arguments_come_from_it(
    world: Make, tmp_path: Path
) -> None:
    blobs = Blobs(str(tmp_path))
    w = world(echo, blobs=blobs)
    text = "x" * 300_000
    arguments = blobs.put(msgspec.json.encode({"text": text}))
    answer = w.answer(command(arguments=arguments))
    assert is_reference(answer["result"])
    assert msgspec.json.decode(blobs.get(answer["result"])) == text


def test_large_result_without_a_store_is_refused_with_sizes(world: Make) -> None:
    error = world(echo).answer(command(arguments={"text": "x" * 300_000}))["error"]
    assert (error["kind"], error["code"]) == ("internal", "too_large")
    assert "300002 bytes, more than 262144" in error["message"]


def test_large_result_of_a_writing_tool_leaves_no_doubt_untold(world: Make) -> None:
    @tool("t", effect="external")
    async def act() -> str:
        return "x" * 300_000

    answer = world(act).answer(command(effect="external"))
    assert (answer["status"], answer["error"]["code"]) == ("unknown", "too_large")


def test_arguments_that_can_not_be_fetched(world: Make, tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    reference = {**blobs.put(b"{}"), "size": 9}
    error = world(echo, blobs=blobs).answer(command(arguments=reference))["error"]
    assert (error["kind"], error["code"]) == ("transient", "blob_unreadable")


def test_result_that_is_no_json_names_the_place(world: Make) -> None:
    @tool("t", effect="read_only")
    async def act() -> Any:
        return {"rows": [{"raw": b"x"}]}

    error = world(act).answer(command())["error"]
    assert (error["kind"], error["code"]) == ("internal", "bad_result")
    assert error["message"].startswith("$.result.rows[0].raw: bytes")


def _no_store(_: bytes) -> dict[str, Any]:
    raise LookupError("the driver's own error")


@pytest.mark.parametrize(
    ("effect", "status", "kind"),
    [("read_only", "failed", "internal"), ("external", "unknown", "unknown")],
)
def test_whatever_the_store_raises_an_answer_goes_out(
    world: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    effect: Any, status: str, kind: str,
) -> None:  # fmt: skip
    @tool("t", effect=effect)
    async def act() -> str:
        return "x" * 300_000

    blobs = Blobs(str(tmp_path))
    monkeypatch.setattr(blobs, "put", _no_store)
    w = world(act, blobs=blobs)
    answer = w.answer(command(effect=effect))
    assert answer["status"] == status
    assert (answer["error"]["kind"], answer["error"]["code"]) == (kind, "bad_result")
    assert "can't be packed: LookupError" in answer["error"]["message"]
    w.until(lambda: w.worker.running == 0)
    assert all(hold.finished for hold in w.holds)
    assert "LookupError" in caplog.text
    assert "own error" not in caplog.text


def test_whatever_the_store_raises_a_query_is_answered(
    world: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool("t", effect="external")
    async def act() -> None: ...

    @act.query
    async def query() -> Found:
        return Found("x" * 300_000)

    blobs = Blobs(str(tmp_path))
    monkeypatch.setattr(blobs, "put", _no_store)
    w = world(act, blobs=blobs)
    w.take(command(effect="external", verb="query"))
    w.until(lambda: w.statuses() == ["unknown"])
    assert w.holds[0].finished


def test_what_is_wrong_with_a_reference_shows_without_reading(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "store"))
    reference = blobs.put(b"content")
    assert blobs.problem(reference) is None
    assert "7 bytes, not 8" in str(blobs.problem({**reference, "size": 8}))
    assert "store" in str(blobs.problem({**reference, "$blob": "file:///etc/passwd"}))
    assert "needs" in str(blobs.problem({**reference, "sha256": None}))
    assert "missing" in str(Blobs(str(tmp_path / "store")).problem(_elsewhere(blobs, b"other")))


def _elsewhere(blobs: Blobs, content: bytes) -> dict[str, Any]:
    """A reference whose blob is gone."""
    reference = blobs.put(content)
    Path(reference["$blob"].removeprefix("file://")).unlink()
    return reference
