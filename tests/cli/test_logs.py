"""What a role writes to its log: one JSON object a line, and nothing of what a run carries."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perdure.connectors.errors import InvalidArguments, TransientError
from perdure.connectors.tool import tool
from perdure.schemas import topics
from perdure.streams.runtime.processor import Context, Message

from perdure.cli import logs
from perdure.cli.console import say
from perdure.settings import Settings
from tests.connectors.servers import web_server
from tests.connectors.world import World, command
from tests.engine import desk as engine
from tests.engine.test_engine import plan
from tests.runtime.test_runtime_cycle import World as RuntimeWorld

CANARY = "canary-7f3a"
Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """A role's logging at DEBUG, as JSON; the lines so far."""
    out, root = io.StringIO(), logging.getLogger()
    ours = [logging.getLogger("perdure"), logging.getLogger("perdure.kafka"), root]
    levels = [each.level for each in ours]
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stderr", out)
    made = Settings(log_format="json", log_level="DEBUG", instance_id="me")
    logs.configure(made, "worker")
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    for each, level in zip(ours, levels, strict=True):
        each.setLevel(level)


def clean(lines: list[dict[str, Any]], *expected: str) -> None:
    """No canary in any line; and what was to be told is there, else nothing was shown."""
    assert [line for line in lines if CANARY in json.dumps(line)] == []
    told = " | ".join(line["message"] for line in lines)
    assert [text for text in expected if text not in told] == []


def test_a_line_says_when_what_who_and_of_which_run(
    log: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", logging.getLogger().handlers[0].stream)  # type: ignore[attr-defined]
    logging.getLogger("perdure.x").warning("a %s", "b", extra={"action_id": "r/1"})
    say("worker: serving")
    one, two = log()
    assert one.pop("ts").endswith("Z")
    assert one == {
        "level": "WARNING",
        "logger": "perdure.x",
        "message": "a b",
        "role": "worker",
        "instance": "me",
        "run_id": "r",
        "action_id": "r/1",
    }
    assert (two["message"], two["level"], two["instance"]) == ("worker: serving", "INFO", "me")


def test_an_exception_is_told_by_its_way_and_not_by_its_text(log: Read) -> None:
    def inner() -> None:
        raise KeyError(CANARY)

    try:
        try:
            inner()
        except KeyError as error:
            raise ValueError(f"with {CANARY}") from error
    except ValueError:
        logging.getLogger("perdure.x").exception("it failed")
    clean(log(), "it failed")
    (line,) = log()
    assert line["error"].startswith("ValueError\n")
    assert "behind it: KeyError\n" in line["error"]
    assert "in inner" in line["error"]


def test_text_lines_hold_no_text_of_an_exception_either(
    monkeypatch: pytest.MonkeyPatch, log: Read
) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs.Lines("%(levelname)s %(message)s"))
    other = logging.getLogger("perdure.text")
    monkeypatch.setattr(other, "handlers", [handler])
    other.error("it failed", exc_info=ValueError(CANARY))
    assert out.getvalue() == "ERROR it failed\nValueError\n"


def test_other_libraries_may_warn_and_no_more(log: Read) -> None:
    logging.getLogger("openai._base_client").debug("Request options: %s", CANARY)
    logging.getLogger("httpx").info("POST http://h/?key=%s", CANARY)
    logging.getLogger("httpx").warning("slow")
    logging.getLogger("asyncio").error("never retrieved\nfuture: %s", ValueError(CANARY))
    clean(log(), "slow", "never retrieved")
    assert len(log()) == 2


def test_no_secret_of_a_call_is_in_a_workers_log(
    log: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    @tool("raises", effect="idempotent")
    async def raises(secret: str) -> None:
        raise ValueError(f"no such card: {secret}")

    @tool("refuses", effect="read_only")
    async def refuses(secret: str) -> None:
        raise InvalidArguments(f"not {secret}")

    @tool("later", effect="read_only")
    async def later(secret: str) -> None:
        raise TransientError(secret, code="http_503")

    @tool("odd", effect="read_only")
    async def odd(secret: str) -> Any:
        return {secret: object(), 1: secret}

    @tool("threaded", effect="read_only", timeout_seconds=0.05)
    def threaded(secret: str) -> None:
        release.wait(5)
        raise RuntimeError(secret)

    @tool("asked", effect="idempotent")
    async def asked(secret: str) -> None:
        """Has a query."""

    @asked.query
    async def query(secret: str) -> Any:
        raise ValueError(secret)

    @tool("large", effect="read_only")
    async def large(secret: str) -> str:
        return secret * 40_000

    tools = [raises, refuses, later, odd, threaded, asked, large]
    w = World(tools, claim_check_bytes=1_000)
    try:
        for n, each in enumerate([*tools, tools[0]]):
            name = each.spec.name
            verb = "query" if name == "asked" else "call"
            w.take(
                command(
                    name, verb=verb, action_id=f"r/{n}", effect=each.spec.effect,
                    arguments={"secret": CANARY}, timeout_seconds=0.05 if name == "threaded" else 5.0,
                )
            )  # fmt: skip
        release.set()
        w.take(command("raises", action_id="r/20", arguments={"wrong": CANARY}))
        with monkeypatch.context() as patch:
            patch.setattr(w.worker, "_again", lambda *_: {}[CANARY])
            w.take(command("raises", action_id="r/21", arguments={"secret": CANARY}))
        w.until(lambda: len({r["action_id"] for r in w.results() if r["status"] != "started"}) > 9)
    finally:
        w.close()
    clean(log(), "raises of r/0 raised ValueError", "the query of asked", "could not be taken")
    assert {line.get("run_id") for line in log()} == {"r"}


def test_no_key_and_no_prompt_is_in_the_log_of_a_model_call(
    log: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEY", f"sk-{CANARY}")
    w = World(models=True)
    try:
        with web_server() as script:
            script.say(401, {"error": {"message": f"key {CANARY}"}})
            request = {
                "model": {
                    "provider": "openai", "name": "m", "base_url": script.url,
                    "api_key_env": "CANARY_KEY",
                },
                "messages": [{"role": "user", "content": CANARY}],
                "tools": [],
            }  # fmt: skip
            answer = w.answer(command("m", request=request, arguments=None))
            assert (answer["status"], answer["error"]["kind"]) == ("failed", "permission")
            assert CANARY in json.dumps(script.requests)  # it was sent, and only there
            logging.getLogger("perdure.x").info("asked")
    finally:
        w.close()
    clean(log(), "asked")


def test_no_payload_is_in_an_engines_log(
    log: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = engine.Desk(tmp_path)
    sensitive = engine.tool("call")
    sensitive.sensitive = ["card"]
    desk.catalog(sensitive, engine.agent("call"))
    desk.feed(topics.TASKS, task_id="bad", agent="demo", plan=CANARY)
    desk.feed(topics.TASKS, task_id="r", agent="demo", input=CANARY, plan=plan(a={"card": CANARY}))
    desk.feed(topics.CONTROL, run_id="r", command="message", content=CANARY, by="uma")
    with monkeypatch.context() as patch:
        patch.setattr(desk.engine, "_decide", lambda *_: {}[CANARY])
        desk.answer({"card": CANARY})
    clean(log(), "run r is quarantined: KeyError")
    assert {line["run_id"] for line in log()} == {"r"}


def test_no_payload_is_in_the_runtimes_log(log: Read, tmp_path: Path) -> None:
    def fail(self: object, ctx: Context, message: Message) -> None:
        raise ValueError(message.record.value)

    def failed(self: object, *_: Any) -> None:
        raise KeyError(CANARY)

    world = RuntimeWorld(tmp_path, process=fail, failed=failed).live()
    world.put(json.dumps({"secret": CANARY}).encode())
    world.step()
    clean(log(), "an input failed: ValueError", "failed() itself failed: KeyError")
