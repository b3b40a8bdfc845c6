"""What `perdure doctor` says of breakers, and of views that are not there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from perdure.schemas import codec, topics
from perdure.schemas.records import BreakerState
from perdure.streams.cluster.topics import ensure_topics

from perdure.cli import view_tables
from perdure.cli.doctor import Cluster
from perdure.settings import Settings

pytestmark = pytest.mark.kafka


def test_one_line_for_each_open_breaker(broker: str, prefix: str) -> None:
    conf = {"bootstrap.servers": broker}
    ensure_topics(conf, prefix, 1)
    made = Settings(bootstrap_servers=broker, topic_prefix=prefix)

    def said() -> list[tuple[str, str]]:
        found = Cluster(made).findings()
        return [(each.level, each.text) for each in found if each.name.startswith("breaker")]

    assert said() == [("ok", "every target is called")]
    now = time.time_ns() // 1_000_000
    producer = Producer(conf)
    for target, state, until in (
        ("shop", "open", now + 90_500),
        ("old", "open", now - 1),
        ("back", "open", now + 90_000),
        ("back", "closed", 0),
    ):
        record = BreakerState(
            target=target, state=state, open_until=until, worker="w1", reason="http_503"
        )  # type: ignore[arg-type]
        producer.produce(prefix + topics.BREAKERS, codec.encode(record), target)
    producer.produce(prefix + topics.BREAKERS, b"{", "bad")
    assert producer.flush(10) == 0
    [(level, text)] = said()
    assert level == "warn"
    assert text.startswith("shop is not called for 1 min")
    assert text.endswith("http_503 (worker w1 says so)")


def test_views_that_are_not_there_leave_records_and_tables(
    broker: str, prefix: str, tmp_path: Path
) -> None:
    conf = {"bootstrap.servers": broker}
    made = Settings(bootstrap_servers=broker, topic_prefix=prefix, data_dir=tmp_path)

    def said() -> list[tuple[str, str, str]]:
        found = Cluster(made).findings()
        return [(each.name, each.level, each.text) for each in found if "view" in each.name]

    ensure_topics(conf, prefix, 1)
    [(name, level, text)] = said()
    assert (name, level, text.startswith("none has run here yet")) == ("views", "ok", True)
    one, *others = topics.VIEW_TABLES
    ensure_topics(conf, prefix, 1, processors=(*topics.PROCESSORS, *others))
    [(name, level, text)] = said()
    assert (name, level) == ("views", "warn")
    assert f"{topics.changelog(one)} is gone" in text
    ensure_topics(conf, prefix, 1, processors=(*topics.PROCESSORS, *topics.VIEW_TABLES))
    producer = Producer(conf)
    producer.produce(prefix + topics.EVENTS, b"{}", "r")
    assert producer.flush(10) == 0
    directory = tmp_path / "views" / "me"
    directory.mkdir(parents=True)
    view_tables.note(directory, {"agent.events": "of another cluster"})
    served, lag, tables = said()
    assert served[:2] == ("views", "warn")
    assert "1 records wait: start `perdure views`" in served[2]
    assert lag[0] == "views lag"
    assert tables[:2] == ("view tables", "warn")
    assert "was made of other topics" in tables[2]
