"""The tools of the example and of `perdure init`, against the real services."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from perdure.connectors.loading import load_tools
from perdure.connectors.mapping import failure_of
from perdure.streams.core import cel
from refunds_example import EXAMPLE, TEMPLATES, load, process

import perdure

if not hasattr(perdure, "tool"):
    pytest.skip("perdure does not export its public names yet", allow_module_level=True)

payments = load(EXAMPLE / "payments.py")
orders = load(EXAMPLE / "orders.py")
mailsink = load(EXAMPLE / "mailsink.py")
judge = load(EXAMPLE / "expected.py")
tools = load(EXAMPLE / "tools.py")
real_trouble = payments.trouble_for

CONTEXT = perdure.ToolContext(run_id="r-1", action_id="r-1/2", idempotency_key="r-1/2/aabbccdd")
DONE = {"refund_id": "rf-1", "order_id": "A-1001", "amount": 20.0, "status": "refunded"}


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes wrong at the next calls of the payment service."""
    coming: list[str] = []
    monkeypatch.setattr(payments, "trouble_for", lambda *_: coming.pop(0) if coming else None)
    return coming


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: list[str]) -> Iterator[Any]:
    monkeypatch.setenv("REFUNDS_DB", str(orders.build(tmp_path / "orders.db")))
    ledger = payments.Ledger(tmp_path / "payments.db")
    server = payments.Server(ledger)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("REFUNDS_PAYMENTS_URL", server.url)
    yield ledger
    server.shutdown()
    server.server_close()
    ledger.close()


def run(call: Callable[[], Awaitable[Any]]) -> Any:
    """One call in an event loop of its own, its client closed."""

    async def once() -> Any:
        try:
            return await call()
        finally:
            client = tools._clients.pop(asyncio.get_running_loop(), None)
            if client is not None:
                await client.aclose()

    return asyncio.run(once())


def refund(order_id: str = "A-1001", amount: float = 20.0) -> Any:
    return run(lambda: tools.refund(CONTEXT, order_id=order_id, amount=amount))


def find() -> Any:
    return run(lambda: tools.find_refund(CONTEXT, order_id="A-1001", amount=20.0))


def effects(ledger: Any) -> list[int]:
    return [effect["count"] for effect in ledger.report()["effects"]]


@pytest.mark.parametrize("directory", [EXAMPLE, TEMPLATES], ids=lambda path: path.name)
def test_every_tool_named_by_an_agent_is_there(directory: Path) -> None:
    found = {tool.spec.name: tool.spec for tool in load_tools(directory / "tools.py")}
    document = yaml.safe_load((directory / "agents.yaml").read_text("utf-8"))
    named = {name for agent in document["agents"].values() for name in agent["tools"]}
    named |= {spec.compensate for spec in found.values() if spec.compensate}
    assert named == set(found)


def test_the_tools_say_what_recovery_may_do() -> None:
    said = {t.spec.name: t.spec for t in load_tools(EXAMPLE / "tools.py")}
    assert {(s.name, s.effect, s.has_query, s.approval) for s in said.values()} == {
        ("orders.lookup", "read_only", False, "never"),
        ("payments.refund", "idempotent", True, "arguments.amount > 100"),
        ("payments.cancel_refund", "idempotent", False, "never"),
        ("mail.send", "external", False, "never"),
    }


# --- orders and payments ---------------------------------------------------------------------


def test_lookup_finds_an_order_and_refuses_an_unknown_one(ledger: Any) -> None:
    assert tools.lookup(CONTEXT, order_id="A-1001")["email"] == "carla@example.org"
    with pytest.raises(perdure.BusinessError, match="no order B-1"):
        tools.lookup(CONTEXT, order_id="B-1")


def test_missing_orders_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REFUNDS_DB", str(tmp_path / "none.db"))
    with pytest.raises(perdure.TransientError, match="set REFUNDS_DB"):
        tools.lookup(CONTEXT, order_id="A-1001")


def test_refund_called_twice_acts_once(ledger: Any) -> None:
    assert refund() == refund() == DONE
    assert effects(ledger) == [1]


def test_refund_refuses_what_the_shop_does_not_owe(ledger: Any) -> None:
    for order_id, amount in [("B-1", 1.0), ("A-1001", 24.91), ("A-1001", 0.0)]:
        with pytest.raises(perdure.BusinessError):
            refund(order_id, amount)
    assert ledger.report()["calls"] == 0


def test_the_query_tells_whether_it_happened(ledger: Any, trouble: list[str]) -> None:
    assert find() is perdure.ABSENT
    trouble.append("drop_after")
    with pytest.raises(httpx.TransportError):
        refund()
    assert find() == perdure.Found(DONE)


def test_cancel_refund_takes_the_refund_back(ledger: Any) -> None:
    result = refund()
    answer = run(lambda: tools.cancel_refund(CONTEXT, order_id="A-1001", result=result))
    assert answer["status"] == "cancelled"
    assert ledger.report()["effects"][0]["cancelled"] == 1


@pytest.mark.parametrize(
    ("word", "code"),
    [("429", "rate_limited"), ("503", "http_503"), ("drop_before", "connection_lost"),
     ("drop_after", "connection_lost")],
)  # fmt: skip
def test_every_trouble_is_tried_again_and_acts_once(
    ledger: Any, trouble: list[str], word: str, code: str
) -> None:
    trouble.append(word)
    with pytest.raises(httpx.HTTPError) as raised:
        refund()
    failure = failure_of(raised.value, "idempotent", CONTEXT.idempotency_key)
    assert (failure.kind, failure.code) == ("transient", code)
    assert failure.retry_after_seconds == (1 if word == "429" else None)
    assert refund() == DONE
    assert effects(ledger) == [1]


def test_a_wrong_url_says_which_setting_it_is(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUNDS_PAYMENTS_URL", "127.0.0.1:8100")
    with pytest.raises(perdure.BusinessError, match="REFUNDS_PAYMENTS_URL"):
        refund()


# --- mail ------------------------------------------------------------------------------------


def send(to: str = "carla@example.org", subject: str = "Refund") -> Any:
    return tools.send(CONTEXT, to=to, subject=subject, body="Grüße\n")


def test_mail_carries_the_key_and_the_sink_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mails.jsonl"
    with process("mailsink.py", "--mails", str(path), "--port", "0") as (_, said):
        monkeypatch.setenv("REFUNDS_SMTP", said["address"])
        assert send()["to"] == "carla@example.org"
        (mail,) = mailsink.read_mails(path)
        assert (mail["key"], mail["subject"], mail["body"]) == (
            CONTEXT.idempotency_key,
            "Refund",
            "Grüße\n",
        )
        assert mailsink.look_for_mail(path, CONTEXT.action_id)
        with pytest.raises(smtplib.SMTPRecipientsRefused) as raised:
            send(to="nobody")
        assert failure_of(raised.value, "external").kind == "business"


def test_a_mail_server_that_is_down_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("REFUNDS_SMTP", f"127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(perdure.TransientError, match="can't be reached"):
            send()


def test_what_can_be_no_mail_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(perdure.InvalidArguments, match="can't be a mail"):
        send(subject="two\nlines")
    monkeypatch.setenv("REFUNDS_SMTP", "somewhere")
    with pytest.raises(perdure.BusinessError, match="REFUNDS_SMTP"):
        send()


# --- perdure init ----------------------------------------------------------------------------


def test_the_notes_of_the_template(tmp_path: Path) -> None:
    copy = tmp_path / "notes_example" / "tools.py"
    copy.parent.mkdir()
    copy.write_bytes((TEMPLATES / "tools.py").read_bytes())
    notes = load(copy)
    assert notes.find_note(CONTEXT, text="tea") is perdure.ABSENT
    kept = notes.add(CONTEXT, text="Order tea")
    assert notes.add(CONTEXT, text="Order tea") == kept
    assert notes.find_note(CONTEXT, text="Order tea") == perdure.Found(kept)
    assert notes.search(CONTEXT, word="TEA") == {"notes": ["Order tea"]}
    assert len(list(copy.with_name("notes").iterdir())) == 1
    with pytest.raises(perdure.BusinessError):
        notes.add(CONTEXT, text=" ")
    assert notes.publish(CONTEXT, text="All welcome") == {"published": "All welcome"}
    assert copy.with_name("board.txt").read_text() == "All welcome\n"


# --- all of it, without an engine --------------------------------------------------------------


class Hand:
    """Carries a task out as a careful person would: in order, trying again with the same key."""

    def __init__(self, agents: dict[str, Any]) -> None:
        self.agents = agents
        self.tools = {tool.spec.name: tool for tool in load_tools(EXAMPLE / "tools.py")}

    async def call(self, task: dict[str, Any], n: int, name: str, arguments: dict) -> Any:
        """The tool's result, or a text that says why there is none."""
        asks = name == "payments.refund" and arguments["amount"] > judge.LIMIT
        if asks and judge.decision(task.get("metadata", {})) == "reject":
            return "declined by a person"
        key = f"{task['task_id']}/{n}/aabbccdd"
        context = perdure.ToolContext(run_id=task["task_id"], idempotency_key=key)
        for _ in range(6):
            try:
                result = self.tools[name](context, **arguments)
                return result if isinstance(result, dict) else await result
            except httpx.HTTPError:
                continue
            except perdure.BusinessError as error:
                return str(error)
        raise AssertionError(f"{task['task_id']}: {name} fails for ever")

    async def carry_out(self, task: dict[str, Any]) -> None:
        known: dict[str, Any] = {"input": task["input"], "last": None, "steps": {}}
        if "plan" in task:
            await self.follow(task, known)
            return
        replies = self.agents[task["agent"]]["model"]["replies"]
        for n, reply in enumerate(replies, 1):
            filled = cel.fill(reply, known)
            for call in filled.get("tool_calls", []):
                known["last"] = await self.call(task, n, call["name"], call["arguments"])
        assert isinstance(filled["content"], str)

    async def follow(self, task: dict[str, Any], known: dict[str, Any]) -> None:
        for n, step in enumerate(task["plan"], 1):
            results = [known["steps"][other]["result"] for other in step["depends_on"]]
            if any(isinstance(result, str) for result in results):
                known["steps"][step["id"]] = {"result": "not reached"}
            elif not cel.evaluate(step.get("when", "true"), known):
                known["steps"][step["id"]] = {"result": None}
            else:
                arguments = cel.fill(step["arguments"], known)
                result = await self.call(task, n, step["tool"], arguments)
                known["steps"][step["id"]] = {"result": result}


def test_what_the_tools_do_is_what_the_judge_expects(
    tmp_path: Path, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        payments,
        "trouble_for",
        lambda *call: real_trouble(payments.DEFAULT_SEED, 0.15, *call[2:]),
    )
    tasks = judge.read_tasks(EXAMPLE / "tasks.jsonl")
    document = yaml.safe_load((EXAMPLE / "agents.yaml").read_text("utf-8"))
    hand = Hand(document["agents"])
    path = tmp_path / "mails.jsonl"

    async def carry_all_out() -> None:
        for task in tasks:
            await hand.carry_out(task)
        # the loader's copy of the module has a client of its own
        await hand.tools["payments.refund"].function.__globals__["client"]().aclose()

    with process("mailsink.py", "--mails", str(path), "--port", "0") as (_, said):
        monkeypatch.setenv("REFUNDS_SMTP", said["address"])
        asyncio.run(carry_all_out())
    report = ledger.report()
    result = judge.compare(
        judge.expected(tasks, orders.read(tmp_path / "orders.db")),
        report,
        mailsink.read_mails(path),
    )
    assert [row for row in result["rows"] if row["verdict"] != "ok"] == []
    assert result["effects_found"] == result["effects_expected"] == 52
    assert set(report["troubles"]) == set(payments.TROUBLES)
