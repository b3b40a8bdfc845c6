"""The embedded broker as a whole: its data, its end, its owner, its errors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ResourceType
from perdure.schemas import topics as table
from perdure.streams.cluster import ports, server
from perdure.streams.cluster.admin import Admin
from perdure.streams.cluster.broker import EmbeddedKafka
from perdure.streams.cluster.errors import (
    BrokerDied,
    DataDirUnusable,
    ForeignData,
    InUse,
    NoFreePort,
)
from perdure.streams.cluster.topics import ensure_topics

from tests.cluster.waiting import gone, until

HOLD = [sys.executable, "-m", "perdure.streams.cluster", "--port", "0", "--data-dir"]


@contextmanager
def owner(data_dir: Path, *command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that owns a broker, and the broker's pid."""
    with subprocess.Popen(
        [*(command or HOLD), str(data_dir)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address, _, pid = process.stdout.readline().partition(" (pid ")
            assert address.startswith("127.0.0.1:")
            yield process, int(pid.rstrip(")\n"))
        finally:
            process.kill()


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def read(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    return message.value()


@pytest.mark.kafka
def test_data_outlives_a_stop_a_change_of_port_and_a_kill(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, port=0)
    kafka.start()
    first = kafka.bootstrap_servers
    ensure_topics(first, "", 1)
    write(first, table.TASKS, b"kept")
    kafka.stop()
    assert not kafka.alive()

    with ExitStack() as stack:
        with suppress(OSError):  # somebody else's serves as well
            stack.enter_context(socket.create_server((server.HOST, ports.DEFAULT_PORT)))
        kafka = stack.enter_context(EmbeddedKafka(tmp_path))
        second = kafka.bootstrap_servers
        assert ports.DEFAULT_PORT < int(second.rpartition(":")[2]) < ports.DEFAULT_PORT + 100
        assert second != first
        assert read(second, table.TASKS) == b"kept"

        os.kill(kafka.pid, signal.SIGKILL)
        until(lambda: not kafka.alive(), "the keeper tells that the broker died")
        kafka.start()
        assert kafka.bootstrap_servers == second  # whoever knows the address finds it again
        assert read(second, table.TASKS) == b"kept"

        if sys.platform == "linux":  # elsewhere there is no parent-death signal
            os.kill(_parent(kafka.pid), signal.SIGKILL)
            until(lambda: gone(kafka.pid) and not kafka.alive(), "the keeper takes it along", 5)


@pytest.mark.kafka
def test_a_directory_has_one_owner_and_its_broker_ends_with_it(tmp_path: Path) -> None:
    with owner(tmp_path) as (first, broker):
        with pytest.raises(InUse, match=f"pid {first.pid}") as error:
            EmbeddedKafka(tmp_path).start()
        assert (error.value.exit_code, error.value.holder) == (5, first.pid)
        second = subprocess.run([*HOLD, str(tmp_path)], capture_output=True, text=True)
        assert (second.returncode, second.stderr) == (5, f"{error.value}\n")
        assert not gone(broker)
        first.kill()
        with owner(tmp_path) as (heir, its_broker):  # at once: waits for the old broker to end
            assert gone(broker)
            heir.send_signal(signal.SIGTERM)
            assert heir.wait(20) == 0
            assert gone(its_broker)


FORKING = """
import os, sys, time
from pathlib import Path
from perdure.streams.cluster.broker import EmbeddedKafka
kafka = EmbeddedKafka(Path(sys.argv[1]), port=0)
kafka.start()
print(f"{kafka.bootstrap_servers} (pid {kafka.pid})", flush=True)
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.kafka
def test_a_fork_that_keeps_the_pipe_open_does_not_keep_the_broker(tmp_path: Path) -> None:
    with owner(tmp_path, sys.executable, "-c", FORKING) as (process, broker):
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        try:
            process.kill()
            until(lambda: gone(broker), "the broker ended", 10)
            assert not gone(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.kafka
def test_the_settings_are_in_force_and_none_is_unknown_to_kafka(broker: str) -> None:
    (found,) = Admin(broker).configs(ResourceType.BROKER, [str(server.NODE_ID)]).values()
    assert {name: found.get(name) for name in server.SETTINGS} == server.SETTINGS
    assert server.FSYNC.keys() <= found.keys()


def data_of(data_dir: Path, cluster: str, node: int = server.NODE_ID) -> None:
    """A data directory as Kafka leaves it."""
    (data_dir / "logs").mkdir()
    lines = ("version=1", f"cluster.id={cluster}", f"node.id={node}")
    (data_dir / "logs" / "meta.properties").write_text("\n".join(lines))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"kafka": "99.0.0", "cluster_id": "c1"}, r"written by Kafka 99\.0\.0.*upgrade perdure"),
        ({"kafka": "4.4.0", "cluster_id": "c2"}, "holds cluster c1, but .* belongs to c2"),
    ],
)
def test_data_of_a_newer_kafka_or_another_cluster_is_not_touched(
    tmp_path: Path, facts: dict[str, str], told: str
) -> None:
    data_of(tmp_path, "c1")
    (tmp_path / "cluster.json").write_text(json.dumps(facts))
    with pytest.raises(ForeignData, match=told):
        EmbeddedKafka(tmp_path).start()


@pytest.mark.kafka
def test_a_broker_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    data_of(tmp_path, "c1", node=7)
    with pytest.raises(BrokerDied, match="Stored node id 7") as error:
        EmbeddedKafka(tmp_path, port=0).start()
    assert error.value.exit_code == 3


def test_an_asked_for_port_that_is_taken_is_an_error() -> None:
    with socket.create_server((server.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NoFreePort, match=f"port {port} is taken"):
            ports.choose(port)


def test_a_directory_that_can_not_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirUnusable, match="--data-dir"):
        EmbeddedKafka(tmp_path / "file" / "dir").start()
