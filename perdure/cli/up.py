"""The body of ``perdure up``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.agents import AgentsError, check_tools, newer, read_agents
from perdure.client import Client
from perdure.settings import Settings

from .console import FAILED, leave, line, say
from .roles import tool_paths
from .supervisor import Supervisor, free_port, note, strike

ANNOUNCE_SECONDS = 30.0
BROKER_AGAIN_SECONDS = 5.0
"""Between two tries to start a Kafka that has died."""


class Stopped(Exception):
    """SIGTERM or Ctrl-C."""


class Deployment:
    """The embedded Kafka (unless another is given), the roles, and the agents applied."""

    def __init__(
        self,
        settings: Settings,
        *,
        tools: list[str],
        agents: Path | None,
        fsync: bool = False,
        kafka_port: int | None = None,
        engines: int = 1,
        workers: int = 1,
        environment: dict[str, str] | None = None,
        views: bool = True,
        port: int | None = None,
        page_as: str | None = None,
    ) -> None:
        self.settings = settings
        self._tools = tool_paths(list(tools))
        self._agents = agents
        self._fsync = fsync
        self._kafka_port = kafka_port
        self._engines = engines
        self._workers = workers
        self._environment = dict(environment or {})
        self._views = views
        self._port = port
        self._page_as = page_as
        self.url: str | None = None
        self.broker: Any = None
        self._broker_again_at = 0.0
        self.supervisor: Supervisor | None = None
        self._noted: dict[str, Any] | None = None

    def start(self) -> None:
        """Returns when everything takes work. Raises what the pieces raise."""
        from perdure.connectors.loading import load_all

        # a typo ends here, before Kafka starts
        agents, idle = read_agents(self._agents) if self._agents else ([], [])
        for sentence in idle:
            say(f"perdure up: {sentence}")
        load_all(self._tools)
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        if self.settings.bootstrap_servers is None:
            self._start_broker()
        self._reach_kafka()
        supervisor = self.supervisor = Supervisor(self.settings)
        port = page_port(self._port) if self._views else 0
        if self._views:
            self.url = f"http://127.0.0.1:{port}"
            self._environment.setdefault("PERDURE_PAGE_URL", self.settings.page_url or self.url)
        for _ in range(self._engines):
            supervisor.add("engine", environment=self._environment)
        flags = [flag for path in self._tools for flag in ("--tools", path)]
        for _ in range(self._workers):
            supervisor.add("worker", *flags, environment=self._environment)
        if self._views:  # beside the others: nothing waits for what only shows
            supervisor.add("views", *self._views_flags(port), awaited=False)
        if not supervisor.wait_ready(self.check):
            waiting = ", ".join(role.name for role in supervisor.roles if not role.ready())
            raise AgentsError(f"not ready after 60 s: {waiting}; try --log-level INFO to see why")
        if agents:
            self._apply(agents)
        self._note()

    def _note(self) -> None:
        """For the other commands, until we stop."""
        tokens = self.settings.tokens_file
        self._noted = {
            "bootstrap_servers": self.settings.bootstrap_servers,
            "topic_prefix": self.settings.topic_prefix,
            "url": self.url,
            "tokens_file": None if tokens is None else str(tokens.absolute()),
            "pid": os.getpid(),
        }
        note(self.settings.data_dir / "up.json", self._noted)

    def _views_flags(self, port: int) -> list[str]:
        """Whoever may read this machine's loopback may look, unless tokens say who."""
        tokens = self.settings.tokens_file
        who = ["--dev"] if tokens is None else ["--tokens-file", str(tokens.absolute())]
        if tokens is None and self._page_as is not None:
            who += ["--as", self._page_as]
        return ["--port", str(port), *who]

    def _start_broker(self) -> None:
        from perdure.streams.cluster.broker import EmbeddedKafka

        broker = EmbeddedKafka(
            self.settings.data_dir / "kafka", port=self._kafka_port, fsync=self._fsync
        )
        broker.start()
        self.broker = broker
        self.settings = self.settings.model_copy(
            update={"bootstrap_servers": broker.bootstrap_servers}
        )

    def _reach_kafka(self) -> None:
        """A Kafka that is not there is said once, here, not by roles that start for ever."""
        from perdure.schemas import topics
        from perdure.streams.runtime.kafka import ConfluentKafka

        ConfluentKafka(self.settings.runtime()).admin().partition_counts([topics.TASKS])

    def client(self) -> Client:
        assert self.settings.bootstrap_servers is not None
        return Client(
            self.settings.bootstrap_servers,
            topic_prefix=self.settings.topic_prefix,
            kafka=self.settings.kafka,
        )

    def _apply(self, agents: list[Any]) -> None:
        """Apply the agents once their tools are announced; what does not fit is an error."""
        client = self.client()
        deadline = time.monotonic() + ANNOUNCE_SECONDS
        while problems := check_tools(agents, client.tools()):
            if time.monotonic() > deadline or not self._tools:
                raise AgentsError("\n".join(problems))
            self.check()
            time.sleep(0.1)
        for agent in newer(agents, client.agents()):
            client.catalog(f"agent/{agent.name}", agent)

    def check(self) -> None:
        """Notice a dead broker; roles are looked after by the supervisor. It is never given up: the
        roles wait for it, and what keeps it from starting (a full disk, a taken port) may pass."""
        if self.broker is None or self.broker.alive() or time.monotonic() < self._broker_again_at:
            return
        from perdure.streams.cluster.errors import ClusterError

        say("perdure up: the embedded Kafka has died; it starts again")
        try:
            self.broker.start()
        except (ClusterError, OSError) as error:
            self._broker_again_at = time.monotonic() + BROKER_AGAIN_SECONDS
            say(f"perdure up: {error}\nperdure up: tried again in {BROKER_AGAIN_SECONDS:g} s")

    def look(self) -> None:
        """One look at everything that may have died."""
        self.check()
        assert self.supervisor is not None
        self.supervisor.look()

    def stop(self) -> None:
        """Roles first, then Kafka, so that a drain can still commit."""
        if self.supervisor is not None:
            self.supervisor.stop()
        if self._noted is not None:  # else it is that of an `up` that runs here and goes on
            strike(self.settings.data_dir / "up.json", self._noted)
        if self.broker is not None:
            self.broker.stop()


PAGE_PORT = 8600
_PORTS_TRIED = 50


def page_port(wanted: int | None) -> int:
    """The port asked for; else 8600, or the next one that is free."""
    if wanted is not None:
        return wanted or free_port()
    from perdure.streams.cluster.ports import is_free

    tried = range(PAGE_PORT, PAGE_PORT + _PORTS_TRIED)
    return next(filter(is_free, tried), None) or free_port()


def on_stop_signals(act: Callable[[], None]) -> None:
    """Call ``act`` (which raises) on SIGTERM and Ctrl-C."""

    def handler(number: int, frame: object) -> None:
        act()

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


def raise_stopped() -> None:
    on_stop_signals(lambda: None)  # a second signal waits for the first one's drain
    raise Stopped


def up(deployment: Deployment, as_json: bool) -> None:
    """Start, say so, stay until told to stop."""
    on_stop_signals(raise_stopped)
    began = time.monotonic()
    try:
        deployment.start()
        settings = deployment.settings
        assert deployment.supervisor is not None
        pids = deployment.supervisor.pids()
        if deployment.broker is not None:
            pids["kafka"] = [deployment.broker.pid]
        if as_json:
            line(
                {
                    "ready": True,
                    "bootstrap_servers": settings.bootstrap_servers,
                    "url": deployment.url,
                    "data_dir": str(settings.data_dir.absolute()),
                    "pids": pids,
                }
            )
        else:
            say(f"perdure is up after {time.monotonic() - began:.1f} s")
            say(
                f"  Kafka        {settings.bootstrap_servers}   (bootstrap servers of any Kafka client)"
            )
            say(f"  data         {settings.data_dir.absolute()}")
            if deployment.url is not None:
                say(f"  page         {deployment.url}")
            say("  submit       perdure submit --agent NAME --input TEXT --wait")
            say("  look         perdure runs | perdure pending | perdure show RUN")
            say("  stop         Ctrl-C")
        while True:
            deployment.look()
            time.sleep(0.1)
    except Stopped:
        say("perdure up: stopping")
    except AgentsError as error:
        deployment.stop()
        leave(FAILED, str(error))
    finally:
        deployment.stop()
