"""One Apache Kafka node on this machine, from Python packages alone."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from perdure.streams.cluster import jars, ports, server
from perdure.streams.cluster.data_dir import DataDir
from perdure.streams.cluster.errors import BrokerDied, DiskFull, NotReady

STOP_SECONDS = 15
"""The keeper kills the broker after 10 s; more means that the keeper hangs too."""
POLL_SECONDS = 0.02

Progress = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class EmbeddedKafka:
    """The owner of one broker and of its data directory.

    ``port`` None: 9092 or the next free one; 0: any free one; else that one or an error. A
    broker started again by the same object keeps its port. ``fsync``: a record is on the disk
    before it is acknowledged (a power cut loses nothing; every commit waits for the disk).
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        fsync: bool = False,
        progress: Progress = to_stderr,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._data = DataDir(self.data_dir)
        self._wanted_port = port
        self._fsync = fsync
        self._progress = progress
        self._port: int | None = None
        self._pid: int | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        if self._port is None:
            raise RuntimeError("the broker has not been started")
        return f"{server.HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The Java process; tests kill it."""
        if self._pid is None:
            raise RuntimeError("the broker has not been started")
        return self._pid

    def alive(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def start(self, timeout: float = 60) -> None:
        """Returns when the broker answers. Does nothing if it is alive; starts a dead one again.

        Raises a `ClusterError`, after which nothing is left running and no lock is held.
        """
        if self.alive():
            return
        try:
            self._data.take()
            java, classes = jars.java(), jars.class_path(self._progress)
            self._reap()
            self._data.await_previous_broker(self._progress)
            if self._data.is_new(jars.KAFKA_VERSION):
                self._make_cluster(java, classes)
            self._launch(java, classes, timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the broker in good order (about 0.5 s) and gives up the data directory."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()  # the keeper takes it from here
        self._reap()
        self._data.release()

    def wait_ready(self, timeout: float = 60) -> None:
        """Until a metadata request is answered; raises `BrokerDied` or `NotReady`."""
        deadline = time.monotonic() + timeout
        while not self._listens():  # asked first: the client's retries are coarser and print
            if not self.alive():
                raise self._death()
            if time.monotonic() > deadline:
                raise self._not_ready(timeout)
            time.sleep(POLL_SECONDS)
        self._answers(deadline, timeout)

    # -- the steps of a start, in order -------------------------------------------------

    def _make_cluster(self, java: Path, classes: str) -> None:
        """Formatted beside and moved into place, so that a half-made one is never opened."""
        making = self._data.file("logs.new")
        shutil.rmtree(making, ignore_errors=True)
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._write_settings(ports.DEFAULT_PORT, making.name)
        command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._logging()]
        command += ["-cp", classes, "kafka.tools.StorageTool", "format"]
        command += [
            "--cluster-id",
            cluster_id,
            "--config",
            str(self._data.file("server.properties")),
        ]
        done = subprocess.run(
            command,
            cwd=self.data_dir,
            env=_java_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            raise BrokerDied(
                f"Kafka could not prepare {self.data_dir}:\n{_tail(done.stdout + done.stderr)}"
            )
        os.rename(making, self._data.file("logs"))
        self._data.note(kafka=jars.KAFKA_VERSION, cluster_id=cluster_id)

    def _launch(self, java: Path, classes: str, timeout: float) -> None:
        """A port found free can be gone when Kafka binds it: then the next one is tried. But not by
        a broker that is started again: its clients know the port it had."""
        kept = self._port
        for last in (False, False, True):
            port = ports.choose(self._wanted_port if kept is None else kept)
            self._write_settings(port, "logs")
            self._log_start = _size(self._data.file("broker.log"))
            command = [str(java), *server.JVM, *self._logging()]
            command += ["-cp", classes, "kafka.Kafka", str(self._data.file("server.properties"))]
            self._port = port
            self._spawn(command)
            try:
                self.wait_ready(timeout)
                return
            except BrokerDied as error:
                if "failed to bind" not in str(error):
                    raise
                self._reap()
                if last or port in (self._wanted_port, kept):
                    raise ports.taken(port) from error
                self._port = None

    def _spawn(self, command: list[str]) -> None:
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))]
        keeper += [
            str(os.getpid()),
            str(self._data.file("broker.lock")),
            str(self._data.file("broker.out")),
        ]
        self._keeper = subprocess.Popen(
            keeper + command,
            cwd=self.data_dir,
            env=_java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the owner's: it stops its broker last
        )
        assert self._keeper.stdout is not None
        self._pid = _number(self._keeper.stdout.readline())
        if self._pid is None:
            raise self._death()
        self._data.note(port=self._port, pid=self._pid)

    def _reap(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        with keeper:  # closes its pipes, waits
            if keeper.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    keeper.stdin.close()
            try:
                keeper.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                keeper.kill()

    # -- readiness ----------------------------------------------------------------------

    def _listens(self) -> bool:
        assert self._port is not None
        try:
            socket.create_connection((server.HOST, self._port), 0.5).close()
        except OSError:
            return False
        return True

    def _answers(self, deadline: float, timeout: float) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                if not self.alive():
                    raise self._death() from None
            if time.monotonic() > deadline:
                raise self._not_ready(timeout)

    # -- files ----------------------------------------------------------------

    def _write_settings(self, port: int, logs: str) -> None:
        controller_port = ports.any_free({port})
        text = server.properties(port, controller_port, logs, fsync=self._fsync)
        self._data.write("server.properties", text)
        self._data.write("log4j2.properties", server.LOG4J)

    def _logging(self) -> list[str]:
        return [
            f"-Dlog4j2.configurationFile={self._data.file('log4j2.properties').as_uri()}",
            f"-Dperdure.log={self._data.file('broker.log')}",
        ]

    # -- what went wrong ----------------------------------------------------------------

    def _said(self) -> str:
        """What the broker logged since its start, and what Java printed."""
        log, out = self._data.file("broker.log"), self._data.file("broker.out")
        start = self._log_start if _size(log) >= self._log_start else 0  # rotated since
        return _text(log, start) + _text(out, 0)

    def _death(self) -> BrokerDied | DiskFull:
        said = self._said()
        if "No space left on device" in said:
            return self._data.full("the broker stopped")
        told = "\n".join(_telling(said.splitlines())) or "(it said nothing)"
        return BrokerDied(
            f"the embedded Kafka ended at its start; the end of {self._data.file('broker.log')}:\n{told}"
        )

    def _not_ready(self, timeout: float) -> NotReady:
        return NotReady(
            f"the embedded Kafka runs (pid {self._pid}) but did not answer within {timeout:.0f} s: "
            f"see {self._data.file('broker.log')}; is the machine out of memory or processor time?"
        )


def _java_environment() -> dict[str, str]:
    """Java takes file names as the locale says: under LANG=C it can't open a path with umlauts."""
    return os.environ | {"LC_ALL": "C.UTF-8"}


def _number(raw: bytes) -> int | None:
    return int(raw) if raw.strip().isdigit() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _text(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(start, _size(path) - 1_000_000))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


def _telling(lines: list[str], most: int = 15) -> list[str]:
    """The lines that say why: errors without their stack traces, else simply the last ones."""
    errors = [
        line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line
    ]
    return (errors or lines)[-most:]
