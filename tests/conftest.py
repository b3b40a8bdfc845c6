"""What every test may use: one broker for the whole session, one topic prefix for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from perdure.streams.cluster.broker import EmbeddedKafka

# A crowded machine is no finding: how long an example takes is asked of no test.
settings.register_profile("perdure", deadline=None)
settings.load_profile("perdure")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of an embedded broker, or of the one in PERDURE_TEST_BOOTSTRAP."""
    if shared := os.environ.get("PERDURE_TEST_BOOTSTRAP"):
        yield shared
        return
    data_dir: Path = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(data_dir, port=0) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A ``topic_prefix`` of this test's own; its topics are deleted when the test is over."""
    own = f"t-{uuid.uuid4().hex[:8]}."
    # Asked for before the test: a fixture can't be asked for any more when it is over.
    bootstrap = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    yield own
    if bootstrap is not None:
        _delete_topics(bootstrap, own)


def _delete_topics(bootstrap: str, prefix: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    if names:
        for future in admin.delete_topics(names).values():
            future.exception()
