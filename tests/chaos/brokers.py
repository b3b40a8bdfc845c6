"""A KRaft cluster of several nodes on this machine, for tests to kill parts of.

The same jars and settings as the embedded broker's, but three copies of everything and two in
step (or one node, with settings a test wants to be extreme).
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from perdure.streams.cluster import jars, keeper, ports, server

from tests.kafka.world import until


class Node:
    """One broker (and controller)."""

    def __init__(self, number: int, port: int, controller_port: int, directory: Path) -> None:
        self.number = number
        self.port = port
        self.controller_port = controller_port
        self.directory = directory
        self.pid = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    def format(self, classes: str, cluster_id: str, settings: Mapping[str, str]) -> None:
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "server.properties").write_text(text)
        (self.directory / "log4j2.properties").write_text(server.LOG4J)
        command = self._java(classes, "kafka.tools.StorageTool")
        command += ["format", "--cluster-id", cluster_id, "--config", "server.properties"]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self, classes: str, main: str) -> list[str]:
        log4j = (self.directory / "log4j2.properties").as_uri()
        return [
            str(jars.java()), *server.JVM, f"-Dlog4j2.configurationFile={log4j}",
            f"-Dperdure.log={self.directory / 'broker.log'}", "-cp", classes, main,
        ]  # fmt: skip

    def start(self, classes: str) -> None:
        if self._keeper is not None:
            self._reap()
        command = [sys.executable, "-I", "-S", str(Path(str(keeper.__file__))), str(os.getpid())]
        command += [str(self.directory / "broker.lock"), str(self.directory / "broker.out")]
        command += [*self._java(classes, "kafka.Kafka"), "server.properties"]
        self._keeper = subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline())

    def kill(self) -> None:
        """kill -9 of the Java process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        if self._keeper is None:
            return
        keeper_process, self._keeper = self._keeper, None
        with keeper_process:
            if keeper_process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    keeper_process.stdin.close()
            keeper_process.wait(20)

    def tail(self, lines: int = 15) -> str:
        log = self.directory / "broker.log"
        told = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
        return f"--- broker {self.number}, the last lines\n" + "\n".join(told)


class Brokers:
    """``count`` nodes; one's own ``settings`` win."""

    def __init__(
        self, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        self._classes = jars.class_path(lambda line: None)
        taken: set[int] = set()
        for _ in range(2 * count):
            taken.add(ports.any_free(taken))
        free = sorted(taken)
        self.nodes = [
            Node(n + 1, free[2 * n], free[2 * n + 1], directory / f"node{n + 1}")
            for n in range(count)
        ]
        voters = ",".join(f"{n.number}@{server.HOST}:{n.controller_port}" for n in self.nodes)
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        copies, in_step = (3, 2) if count >= 3 else (1, 1)
        for node in self.nodes:
            plain = server.properties(node.port, node.controller_port, "logs", fsync=False)
            made = dict(line.split("=", 1) for line in plain.splitlines())
            made |= {"node.id": str(node.number), "controller.quorum.voters": voters}
            for name in (
                "default.replication.factor",
                "offsets.topic.replication.factor",
                "transaction.state.log.replication.factor",
                "share.coordinator.state.topic.replication.factor",
            ):
                made[name] = str(copies)
            for name in (
                "min.insync.replicas",
                "transaction.state.log.min.isr",
                "share.coordinator.state.topic.min.isr",
            ):
                made[name] = str(in_step)
            node.format(self._classes, cluster_id, made | dict(settings or {}))

    def __enter__(self) -> Self:
        for node in self.nodes:
            self.start(node)
        self.wait(len(self.nodes))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            node.kill()

    def start(self, node: Node) -> None:
        node.start(self._classes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{server.HOST}:{node.port}" for node in self.nodes)

    def wait(self, count: int, seconds: float = 60) -> None:
        """Until so many brokers are known to the cluster."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def there() -> bool:
            try:
                return len(admin.list_topics(timeout=2).brokers) == count
            except KafkaException:
                return False

        try:
            until(there, f"{count} brokers", seconds)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *(n.tail() for n in self.nodes)])) from None
