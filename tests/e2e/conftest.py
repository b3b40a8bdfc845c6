"""One `perdure up` with agents that ask many people, and a mail server that keeps what it gets."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cases.deployment import Deployment
from tests.cases.model_server import model_server

from .crowd import LONG, SHORT, Wave

EXAMPLE = Path(__file__).parents[2] / "examples" / "refunds"
WATCHED = ["agent.events", "agent.verdicts", "agent.approvals.pending", "agent.outcomes"]
SMALL_CACHE = "500000"
"""So that it is full: what a process holds beyond it would be held for the runs that wait."""
PAYS = {"kind": "action", "tool": "pay"}


@dataclass(frozen=True)
class Mailbox:
    """The mail server's port and the file of its mails."""

    port: int
    path: Path

    def mails(self) -> list[dict[str, Any]]:
        raw = self.path.read_bytes() if self.path.exists() else b""
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


@pytest.fixture(scope="package")
def mailbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mailbox]:
    path = tmp_path_factory.mktemp("mails") / "mails.jsonl"
    command = [sys.executable, str(EXAMPLE / "mailsink.py"), "--mails", str(path)]
    command += ["--port", "0", "--end-with-stdin"]
    sink = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        yield Mailbox(json.loads(sink.stdout.readline())["port"], path)
    finally:
        sink.kill()
        sink.communicate()


@pytest.fixture(scope="package")
def crowd(
    broker: str, mailbox: Mailbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    with model_server() as model:
        prefix = f"t-{uuid.uuid4().hex[:8]}."
        made = Deployment(tmp_path_factory.mktemp("crowd"), broker, prefix, model)
        made.create_topics()
        made.start(
            _agents(),
            people={"ops": _people("ops", "ann", "bob"), "boss": _people("boss", "cas")},
            tools=[EXAMPLE / "tools.py"],
            watched=WATCHED,
            PERDURE_CACHE_BYTES=SMALL_CACHE,
            REFUNDS_SMTP=f"127.0.0.1:{mailbox.port}",
        )
        yield made
        assert made.stop() == 0


def _people(name: str, *members: str) -> dict[str, Any]:
    tell = {"tool": "mail.send", "arguments": {"to": f"{name}@example.org"}}
    return {"members": list(members), "notify": tell}


def _agents() -> dict[str, Any]:
    told = {**PAYS, "approvers": ["ops"]}
    again = {"within_seconds": 2.6, "remind_seconds": 1, "on_timeout": "escalate"}
    made: dict[str, Any] = {
        "payer": {"tools": ["pay", "ping"]},
        "told": {"tools": ["pay"], "approvals": [told]},
        "told-again": {
            "tools": ["pay"],
            "approvals": [{**told, **again, "escalate_to": ["boss"]}],
        },
    }
    for wave in (SHORT, LONG):
        made.update({name: _expiring(seconds) for name, seconds in _members(wave)})
    return made


def _members(wave: Wave) -> list[tuple[str, float]]:
    return [(wave.agent(batch), wave.within_seconds(batch)) for batch in range(wave.batches)]


def _expiring(seconds: float) -> dict[str, Any]:
    rule = {**PAYS, "within_seconds": seconds, "on_timeout": "reject"}
    return {"tools": ["pay"], "approvals": [rule]}
