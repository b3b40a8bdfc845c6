from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perdure.connectors import tool
from perdure.connectors.serving import Pieces, build_processors, queues_of
from perdure.streams.runtime.settings import RuntimeSettings

from .world import FakeProducer


@tool("a", effect="read_only")
def first() -> None: ...


@tool("b", effect="read_only", queue="own")
def second() -> None: ...


class FakeKafka:
    def plain_producer(self, client_id: str) -> FakeProducer:
        return FakeProducer()


def _build(tmp_path: Path, tools: list[Any], queues: list[str] | None) -> Pieces:
    runtime = RuntimeSettings(bootstrap_servers="x:1", data_dir=tmp_path, instance_id="w1")
    kafka: Any = FakeKafka()
    return build_processors(tools, queues, runtime, kafka, str(tmp_path / "blobs"))


@pytest.mark.parametrize(
    ("tools", "queues", "names"),
    [
        ([first, second], None, ["worker.tools", "worker.own", "worker.models"]),
        ([first, second], ["tools", "models"], ["worker.tools", "worker.models"]),
        ([], ["tools", "models"], ["worker.models"]),
        ([], ["tools"], ["worker.tools"]),
        ([], ["gpu"], ["worker.gpu"]),
    ],
)
def test_processors_of_queues(
    tmp_path: Path, tools: list[Any], queues: list[str] | None, names: list[str]
) -> None:
    pieces = _build(tmp_path, tools, queues)
    assert [p.name for p in pieces.processors] == names
    for processor in pieces.processors:
        queue = processor.name.removeprefix("worker.")
        assert processor.sources == (f"agent.commands.{queue}",)
        assert processor.changelog == f"agent.worker.{queue}.changelog"
        assert all(t.spec.queue == queue for t in processor.tools.values())
    pieces.close()


def test_queues_of_tools() -> None:
    assert queues_of([second]) == ["own", "models"]
