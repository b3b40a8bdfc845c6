"""The body of ``perdure views``: the tables, the HTTP API and the page, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from perdure.settings import Settings

from . import logs, parent, view_tables
from .console import FAILED, USAGE, client, leave, say

if TYPE_CHECKING:
    from perdure.streams.views.access import Caller

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PORTS: Final = {"https": ":443", "http": ":80"}
NEXT_PORTS: Final = 20
"""So many ports after a taken default one are tried by `perdure up`."""


def run_views(
    settings: Settings,
    *,
    host: str,
    port: int,
    dev: bool,
    rebuild: bool,
    url: str | None = None,
    person: str | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises `DirectoryLocked`."""
    from perdure.streams.runtime.directory_lock import DirectoryLock

    parent.follow()
    access_of = _access(settings, host, dev, person)
    logs.configure(settings, "views")
    # Lost connections are said by /ready and the lag; Faust and aiokafka would say each attempt,
    # and below WARNING what they read and send. Who sends what is no HTTP is answered, not reported.
    for name in (
        "aiohttp.server",
        "aiokafka",
        "faust",
        "mode",
        "perdure.streams.views.faust_driver",
    ):
        level = logging.WARNING if settings.log_level.upper() == "DEBUG" else logging.CRITICAL
        logging.getLogger(name).setLevel(level)
    warnings.filterwarnings(
        "ignore", category=DeprecationWarning, module=r"(faust|mode|aiokafka)\b"
    )
    directory = settings.data_dir / "views" / settings.instance_id
    lock = DirectoryLock(directory)  # two of one name would write the same tables
    try:
        partitions = _prepare(settings, directory, rebuild)
        asyncio.run(_serve(settings, directory, partitions, host, port, access_of, url, dev))
    finally:
        lock.release()


def _access(settings: Settings, host: str, dev: bool, person: str | None) -> Any:
    from perdure.schemas.records import USER_ID_PATTERN
    from perdure.streams.views.access import ROLES, Access, BadTokens, Caller

    from .terminal import user_name

    local: Caller | None = None
    if person is not None and not dev:
        leave(USAGE, "--as goes with --dev; otherwise a token says who somebody is")
    if person is not None and not re.match(USER_ID_PATTERN, person):
        leave(USAGE, f"--as {person!r}: a name is 1 to 200 letters, digits and - _ . : @")
    if dev:
        if host not in LOOPBACK:
            leave(USAGE, f"--dev lets everybody in and serves on loopback only, not on {host}")
        local = Caller(person or user_name() or "local", frozenset(ROLES), dev=True)
    elif settings.tokens_file is None:
        leave(
            USAGE,
            "who may call? give --tokens-file FILE (`perdure keys token NAME` makes an entry), or --dev "
            "on your own machine",
        )
    try:
        return Access(None if dev else settings.tokens_file, local)
    except BadTokens as error:
        leave(USAGE, str(error))


def _prepare(settings: Settings, directory: Path, rebuild: bool) -> int:
    """Topics are there, and what lies in the directory was made of these changelogs."""
    from perdure.schemas import topics
    from perdure.streams.cluster.anew import delete_topics, forget_group
    from perdure.streams.cluster.topics import ensure_topics
    from perdure.streams.runtime.kafka import ConfluentKafka
    from perdure.streams.views.broker_settings import NotForViews, credentials
    from perdure.streams.views.faust_app import GROUP, TABLES

    try:
        credentials(settings.kafka)
    except NotForViews as error:
        leave(USAGE, str(error))
    conf, prefix = settings.client_conf(), settings.topic_prefix
    processors = (*topics.PROCESSORS, *TABLES)
    if rebuild:
        say("perdure views: the tables are made anew from agent.events")
        forget_group(conf, topics.group_id(prefix, GROUP))
        delete_topics(conf, [prefix + topics.changelog(name) for name in TABLES])
        view_tables.drop(directory)
    ensure_topics(conf, prefix, settings.partitions, processors=processors)
    admin = ConfluentKafka(settings.runtime()).admin()
    ids = view_tables.ids_now(admin)
    if not view_tables.fits(directory, ids):
        view_tables.drop(directory)
        view_tables.note(directory, ids)
    return admin.partition_counts([topics.EVENTS])[topics.EVENTS]


async def _serve(
    settings: Settings,
    directory: Path,
    partitions: int,
    host: str,
    port: int,
    access: Any,
    url: str | None,
    dev: bool,
) -> None:
    from perdure.schemas import topics
    from perdure.streams.cluster.admin import Admin
    from perdure.streams.runtime.kafka import ConfluentKafka
    from perdure.streams.runtime.processing import where
    from perdure.streams.views.answers import Answers
    from perdure.streams.views.api.server import Parts, Server
    from perdure.streams.views.board import Board
    from perdure.streams.views.changes import Changes
    from perdure.streams.views.faust_app import GROUP, AppSettings, ViewsApp
    from perdure.streams.views.index import Index
    from perdure.streams.views.projections.rows import Row
    from perdure.streams.views.table_histories import TableHistories
    from perdure.topics_reader import Scanner
    from perdure.view_feeds import ClientDoor, Feed

    from .backlog import Backlog, Input
    from .health import registry_of
    from .view_measures import families, http_seconds
    from .view_watch import KafkaWatch, queues_of

    index = Index(directory / "index.sqlite")
    told: list[Changes] = []

    def changed(rows: Sequence[Row]) -> None:
        for changes in told:
            changes.runs(row.run_id for row in rows)

    def asked(approval_id: str, is_open: bool) -> None:
        for changes in told:
            changes.approval(approval_id, is_open)

    board = Board(asked)
    listening = _Listening(host, port)
    own = url or f"http://{_address(host)}:{listening.port}"
    app = ViewsApp(
        AppSettings(
            settings.bootstrap_servers or "",
            directory,
            partitions,
            settings.topic_prefix,
            settings.kafka,
            own,
        ),
        index,
        changed,
    )
    histories = TableHistories(app, own)
    answers = Answers(index, histories, board, settings.stuck_seconds)
    told.append(Changes(uuid.uuid4().hex[:8], index.shown, answers.stats))
    feed = Feed(Scanner(settings.client_conf(), settings.topic_prefix), board, index)

    door = ClientDoor(client(settings), _keys(settings, dev))
    runtime = settings.runtime()
    kafka = ConfluentKafka(runtime)
    inputs = {GROUP: Input(runtime.group(GROUP), (topics.EVENTS, topics.OUTCOMES))}
    backlog = Backlog(lambda: {GROUP: app.held()}, inputs, kafka)
    cluster = Admin(settings.client_conf(), timeout=5)

    def queues() -> list[str]:
        return queues_of(cluster.metadata().topics, settings.topic_prefix)

    urls = [each for each in (settings.page_url, url) if each is not None and not dev]
    http = http_seconds()
    measures = families(index, app.projector, histories, http, told[0].listeners)
    parts = Parts(
        answers=answers,
        histories=histories,
        door=door,
        watch=KafkaWatch(kafka, runtime.group, lambda: feed.letters, queues),
        changes=told[0],
        access=access,
        registry=registry_of(measures, backlog),
        answered=lambda method, route, status, seconds: http.observe(
            seconds, (method, route, str(status))
        ),
        # A page of another host must not reach a server that trusts everybody on this machine.
        hosts=LOOPBACK | hosts_of(urls) if host in LOOPBACK else None,
        origins=origins_of(urls),
        secure=bool(urls) and (settings.page_url or "").lower().startswith("https:"),
    )
    server = Server(parts, listening.socket)
    metrics = None
    if settings.metrics_port is not None:
        metrics = Server(
            parts,
            _Listening(settings.metrics_host, settings.metrics_port, "--metrics-port").socket,
            bare=True,
        )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    feed.start()
    app.start()
    await server.start()
    if metrics is not None:
        await metrics.start()
    say(f"views {settings.instance_id}: serving {own} from {settings.bootstrap_servers}")
    failed = await _until(stop, app)
    say(f"views {settings.instance_id}: stopping")
    feed.stop()
    door.stop()
    await server.stop()
    if metrics is not None:
        await metrics.stop()
    await asyncio.to_thread(app.stop)
    if failed:
        leave(FAILED, f"the views have ended ({where(app.failure)}): see their log")
    sys.stderr.flush()


def _keys(settings: Settings, dev: bool) -> Callable[[str], tuple[Path, bool] | None]:
    """Which key signs for whom. Where nobody shows who they are (`--dev`), no person's own key does."""
    from .keys import private_key_of

    doors_own = settings.signing_key is not None

    def key_of(approver: str) -> tuple[Path, bool] | None:
        return None if dev and not doors_own else (private_key_of(settings, approver), doors_own)

    return key_of


async def _until(stop: asyncio.Event, app: Any) -> bool:
    """Until somebody asks for the end (False), or the Faust app has ended by itself (True)."""
    while not stop.is_set():
        if not app.alive():
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
    return False


def hosts_of(urls: Iterable[str]) -> frozenset[str]:
    """The names in them: a proxy in front hands on the one that people call."""
    return frozenset(name for each in urls if (name := urlsplit(each).hostname))


def origins_of(urls: Iterable[str]) -> frozenset[str]:
    """As browsers write them: no path, and no port that goes without saying."""
    found = []
    for each in urls:
        scheme, _, place = each.lower().partition("://")
        place = place.partition("/")[0]
        found.append(f"{scheme}://{place.removesuffix(_PORTS.get(scheme, ''))}")
    return frozenset(found)


def _address(host: str) -> str:
    """Under which others reach us: they can't call 0.0.0.0."""
    if host in ("0.0.0.0", "::"):
        import socket

        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


class _Listening:
    """A bound port, so that its number is known before anything else starts."""

    def __init__(self, host: str, port: int, flag: str = "--port") -> None:
        import socket

        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(kind, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((host, port))
        except OSError as error:
            leave(FAILED, f"{flag} {port}: {error.strerror}; choose another, or 0 for any")
        self.port: int = self.socket.getsockname()[1]
