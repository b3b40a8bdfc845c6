from __future__ import annotations

from perdure.connectors.catalog import Catalog
from perdure.schemas import codec, topics
from perdure.schemas.records import ToolSpec
from perdure.streams.runtime.processor import Record

from .world import FakeProducer


def _record(key: str, value: bytes | None) -> Record:
    return Record(topics.CATALOG, 0, 0, 0, key.encode(), value)


def _spec(version: int = 1, **more: object) -> ToolSpec:
    return ToolSpec(name="t", version=version, **more)  # type: ignore[arg-type]


def test_new_changed_and_higher_ones_are_announced() -> None:
    for known, ours, written in (
        (None, _spec(), ["t"]),
        (_spec(), _spec(), []),
        (_spec(description="a"), _spec(description="b"), ["t"]),
        (_spec(1), _spec(2), ["t"]),
        (_spec(2), _spec(1, description="b"), []),
    ):
        producer = FakeProducer()
        catalog = Catalog(producer)
        if known is not None:
            catalog.saw(_record("tool/t", codec.encode(known)))
        assert catalog.announce([ours]) == written
        assert [key for _, key, _, _ in producer.sent] == [b"tool/t"] * len(written)


def test_deleted_and_foreign_records() -> None:
    catalog = Catalog(FakeProducer())
    catalog.saw(_record("tool/t", codec.encode(_spec())))
    catalog.saw(_record("agent/x", b"{}"))
    catalog.saw(_record("tool/bad", b"{"))
    assert list(catalog.known) == ["t"]
    catalog.saw(_record("tool/t", None))
    assert catalog.known == {}


def test_the_queue_is_there_before_its_tools() -> None:
    made: list[str] = []
    catalog = Catalog(FakeProducer())
    catalog.announce([_spec(queue="q"), ToolSpec(name="u", queue="q")], made.append)
    assert made == ["q"]
