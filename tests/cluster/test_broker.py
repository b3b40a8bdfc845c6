import pytest
from confluent_kafka.admin import AdminClient, NewTopic


@pytest.mark.kafka
def test_the_shared_broker_answers_and_a_prefix_is_ones_own(broker: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.create_topics([NewTopic(prefix + "x", 2)]).values():
        future.result(10)
    assert prefix + "x" in admin.list_topics(timeout=10).topics
