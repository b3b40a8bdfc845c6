"""A small deployment for the commands: an engine and a worker as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from perdure.cli.app import app

TOOLS = '''
from perdure import BusinessError, ToolContext, tool

@tool("notes.add", effect="idempotent")
def add(context: ToolContext, text: str) -> dict:
    """Keep a note."""
    if text == "bad":
        raise BusinessError("no such note")
    return {"noted": text}

@tool("door.open", effect="external", approval="always", title="Open {door}", sensitive=["code"])
def open_door(context: ToolContext, door: str, code: str) -> dict:
    """Open a door."""
    return {"opened": door, "code": code}
'''

AGENTS = """
agents:
  clerk:
    model:
      provider: scripted
      replies:
        - tool_calls: [{name: notes.add, arguments: {text: {$: input}}}]
        - content: noted
    tools: [notes.add]
  porter:
    model:
      provider: scripted
      replies:
        - tool_calls: [{name: door.open, arguments: {door: {$: input.door}, code: "4711"}}]
        - content: the door was asked for
    tools: [door.open, notes.add]
"""


def run(*words: str, environment: dict[str, str] | None = None, stdin: str | None = None) -> Result:
    """One command in this process; stdout and stderr stand apart in the result."""
    result = CliRunner().invoke(app, list(words), env=environment, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


class Desk:
    """Commands against one deployment."""

    def __init__(self, directory: Path, bootstrap: str, prefix: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.environment = {
            "PERDURE_BOOTSTRAP_SERVERS": bootstrap,
            "PERDURE_TOPIC_PREFIX": prefix,
            "PERDURE_DATA_DIR": str(directory / "data"),
            "PERDURE_INSTANCE_ID": "desk",
            "USER": "ann",
            "LOGNAME": "ann",
        }
        self.tools = directory / "tools.py"
        self.tools.write_text(TOOLS)
        self.agents = directory / "agents.yaml"
        self.agents.write_text(AGENTS)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._spawn("engine")
        self._spawn("worker", "--tools", str(self.tools))
        self._ready()

    def again(self, wait: bool = True) -> None:
        """Start anew after `stop`."""
        self._processes.clear()
        self._spawn("engine")
        self._spawn("worker", "--tools", str(self.tools))
        if wait:
            self._ready()

    def said(self, role: str) -> str:
        """What a role has logged since it was last started."""
        return (self.directory / f"{role}.log").read_text()

    def until(self, done: Callable[[], bool], seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, self.said("engine")[-2000:]
            time.sleep(0.2)

    def _ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:  # the tools must be announced first
            applied = self("apply", "-f", str(self.agents))
            if applied.exit_code == 0:
                return
            assert time.monotonic() < deadline, applied.stderr
            for process in self._processes:
                assert process.poll() is None, "a role ended"
            time.sleep(0.2)

    def _spawn(self, *words: str) -> None:
        log = (self.directory / f"{words[0]}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "perdure", *words],
            env=os.environ | self.environment,
            stdout=log,
            stderr=log,
            cwd=self.directory,
        )
        log.close()
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def remove(self) -> None:
        """Delete its topics: the broker is shared."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topics = admin.list_topics(timeout=10).topics
        names = [name for name in topics if name.startswith(self.prefix)]
        for future in admin.delete_topics(names).values():
            future.exception()

    def __call__(self, *words: str, stdin: str | None = None) -> Result:
        return run(*words, environment=self.environment, stdin=stdin)

    def json(self, *words: str) -> list[Any]:
        """What a command says with --json; nothing else may stand on stdout."""
        return [json.loads(text) for text in self(*words, "--json").stdout.splitlines()]

    def asks(self, run_id: str) -> None:
        """Submit a task of the porter and return when its question is open."""
        submitted = self(
            "submit", "--agent", "porter", "--input", '{"door": "north"}', "--id", run_id,
            "--user", "guest", "--wait", "--no-input", "--timeout", "30",
        )  # fmt: skip
        assert submitted.exit_code == 4, submitted.stderr
