"""One Apache Kafka node on this machine, from Python packages alone.

What lies in the data directory::

    owner.lock     held by the owner (this process) from before anything else until it ends
    broker.lock    held by keeper and broker, until both are gone (see keeper.py)
    cluster.json   the Kafka version and cluster id the data belongs to; the last port and pid
    logs/          Kafka's own: records and cluster metadata
    broker.log     what Kafka says, rotated at 5 MB; broker.out: what Java says
    server.properties, log4j2.properties    written anew at each start
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perdure.streams.cluster import jars, server
from perdure.streams.cluster.errors import (
    BrokerDied,
    DataDirUnusable,
    DiskFull,
    ForeignData,
    InUse,
    NoFreePort,
    NotReady,
)

DEFAULT_PORT = 9092
PORTS_TRIED = 100
OWNER_SECONDS = 1
TAKEOVER_SECONDS = 15
"""How long a start waits for the broker of an owner that has just died."""
STOP_SECONDS = 15
"""The keeper kills the broker after 10 s; more means that the keeper hangs too."""
LEAST_FREE_BYTES = 100_000_000
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
        self._wanted_port = port
        self._fsync = fsync
        self._progress = progress
        self._port: int | None = None
        self._pid: int | None = None
        self._lock: int | None = None
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
            self._take_data_dir()
            java, classes = jars.java(), jars.class_path(self._progress)
            self._reap()
            self._wait_for_previous_broker()
            self._format(java, classes)
            self._launch(java, classes, timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the broker in good order (about 0.5 s) and gives up the data directory."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()  # the keeper takes it from here
        self._reap()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

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

    def _take_data_dir(self) -> None:
        if self._lock is not None:
            return
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unusable(error) from error
        # An owner killed a moment ago holds the lock until the kernel is done with it.
        if not _lock(lock, OWNER_SECONDS):
            holder = _number(os.pread(lock, 20, 0))
            os.close(lock)
            raise InUse(
                f"{self.data_dir} is in use by another process"
                f"{f' (pid {holder})' if holder else ''}: "
                "stop that one, or give this one another --data-dir",
                holder,
            )
        self._lock = lock
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        free = shutil.disk_usage(self.data_dir).free
        if free < LEAST_FREE_BYTES:
            raise self._disk_full(f"{free // 1_000_000} MB are left")

    def _wait_for_previous_broker(self) -> None:
        """The owner before us may have been killed a moment ago; its broker is on its way out."""
        try:
            lock = os.open(self.data_dir / "broker.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            if _lock(lock, 0):
                return
            pid = self._cluster().get("pid")
            self._progress(f"waiting for the previous broker (pid {pid}) to end")
            if not _lock(lock, TAKEOVER_SECONDS):
                raise InUse(
                    f"the broker of an earlier process still runs on {self.data_dir} (pid {pid}) "
                    f"and does not end: end it with `kill -9 {pid}`",
                    pid,
                )
        finally:
            os.close(lock)

    def _format(self, java: Path, classes: str) -> None:
        """Gives a new data directory its cluster id; checks that an old one is ours to open."""
        logs, known = self.data_dir / "logs", self._cluster()
        cluster_id = _cluster_id(logs / "meta.properties")
        if cluster_id is None and not known:
            self._make_cluster(java, classes, logs)
            return
        if cluster_id is None or (known and known.get("cluster_id") != cluster_id):
            raise ForeignData(
                f"{logs} holds cluster {cluster_id or '(none)'}, but {self.data_dir} belongs to "
                f"{known.get('cluster_id')}: put the right directory back, or start with an empty "
                "--data-dir"
            )
        if known and _version(known.get("kafka", "0")) > _version(jars.KAFKA_VERSION):
            raise ForeignData(
                f"{self.data_dir} was written by Kafka {known['kafka']}, this is "
                f"{jars.KAFKA_VERSION}, which can't read it: upgrade perdure, or start with "
                "another --data-dir"
            )
        self._note(kafka=jars.KAFKA_VERSION, cluster_id=cluster_id)

    def _make_cluster(self, java: Path, classes: str, logs: Path) -> None:
        """Formatted beside and moved into place, so that a half-made one is never opened."""
        making = self.data_dir / "logs.new"
        shutil.rmtree(making, ignore_errors=True)
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._write_settings(DEFAULT_PORT, DEFAULT_PORT + 1, making.name)
        command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._logging()]
        command += ["-cp", classes, "kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", cluster_id, "--config", str(self._file("server.properties"))]
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
        os.rename(making, logs)
        self._note(kafka=jars.KAFKA_VERSION, cluster_id=cluster_id)

    def _launch(self, java: Path, classes: str, timeout: float) -> None:
        """A port found free can be gone when Kafka binds it: then the next one is tried."""
        for last in (False, False, True):
            port = self._choose_port()
            self._write_settings(port, _free_port({port}), "logs")
            self._log_start = _size(self._file("broker.log"))
            command = [str(java), *server.JVM, *self._logging()]
            command += ["-cp", classes, "kafka.Kafka", str(self._file("server.properties"))]
            self._port = port
            self._spawn(command)
            try:
                self.wait_ready(timeout)
                return
            except BrokerDied as error:
                if "failed to bind" not in str(error):
                    raise
                self._reap()
                if last or port == self._wanted_port:
                    raise self._taken(port) from error
                self._port = None

    def _spawn(self, command: list[str]) -> None:
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))]
        keeper += [str(os.getpid()), str(self._file("broker.lock")), str(self._file("broker.out"))]
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
        self._note(port=self._port, pid=self._pid)

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

    # -- ports and files ----------------------------------------------------------------

    def _choose_port(self) -> int:
        wanted = self._port if self._port is not None else self._wanted_port
        if wanted == 0:
            return _free_port()
        if wanted is not None:
            if not _is_free(wanted):
                raise self._taken(wanted)
            return wanted
        last = DEFAULT_PORT + PORTS_TRIED - 1
        for port in range(DEFAULT_PORT, last + 1):
            if _is_free(port):
                return port
        raise NoFreePort(
            f"all ports from {DEFAULT_PORT} to {last} are taken: stop what uses them, or choose "
            "a port"
        )

    def _write_settings(self, port: int, controller_port: int, logs: str) -> None:
        text = server.properties(port, controller_port, logs, fsync=self._fsync)
        try:
            self._file("server.properties").write_text(text)
            self._file("log4j2.properties").write_text(server.LOG4J)
        except OSError as error:
            raise self._unusable(error) from error

    def _logging(self) -> list[str]:
        return [
            f"-Dlog4j2.configurationFile={self._file('log4j2.properties').as_uri()}",
            f"-Dperdure.log={self._file('broker.log')}",
        ]

    def _file(self, name: str) -> Path:
        return self.data_dir / name

    def _cluster(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file("cluster.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _note(self, **facts: object) -> None:
        temporary = self._file(".cluster.json")
        try:
            temporary.write_text(json.dumps(self._cluster() | facts))
            os.replace(temporary, self._file("cluster.json"))
        except OSError as error:
            raise self._unusable(error) from error

    # -- what went wrong ----------------------------------------------------------------

    def _said(self) -> str:
        """What the broker logged since its start, and what Java printed."""
        log, out = self._file("broker.log"), self._file("broker.out")
        start = self._log_start if _size(log) >= self._log_start else 0  # rotated since
        return _text(log, start) + _text(out, 0)

    def _death(self) -> BrokerDied | DiskFull:
        said = self._said()
        if "No space left on device" in said:
            return self._disk_full("the broker stopped")
        told = "\n".join(_telling(said.splitlines())) or "(it said nothing)"
        return BrokerDied(
            f"the embedded Kafka ended at its start; the end of {self._file('broker.log')}:\n{told}"
        )

    def _not_ready(self, timeout: float) -> NotReady:
        return NotReady(
            f"the embedded Kafka runs (pid {self._pid}) but did not answer within {timeout:.0f} s: "
            f"see {self._file('broker.log')}; is the machine out of memory or processor time?"
        )

    def _taken(self, port: int) -> NoFreePort:
        return NoFreePort(
            f"port {port} is taken by another program: stop that one, or choose another port"
        )

    def _disk_full(self, what: str) -> DiskFull:
        return DiskFull(
            f"the disk of {self.data_dir} is full ({what}): free some space, or choose another "
            "--data-dir"
        )

    def _unusable(self, error: OSError) -> DataDirUnusable | DiskFull:
        if error.errno == errno.ENOSPC:
            return self._disk_full("nothing can be written")
        return DataDirUnusable(
            f"can't use {self.data_dir} as data directory: {error.strerror}; give a directory "
            "that can be written with --data-dir"
        )


def _lock(file: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(POLL_SECONDS)


def _java_environment() -> dict[str, str]:
    """Java takes file names as the locale says: under LANG=C it can't open a path with umlauts."""
    return os.environ | {"LC_ALL": "C.UTF-8"}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _free_port(but: Iterable[int] = ()) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((server.HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in but:
            return port


def _cluster_id(meta: Path) -> str | None:
    try:
        lines = meta.read_text().splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


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
