"""What `perdure doctor` says of breakers."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from perdure.schemas import codec, topics
from perdure.schemas.records import BreakerState
from perdure.streams.cluster.topics import ensure_topics

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
