"""``perdure demo``: the refunds example under fire, judged from outside.

Starts everything, submits the tasks in three waves, plays the approver, kills engine and worker
with -9 in every wave, waits for all outcomes, and compares them with what the payment service
and the mail sink really did.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from perdure.client import Client
from perdure.schemas import codec, topics
from perdure.schemas.records import ApprovalDecision, ApprovalRequest, Outcome
from perdure.settings import Settings

from .console import FAILED, USAGE, leave, line, say
from .up import Deployment, Stopped, on_stop_signals, raise_stopped

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "refunds"
WAVES: Final = 3
OUTCOME_SECONDS: Final = 180.0
APPROVER: Final = "ann"
VISITOR: Final = "bob"
"""Whoever sits before the page: one of those who are asked about refunds."""
PAGE_SECONDS: Final = 60.0


@dataclass
class Services:
    """The example's outside world: an order database, a payment service, a mail sink."""

    directory: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    payments_url: str = ""
    smtp: str = ""

    @property
    def orders(self) -> Path:
        return self.directory / "orders.db"

    @property
    def mails(self) -> Path:
        return self.directory / "mails.jsonl"

    def start(self) -> None:
        _module("orders").build(self.orders)
        self.payments_url = self._spawn("payments.py", "--db", str(self.directory / "payments.db"))[
            "url"
        ]
        self.smtp = self._spawn("mailsink.py", "--mails", str(self.mails))["address"]

    def _spawn(self, script: str, *arguments: str) -> dict[str, Any]:
        command = [
            sys.executable,
            str(EXAMPLE / script),
            *arguments,
            "--port",
            "0",
            "--end-with-stdin",
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        told: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
        if not told:
            leave(FAILED, f"{script} did not start")
        return told

    def report(self) -> dict[str, Any]:
        """What the payment service really did."""
        with urllib.request.urlopen(f"{self.payments_url}/report", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def environment(self) -> dict[str, str]:
        return {
            "REFUNDS_DB": str(self.orders),
            "REFUNDS_PAYMENTS_URL": self.payments_url,
            "REFUNDS_SMTP": self.smtp,
        }

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(10)


def _module(name: str) -> ModuleType:
    """One of the example's modules, by path: examples are not part of the package."""
    full = f"perdure_example_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[full] = made
        spec.loader.exec_module(made)
    return sys.modules[full]


class Approver(threading.Thread):
    """A person: answers every question once, as the task's metadata says, or after a look outside."""

    def __init__(self, client: Client, services: Services) -> None:
        super().__init__(name="approver", daemon=True)
        self._client = client
        self._services = services
        self.holding = threading.Event()
        self.answered: dict[str, str] = {}

    def run(self) -> None:
        for seen in self._client.reader.read([topics.PENDING], follow=True):
            if (
                seen.value is None
                or seen.key is None
                or seen.key in self.answered
                or self.holding.is_set()
            ):
                continue
            question = codec.decode(seen.value, ApprovalRequest)
            decision = self._answer(question)
            self.answered[seen.key] = decision.decision
            self._client.decide(decision)

    def _answer(self, question: ApprovalRequest) -> ApprovalDecision:
        word, reason = "retry", None
        if question.kind == "action":
            word = _module("expected").decision(question.metadata)
            reason = "not covered by the policy" if word == "reject" else None
        elif question.kind == "in_doubt":
            time.sleep(1.0)  # a mail on its way arrives or not
            there = _module("mailsink").look_for_mail(self._services.mails, question.action_id)
            word = "mark_done" if there else "mark_not_done"
            reason = "it is in the mail box" if there else "it is not in the mail box"
        answer = {"found": "by a person"} if word == "mark_done" else None
        return ApprovalDecision(
            approval_id=question.approval_id,
            decision=word,  # type: ignore[arg-type]
            approver=APPROVER,
            reason=reason,
            answer=answer,
            digest=question.digest,
        )


class Outcomes(threading.Thread):
    """Collects outcomes as they are committed."""

    def __init__(self, client: Client) -> None:
        super().__init__(name="outcomes", daemon=True)
        self._client = client
        self.found: dict[str, Outcome] = {}

    def run(self) -> None:
        for seen in self._client.reader.read([topics.OUTCOMES], follow=True):
            if seen.key is not None and seen.value is not None:
                self.found[seen.key] = codec.decode(seen.value, Outcome)


def demo(*, kills: bool, keep: bool, as_json: bool, data_dir: Path | None) -> None:
    """The whole demonstration. Exit 0 only if nothing is missing and nothing doubled."""
    if not EXAMPLE.is_dir():
        leave(FAILED, "the demo needs examples/refunds: run it in a clone of the project")
    if data_dir is not None and (data_dir / "orders.db").exists():
        leave(
            USAGE, f"{data_dir} holds an earlier demo, which would be judged too: choose a new one"
        )
    on_stop_signals(raise_stopped)
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as scratch:
        directory = (data_dir or Path(scratch)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        services = Services(directory)
        model = (
            "agents.openai.yaml"
            if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")
            else "agents.yaml"
        )
        say("demo: starting the payment service, the mail sink, Kafka, engine and worker")
        services.start()
        deployment = Deployment(
            Settings(
                data_dir=directory, bootstrap_servers=None, instance_id="demo", drain_seconds=5.0
            ),
            tools=[str(EXAMPLE / "tools.py")],
            agents=EXAMPLE / model,
            environment=services.environment(),
            views=keep,
            page_as=VISITOR,
        )
        code = 1
        try:
            deployment.start()
            code = _demonstrate(
                deployment, services, kills, keep, as_json, scripted=model == "agents.yaml"
            )
            if keep and code == 0:
                _stay(deployment)
        except Stopped:
            say("demo: stopping")
        finally:
            deployment.stop()
            services.stop()
    if code:
        leave(code, "the demo did not come out right; see above")


def _demonstrate(
    deployment: Deployment,
    services: Services,
    kills: bool,
    keep: bool,
    as_json: bool,
    *,
    scripted: bool,
) -> int:
    expected = _module("expected")
    tasks = expected.read_tasks(EXAMPLE / "tasks.jsonl")
    client = deployment.client()
    approver, outcomes = Approver(client, services), Outcomes(client)
    approver.start()
    outcomes.start()
    began = time.monotonic()
    killed = _work(deployment, client, tasks, outcomes, kills)
    ids = [task["task_id"] for task in tasks]
    _wait(deployment, ids, outcomes)
    seconds = time.monotonic() - began
    missing_outcomes = [run_id for run_id in ids if run_id not in outcomes.found]
    wanted = expected.expected(tasks, _module("orders").read(services.orders))
    mails = _module("mailsink").read_mails(services.mails)
    verdict = expected.compare(wanted, services.report(), mails, check_subjects=scripted)
    wrong = (
        [
            run_id
            for run_id, status in wanted.statuses.items()
            if _status(outcomes, run_id) != status
        ]
        if scripted
        else []
    )
    statuses = [_status(outcomes, run_id) for run_id in ids]
    summary = {
        "runs": len(ids),
        "done": statuses.count("done"),
        "failed": statuses.count("failed"),
        "cancelled": statuses.count("cancelled"),
        "kills": killed,
        "effects_expected": verdict["effects_expected"],
        "effects_found": verdict["effects_found"],
        "duplicate_effects": verdict["duplicate_effects"],
        "missing_effects": verdict["missing_effects"],
        "seconds": round(seconds, 1),
    }
    _report(summary, verdict, outcomes, approver, client, _most_told(approver, ids))
    bad = (
        missing_outcomes
        or wrong
        or verdict["duplicate_effects"]
        or verdict["missing_effects"]
        or verdict["unexpected_effects"]
    )
    for run_id in missing_outcomes:
        say(f"demo: run {run_id} has no outcome")
    for run_id in wrong:
        say(
            f"demo: run {run_id} ended {_status(outcomes, run_id)}, expected {wanted.statuses[run_id]}"
        )
    if keep and not bad:
        approver.holding.set()
        _one_more(client)
    if as_json:
        line(summary)
    return FAILED if bad else 0


def _status(outcomes: Outcomes, run_id: str) -> str:
    found = outcomes.found.get(run_id)
    return "none" if found is None else found.status


def _work(
    deployment: Deployment, client: Client, tasks: list[Any], outcomes: Outcomes, kills: bool
) -> int:
    """Submit in waves; in each, kill engine and worker while its runs are under way."""
    killed = 0
    size = -(-len(tasks) // WAVES)
    for wave in range(WAVES):
        part = tasks[wave * size : (wave + 1) * size]
        before = len(outcomes.found)
        client.submit(part)
        say(f"demo: wave {wave + 1} of {WAVES}: {len(part)} tasks submitted")
        if not kills:
            continue
        for name, more in (("engine", 1), ("worker", 2)):
            _until(deployment, partial(_at_least, outcomes, before + more), 20.0)
            killed += _kill(deployment, name)
        _until(
            deployment,
            lambda: all(role.process and role.ready() for role in deployment.supervisor.roles),
            30.0,
        )  # type: ignore[union-attr]
    return killed


def _at_least(outcomes: Outcomes, count: int) -> bool:
    return len(outcomes.found) >= count


def _kill(deployment: Deployment, name: str) -> int:
    """kill -9 of one role; returns how many were killed."""
    assert deployment.supervisor is not None
    for role in deployment.supervisor.roles:
        if role.name == name and role.process is not None and role.process.poll() is None:
            say(f"demo: kill -9 {name} (pid {role.process.pid})")
            os.kill(role.process.pid, signal.SIGKILL)
            role.process.wait()
            return 1
    return 0


def _served(page: str | None) -> bool:
    try:
        with urllib.request.urlopen(f"{page}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(deployment: Deployment, done: Any, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        deployment.look()
        if done():
            return True
        time.sleep(0.01)
    return False


def _wait(deployment: Deployment, ids: list[str], outcomes: Outcomes) -> None:
    deadline = time.monotonic() + OUTCOME_SECONDS
    told = 0.0
    while time.monotonic() < deadline:
        deployment.look()
        left = [run_id for run_id in ids if run_id not in outcomes.found]
        if not left:
            return
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"demo: {len(ids) - len(left)} of {len(ids)} runs have ended")
        time.sleep(0.05)


def _most_told(approver: Approver, ids: list[str]) -> str:
    """A run worth showing: one that a person was asked about."""
    asked = [key.rpartition("/")[0] for key, word in approver.answered.items() if word == "approve"]
    return asked[0] if asked else ids[0]


def _report(
    summary: dict[str, Any],
    verdict: dict[str, Any],
    outcomes: Outcomes,
    approver: Approver,
    client: Client,
    shown: str,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from .timeline import print_timeline

    console = Console(stderr=True)
    table = Table(title="What was asked for, and what the outside world really has")
    for heading in ("run", "kind", "what", "expected", "found", "verdict", "outcome"):
        table.add_column(heading)
    for row in verdict["rows"]:
        colour = "green" if row["verdict"] == "ok" else "red"
        table.add_row(
            row["task_id"], row["kind"], row["what"], str(row["expected"]), str(row["found"]),
            f"[{colour}]{row['verdict']}[/]", _status(outcomes, row["task_id"]),
        )  # fmt: skip
    console.print(table)
    words = list(approver.answered.values())
    said = ", ".join(f"{words.count(word)} x {word}" for word in dict.fromkeys(words)) or "nothing"
    print_timeline(console, list(client.events(shown)))
    console.print(
        f"{summary['runs']} runs in {summary['seconds']} s with {summary['kills']} kills -9: "
        f"{summary['effects_found']} of {summary['effects_expected']} effects found, "
        f"{summary['duplicate_effects']} doubled, {summary['missing_effects']} missing. The person said: {said}."
    )


def _one_more(client: Client) -> None:
    """With --keep: one refund above the limit, whose question stays open."""
    task = {
        "task_id": "r-keep",
        "agent": "refunds",
        "user_id": "kim",
        "input": {
            "order_id": "A-1019",
            "amount": 150.0,
            "email": "kim@example.org",
            "reason": "changed my mind",
        },
    }
    client.submit([task])
    if not client.wait_until(lambda: "r-keep/a1" in client.pending(), 30.0, 0.3):
        say("demo: the question of r-keep has not opened within 30 s")


def _stay(deployment: Deployment) -> None:
    """Say where to look, once there is something to see; then stay."""
    servers, page = deployment.settings.bootstrap_servers, deployment.url
    say(
        f"demo: everything keeps running on {servers} (PERDURE_BOOTSTRAP_SERVERS={servers}); Ctrl-C ends it"
    )
    say(f"demo: r-keep/a1 waits for you: `perdure approve r-keep/a1 --as {VISITOR}`, or a click on")
    say(f"      {page}/approvals/r-keep/a1")
    if not _until(deployment, partial(_served, page), PAGE_SECONDS):
        say("demo: the page does not answer yet: it comes up beside the rest, look again")
    say(f"demo: the page, with every run of this demo: {page}")
    while True:
        deployment.look()
        time.sleep(0.1)
